//! Which content coding a client takes: gzip, or none. Source: RFC 9110 §12.5.3.

/// Whether `Accept-Encoding` allows gzip and does not prefer the plain form to it.
#[must_use]
pub fn accepts_gzip(list: &str) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for item in list.split(',') {
        let (coding, weight) = item.split_once(';').unwrap_or((item, ""));
        let Some(weight) = thousandths(weight) else { continue };
        let coding = coding.trim_matches([' ', '\t']);
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            gzip = Some(weight);
        } else if coding.eq_ignore_ascii_case("identity") {
            identity = Some(weight);
        } else if coding == "*" {
            any = Some(weight);
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// `q=0.5` as 500; nothing as 1000; `None` if it is malformed.
fn thousandths(parameter: &str) -> Option<u32> {
    let parameter = parameter.trim_matches([' ', '\t']);
    if parameter.is_empty() {
        return Some(1000);
    }
    let value = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="))?;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let padded = format!("{fraction:0<3}").parse::<u32>().ok()?;
    match (whole, padded) {
        ("0", padded) => Some(padded),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::accepts_gzip;

    #[test]
    fn gzip_is_taken_when_it_is_named_and_not_refused() {
        for list in [
            "gzip",
            "br, gzip",
            "GZIP;q=0.5",
            "*",
            "*;q=0.1",
            "deflate, gzip ; q=1.0, *;q=0",
            "gzip, identity",
        ] {
            assert!(accepts_gzip(list), "{list}");
        }
        for list in [
            "",
            "br",
            "gzip;q=0",
            "gzip;q=0.000",
            "*;q=0",
            "gzip;q=0, *",
            "identity, gzip;q=0.5",
            "gzip;q=nan",
            "gzip;q=2",
        ] {
            assert!(!accepts_gzip(list), "{list}");
        }
    }
}
