//! Which crate, or which file of it, may name what: headers and statuses, a wire, sockets, decisions, `unsafe`.

use super::arrows::{NETWORKED, TOOLS};
use super::source::{Kind, RustFile, Token};
use super::{Finding, Sources};

/// Header names that no ordinary word equals. Only `protocol` may have them.
const HEADERS: &[&str] = &[
    "stream-next-offset",
    "stream-closed",
    "stream-seq",
    "stream-cursor",
    "stream-ttl",
    "stream-expires-at",
    "stream-up-to-date",
    "stream-forked-from",
    "stream-fork-offset",
    "stream-sse-data-encoding",
    "producer-id",
    "producer-epoch",
    "producer-seq",
    "producer-expected-seq",
    "producer-received-seq",
    "content-type",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "transfer-encoding",
    "cache-control",
    "etag",
    "if-none-match",
    "if-match",
    "retry-after",
    "authorization",
    "www-authenticate",
    "traceparent",
    "location",
    "connection",
    "host",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
];

/// Headers whose names are ordinary words too: only `name:` is taken for one.
const ORDINARY: &[&str] = &["location", "connection", "host"];

const SOCKETS: &[&str] =
    &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener", "UnixDatagram"];

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    sources.rust.iter().flat_map(check_file).collect()
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for token in &file.tokens {
        findings.extend(unsafe_outside_env(file, token));
        if !token.in_test && !TOOLS.contains(&file.crate_name()) {
            findings.extend(http_outside_protocol(file, token));
            findings.extend(http_in_log(file, token));
            findings.extend(socket_in_core(file, token));
            findings.extend(wire_in_session(file, token));
        }
    }
    findings.extend(decisions_elsewhere(file));
    findings
}

/// What may be made in one file only, so that a request reaches the node when it was decided and not otherwise.
const DECISIONS: &[(&str, &str, &str)] = &[
    ("Authorized", "access", "/decide.rs"),
    ("Permit", "access", "/decide.rs"),
    ("Ask", "session", "/sessions.rs"),
];

fn decisions_elsewhere(file: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pair in file.tokens.windows(2) {
        let (Some(name), Kind::Open('{')) = (pair[0].ident(), &pair[1].kind) else { continue };
        let is_elsewhere = |(made, owner, place): &&(&str, &str, &str)| {
            *made == name && *owner == file.crate_name() && !file.path.ends_with(place)
        };
        if let Some((_, _, place)) = DECISIONS.iter().find(is_elsewhere)
            && file.path.contains("/src/")
            && !pair[0].in_test
        {
            let what = format!("`{name}` is made outside of {place}");
            let advice = "only what was decided reaches the node: take one that was made there";
            findings.push(Finding::new(&file.path, pair[0].line, what, advice));
        }
    }
    findings
}

fn unsafe_outside_env(file: &RustFile, token: &Token) -> Option<Finding> {
    let misplaced = token.ident() == Some("unsafe") && file.crate_name() != "env";
    misplaced.then(|| {
        let advice = "only crates/env talks to the system without checks; add a safe call there";
        Finding::new(&file.path, token.line, "`unsafe` outside of crates/env", advice)
    })
}

fn http_outside_protocol(file: &RustFile, token: &Token) -> Option<Finding> {
    // The admin server is an HTTP face of its own, behind a framework.
    if file.crate_name() == "protocol" || file.path.starts_with("crates/server/src/admin/") {
        return None;
    }
    let what = if token.ident() == Some("StatusCode") {
        "a status code outside of crates/protocol".to_owned()
    } else {
        let header = header_in(token.string()?)?;
        format!("the header `{header}` outside of crates/protocol")
    };
    let advice = "only protocol knows headers and statuses: parse or render it there";
    Some(Finding::new(&file.path, token.line, what, advice))
}

/// The header that a string is, or starts a line with.
fn header_in(text: &str) -> Option<&'static str> {
    let text = text.trim_start_matches("\\r").trim_start_matches("\\n").to_ascii_lowercase();
    HEADERS.iter().copied().find(|header| {
        let rest = text.strip_prefix(header);
        rest.is_some_and(|rest| {
            rest.starts_with(':') || (rest.is_empty() && !ORDINARY.contains(header))
        })
    })
}

fn http_in_log(file: &RustFile, token: &Token) -> Option<Finding> {
    let word = token.ident().or_else(|| token.string())?;
    let names_http = file.crate_name() == "log" && word.to_ascii_lowercase().contains("http");
    names_http.then(|| {
        let advice = "log knows bytes, groups and positions; say what the bytes are for elsewhere";
        Finding::new(&file.path, token.line, "crates/log names HTTP", advice)
    })
}

fn socket_in_core(file: &RustFile, token: &Token) -> Option<Finding> {
    let name = token.ident().filter(|name| SOCKETS.contains(name))?;
    if NETWORKED.contains(&file.crate_name()) {
        return None;
    }
    let advice = "sockets live in server and client; a core takes and gives bytes";
    Some(Finding::new(&file.path, token.line, format!("`{name}` below the server"), advice))
}

fn wire_in_session(file: &RustFile, token: &Token) -> Option<Finding> {
    let is_elsewhere = file.crate_name() == "session" && !file.path.ends_with("/wire.rs");
    let name = token.ident().filter(|name| ["http1", "http2"].contains(name));
    let name = name.filter(|_| is_elsewhere && !file.path.ends_with("/options.rs"))?;
    let advice = "exchanges do not know the version of HTTP; let `Wire` say what they need";
    let what = format!("`{name}` outside of crates/session/src/wire.rs");
    Some(Finding::new(&file.path, token.line, what, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;

    fn of(path: &str, text: &str) -> Vec<String> {
        findings(check, path, text).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn unsafe_is_for_env() {
        let text = "fn a() { unsafe { b() } }";
        assert_eq!(of("crates/log/src/a.rs", text), ["`unsafe` outside of crates/env"]);
        assert!(of("crates/env/src/a.rs", text).is_empty());
        assert!(of("crates/log/src/a.rs", "// unsafe\nconst A: &str = \"unsafe\";").is_empty());
    }

    #[test]
    fn a_header_is_for_protocol() {
        for literal in ["\"Stream-Seq\"", "b\"content-type\"", "\"\\r\\nLocation: \"", "\"ETag\""] {
            let text = format!("const A: &[u8] = {literal};");
            assert_eq!(of("crates/server/src/a.rs", &text).len(), 1, "{literal}");
            assert!(of("crates/protocol/src/a.rs", &text).is_empty(), "{literal}");
        }
    }

    #[test]
    fn words_that_are_no_headers_are_left_alone() {
        let text = "const A: [&str; 3] = [\"connection\", \"the content-type\", \"location of\"];";
        assert!(of("crates/server/src/a.rs", text).is_empty());
    }

    #[test]
    fn tests_may_name_headers() {
        let text = "#[cfg(test)] mod tests { const A: &str = \"etag\"; }";
        assert!(of("crates/node/src/a.rs", text).is_empty());
        assert!(of("crates/server/tests/a.rs", "const A: &str = \"etag\";").is_empty());
    }

    #[test]
    fn a_status_is_for_protocol_and_admin() {
        let text = "use http::StatusCode;";
        assert_eq!(of("crates/node/src/a.rs", text), ["a status code outside of crates/protocol"]);
        assert!(of("crates/server/src/admin/answer.rs", text).is_empty());
    }

    #[test]
    fn the_log_does_not_know_http() {
        let text = "fn http_date() {}";
        assert_eq!(of("crates/log/src/a.rs", text), ["crates/log names HTTP"]);
        assert!(of("crates/protocol/src/a.rs", text).is_empty());
    }

    #[test]
    fn a_session_knows_its_wire_in_one_file() {
        let text = "use protocol::http1::Head;";
        let finding = "`http1` outside of crates/session/src/wire.rs";
        assert_eq!(of("crates/session/src/live.rs", text), [finding]);
        assert!(of("crates/session/src/wire.rs", text).is_empty());
        assert!(of("crates/server/src/a.rs", text).is_empty());
    }

    #[test]
    fn decisions_are_made_in_one_place() {
        let text = "fn a() { let b = Authorized { request, permit }; }";
        let finding = "`Authorized` is made outside of /decide.rs";
        assert_eq!(of("crates/access/src/access.rs", text), [finding]);
        assert!(of("crates/access/src/decide.rs", text).is_empty());
        let text = "fn a() { (self.asks)(Ask { ticket, request, data }); }";
        assert_eq!(
            of("crates/session/src/live.rs", text),
            ["`Ask` is made outside of /sessions.rs"]
        );
        assert!(of("crates/session/src/sessions.rs", text).is_empty());
        assert!(of("crates/server/src/plane/shard.rs", "fn a() { let Ask { b } = c; }").is_empty());
    }

    #[test]
    fn sockets_are_for_the_server() {
        let text = "use std::net::TcpStream;";
        assert_eq!(of("crates/node/src/a.rs", text), ["`TcpStream` below the server"]);
        assert!(of("crates/server/src/a.rs", text).is_empty());
    }
}
