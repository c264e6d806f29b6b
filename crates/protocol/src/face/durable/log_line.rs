//! The line of an exchange in the access log and the audit log: one JSON object.
//!
//! # Invariants
//! - A line is one line: everything that a client has sent is escaped.
//! - No line has a credential: neither a field of the request nor the value of a signature.
//! - A line is at most [`LINE_BYTES_MAX`] long, whatever a client sends.

use crate::{
    HttpDate, TraceId,
    decimal::Decimal,
    face::durable::{
        problem::detail::{cut, escape_into},
        request::{ASKED_BYTES_MAX, Asked},
    },
};
use model::Timestamp;
use std::net::IpAddr;

/// Bytes of the name of a client that a line shows.
const NAME_BYTES_MAX: usize = 256;

/// Longest line: each byte of what a client sends may become six.
pub const LINE_BYTES_MAX: usize = 6 * (ASKED_BYTES_MAX + NAME_BYTES_MAX) + 512;

/// What a line says.
#[derive(Debug, Clone, Copy)]
pub struct LogLine<'a> {
    /// What an audit log calls it.
    pub event: Option<&'static str>,
    /// When the exchange ended.
    pub at: Timestamp,
    /// The address of the client.
    pub address: IpAddr,
    /// The id of a token, the subject of a JWT, or what else names the client.
    pub who: Option<&'a str>,
    /// Over which wire it came.
    pub wire: &'static str,
    /// Whether bytes were encrypted on their way.
    pub is_tls: bool,
    /// What was asked.
    pub asked: &'a Asked,
    /// The trace that the request belongs to.
    pub trace: Option<&'a TraceId>,
    /// The status of the answer; 0 without one.
    pub status: u16,
    /// The code of the problem that was answered.
    pub code: Option<&'static str>,
    /// Bytes of the body that came, and bytes of the answer.
    pub bytes: (u64, u64),
    /// Microseconds until the head of the answer, and until its end.
    pub took_us: (u64, u64),
    /// The exchange has no end: its client has gone, or its answer could not be completed.
    pub is_cut: bool,
    /// The shard of the connection.
    pub shard: u16,
}

impl LogLine<'_> {
    /// Appends the line.
    pub fn render(&self, date: &SecondText, out: &mut String) {
        out.push_str("{\"ts\":\"");
        date.put(self.at, out);
        if let Some(event) = self.event {
            put_text(out, "event", event);
        }
        put_text(out, "addr", &self.address.to_string());
        if let Some(who) = self.who {
            put_text(out, "who", cut(who, NAME_BYTES_MAX));
        }
        put_text(out, "proto", self.wire);
        out.push_str(if self.is_tls { "\",\"tls\":true," } else { "\",\"tls\":false," });
        out.push_str(self.asked.members());
        if let Some(trace) = self.trace {
            out.push_str(",\"trace\":\"");
            out.push_str(trace.as_str());
            out.push('"');
        }
        put_number(out, "status", self.status.into());
        if let Some(code) = self.code {
            out.push_str(",\"code\":\"");
            out.push_str(code);
            out.push('"');
        }
        put_number(out, "in", self.bytes.0);
        put_number(out, "out", self.bytes.1);
        put_number(out, "first_us", self.took_us.0);
        put_number(out, "us", self.took_us.1);
        put_number(out, "shard", self.shard.into());
        out.push_str(if self.is_cut { ",\"cut\":true}\n" } else { "}\n" });
    }
}

/// The line of an audit log for denials that have no line of their own: so many more from one address, or from all others.
pub fn more_denials(
    date: &SecondText,
    at: Timestamp,
    (address, count): (Option<IpAddr>, u64),
    out: &mut String,
) {
    out.push_str("{\"ts\":\"");
    date.put(at, out);
    put_text(out, "event", "denied");
    let address = address.map_or_else(|| "others".to_owned(), |address| address.to_string());
    put_text(out, "addr", &address);
    out.push('"');
    put_number(out, "more", count);
    out.push_str("}\n");
}

/// The line of an audit log for what an operator has done; `problem` if it was refused.
#[must_use]
pub fn operator_line(at: Timestamp, event: &str, problem: Option<&str>) -> String {
    let mut out = String::from("{\"ts\":\"");
    SecondText::new(at).put(at, &mut out);
    put_text(&mut out, "event", event);
    if let Some(problem) = problem {
        put_text(&mut out, "problem", cut(problem, ASKED_BYTES_MAX));
    }
    out.push_str("\"}\n");
    out
}

/// A second as text, which many lines begin with: `2026-11-25T09:50:12`.
#[derive(Debug, Clone)]
pub struct SecondText {
    second: u64,
    text: Box<str>,
}

impl SecondText {
    /// The second of `at`.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        Self { second: at.get() / 1000, text: HttpDate::rfc3339_second(at).into() }
    }

    /// Whether it is the second of `at`.
    #[must_use]
    pub fn is_of(&self, at: Timestamp) -> bool {
        self.second == at.get() / 1000
    }

    fn put(&self, at: Timestamp, out: &mut String) {
        let ms = at.get() % 1000;
        out.push_str(&self.text);
        out.push('.');
        for digit in [ms / 100, ms / 10 % 10, ms % 10] {
            out.push(char::from(b'0' + digit as u8));
        }
        out.push('Z');
    }
}

/// Ends the text before it, and begins one.
fn put_text(out: &mut String, name: &str, value: &str) {
    out.push_str("\",\"");
    out.push_str(name);
    out.push_str("\":\"");
    escape_into(out, value);
}

fn put_number(out: &mut String, name: &str, value: u64) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    out.push_str(std::str::from_utf8(Decimal::new(value).as_bytes()).expect("digits"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestHead, head::Method};
    use std::net::Ipv4Addr;

    const AT: Timestamp = Timestamp::new(1_700_000_000_007);

    fn head<'b>(
        method_text: &'b str,
        path: &'b str,
        query: Option<&'b str>,
    ) -> RequestHead<'b, 'b> {
        RequestHead { method: Method::Get, method_text, path, query, authority: None, fields: &[] }
    }

    fn line<'a>(asked: &'a Asked, who: Option<&'a str>, trace: Option<&'a TraceId>) -> LogLine<'a> {
        LogLine {
            event: None,
            at: AT,
            address: Ipv4Addr::LOCALHOST.into(),
            who,
            wire: "h1",
            is_tls: false,
            asked,
            trace,
            status: 204,
            code: None,
            bytes: (256, 170),
            took_us: (310, 320),
            is_cut: false,
            shard: 1,
        }
    }

    fn rendered(line: &LogLine<'_>) -> String {
        let mut out = String::new();
        line.render(&SecondText::new(AT), &mut out);
        out
    }

    #[test]
    fn a_line_says_who_asked_what_and_what_came_of_it() {
        let asked = Asked::of(&head("GET", "/v1/stream/chat/42", Some("offset=-1&signature=abc")));
        let trace = TraceId::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let all = LogLine {
            event: Some("denied"),
            code: Some("access-denied"),
            is_cut: true,
            is_tls: true,
            ..line(&asked, Some("ci"), trace.as_ref())
        };
        assert_eq!(
            rendered(&all),
            "{\"ts\":\"2023-11-14T22:13:20.007Z\",\"event\":\"denied\",\"addr\":\"127.0.0.1\",\"who\":\"ci\",\
             \"proto\":\"h1\",\"tls\":true,\"method\":\"GET\",\
             \"target\":\"/v1/stream/chat/42?offset=-1&signature=...\",\
             \"trace\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"status\":204,\"code\":\"access-denied\",\
             \"in\":256,\"out\":170,\"first_us\":310,\"us\":320,\"shard\":1,\"cut\":true}\n"
        );
        let few = rendered(&line(&asked, None, None));
        assert!(!few.contains("who") && !few.contains("trace") && !few.contains("cut"), "{few}");
    }

    #[test]
    fn nothing_that_a_client_sends_makes_another_line_or_a_long_one() {
        let long = "/\"\\".repeat(5000);
        let asked = Asked::of(&head(&long, &long, Some("a=\u{1}\n")));
        let name = "\n{\"x\":1}é".repeat(100);
        let text = rendered(&line(&asked, Some(&name), None));
        assert!(text.len() <= LINE_BYTES_MAX, "{}", text.len());
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value["target"].as_str().unwrap().starts_with("/\"\\/\"\\"));
        assert!(value["who"].as_str().unwrap().starts_with("\n{\"x\":1}é"));
    }

    #[test]
    fn what_has_no_exchange_has_lines_of_its_own() {
        let mut out = String::new();
        let second = SecondText::new(AT);
        more_denials(&second, AT, (Some(Ipv4Addr::LOCALHOST.into()), 7), &mut out);
        more_denials(&second, AT, (None, 9), &mut out);
        assert_eq!(
            out,
            "{\"ts\":\"2023-11-14T22:13:20.007Z\",\"event\":\"denied\",\"addr\":\"127.0.0.1\",\"more\":7}\n\
             {\"ts\":\"2023-11-14T22:13:20.007Z\",\"event\":\"denied\",\"addr\":\"others\",\"more\":9}\n"
        );
        assert_eq!(
            operator_line(AT, "reload", Some("a \"b\"")),
            "{\"ts\":\"2023-11-14T22:13:20.007Z\",\"event\":\"reload\",\"problem\":\"a \\\"b\\\"\"}\n"
        );
    }
}
