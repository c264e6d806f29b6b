//! The trace that a request belongs to. Source: W3C Trace Context.

/// The id of a trace. W3C Trace Context §3.2.2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 32]);

impl TraceId {
    /// The id in a `traceparent`; `None` if it has none.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let is_hex =
            |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let (version, rest) = value.split_at_checked(2)?;
        let id: [u8; 32] = rest.strip_prefix(b"-")?.first_chunk().copied()?;
        let is_followed = rest.get(33) == Some(&b'-');
        let is_valid = is_hex(version) && version != b"ff" && is_hex(&id) && id != [b'0'; 32];
        (is_followed && is_valid).then_some(Self(id))
    }

    /// Its hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_what_its_standard_says() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let trace = |value: &str| TraceId::parse(value.as_bytes()).map(|id| id.as_str().to_owned());
        assert_eq!(trace(&format!("00-{id}-00f067aa0ba902b7-01")).as_deref(), Some(id));
        assert_eq!(trace(&format!("cc-{id}-00f067aa0ba902b7-01-more")).as_deref(), Some(id));
        for bad in [
            "",
            "00",
            "00-",
            &format!("ff-{id}-00f067aa0ba902b7-01"),
            &format!("00-{id}"),
            &id.to_uppercase(),
        ] {
            assert_eq!(trace(bad), None, "{bad}");
        }
        assert_eq!(trace(&format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32))), None);
    }
}
