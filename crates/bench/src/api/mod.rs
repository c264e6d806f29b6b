//! How a system is asked: styles of creating, appending to and reading a stream.
//!
//! One load generator drives every system, so that what differs between two runs is the system. A
//! style knows paths, fields and the form of bodies; when requests go and what is counted is the
//! same for all. Payloads are letters and digits, which no style has to escape.
//!
//! | style | stream | append | read | live |
//! |---|---|---|---|---|
//! | `durable` | `/v1/stream/S` | POST, body is the payload | `?offset=` | `&live=long-poll`, `&live=sse` |
//! | `ursula` | `/B/S`, after `PUT /B` | the same | the same | the same |
//! | `s2` | `/v1/streams/S` of a basin | POST `/records`, JSON | `?seq_num=` | `&wait=`, an event stream |
//! | `nats` | a subject, not HTTP: [`crate::nats`] | `PUB` | direct get | – |
//! | `kafka` | a partition, not HTTP: [`crate::kafka`] | produce | fetch | – |

mod batch;
mod content;

pub(crate) use batch::Batch;
pub(crate) use content::Content;

use crate::{kafka, nats};
use batch::Frame;
use clap::ValueEnum;
use client::Producer;
use std::io::Write;

/// What streams of text hold: it goes out as it is by every way of reading.
pub(crate) const MEDIA_TYPE: &str = "text/plain";

/// The bucket or basin of all streams, where a style has one.
const NAMESPACE: &str = "thalweg-bench";

/// Records per page, the most that S2 gives without a session.
const RECORDS_PER_PAGE: u32 = 1000;

/// How long a long-poll of S2 waits; the others' servers decide.
const WAIT_SECONDS: u32 = 30;

/// The name of stream `number` of the set `prefix`: one segment of a path, as every style wants it.
pub(crate) fn stream_name(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number:08}")
}

/// A way to ask.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ApiStyle {
    /// Durable Streams Protocol: Thalweg, the servers of Durable Streams
    Durable,
    /// Ursula's buckets
    Ursula,
    /// S2's basins and records
    S2,
    /// NATS JetStream's subjects
    Nats,
    /// Kafka's partitions
    Kafka,
}

impl ApiStyle {
    /// Whether requests are HTTP. Others can be appended to and read back, and have no live readers
    /// here.
    pub(crate) fn is_http(self) -> bool {
        !matches!(self, Self::Nats | Self::Kafka)
    }

    /// Whether a writer may be an idempotent producer of the Durable Streams Protocol.
    pub(crate) fn has_producers(self) -> bool {
        matches!(self, Self::Durable | Self::Ursula)
    }
}

/// One append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Append<'a> {
    /// The connection that it goes out on.
    pub(crate) connection: usize,
    pub(crate) stream: &'a str,
    /// None where the style has none.
    pub(crate) producer: Option<&'a Producer>,
    pub(crate) batch: Batch<'a>,
}

/// What the streams of a run hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Text, of which a read gives the bytes.
    Bytes,
    /// JSON messages, which a read gives as an array where the style knows them.
    Messages,
}

impl Holds {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Bytes => MEDIA_TYPE,
            Self::Messages => "application/json",
        }
    }
}

/// A system's API at one address.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) style: ApiStyle,
    pub(crate) holds: Holds,
    host: String,
    /// What the names of all streams begin with.
    run: String,
}

/// Where a read begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    Begin,
    /// Only what comes from now on.
    Tail,
    /// A token of the system's own.
    At(Box<str>),
}

/// What a read does at the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Live {
    /// It ends.
    No,
    /// It waits for the next append.
    LongPoll,
    /// It stays, as server-sent events.
    Sse,
}

/// What a read asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read<'a> {
    pub(crate) from: &'a ReadFrom,
    pub(crate) live: Live,
    /// What the last long-poll answered.
    pub(crate) cursor: Option<&'a str>,
}

impl Api {
    pub(crate) fn new(style: ApiStyle, host: impl Into<String>) -> Self {
        Self { style, holds: Holds::Bytes, host: host.into(), run: String::new() }
    }

    /// Names streams so that they are not those of another run, on a server that keeps what it has.
    pub(crate) fn for_run(self, number: u64) -> Self {
        Self { run: format!("run-{number:x}-"), ..self }
    }

    /// The HTTP request that must succeed before the first create; empty if there is none.
    pub(crate) fn namespace_request(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.style {
            ApiStyle::Durable | ApiStyle::Nats | ApiStyle::Kafka => {}
            ApiStyle::Ursula => {
                self.put(&mut out, format_args!("PUT /{NAMESPACE}"), None, b"");
            }
            ApiStyle::S2 => {
                let body = format!("{{\"basin\":\"{NAMESPACE}\"}}");
                let json = Some("application/json");
                self.put(&mut out, format_args!("POST /v1/basins"), json, body.as_bytes());
            }
        }
        out
    }

    pub(crate) fn put_create(&self, out: &mut Vec<u8>, stream: &str) {
        if self.style == ApiStyle::S2 {
            let body = format!("{{\"stream\":\"{}{stream}\"}}", self.run);
            let json = Some("application/json");
            return self.put(out, format_args!("POST /v1/streams"), json, body.as_bytes());
        }
        let path = self.path(stream);
        let media_type = Some(self.holds.media_type());
        self.put(out, format_args!("PUT {path}"), media_type, b"");
    }

    /// What connection `connection` sends before its first request.
    pub(crate) fn greeting(&self, connection: usize) -> Vec<u8> {
        match self.style {
            ApiStyle::Nats => nats::greeting(connection),
            ApiStyle::Durable | ApiStyle::Ursula | ApiStyle::S2 | ApiStyle::Kafka => Vec::new(),
        }
    }

    /// Appends payloads; all or none, but for NATS.
    pub(crate) fn put_append(&self, out: &mut Vec<u8>, append: Append<'_>) {
        let Append { connection, stream, producer, batch } = append;
        assert!(producer.is_none() || self.style.has_producers(), "the style has no producers");
        match self.style {
            ApiStyle::Nats => nats::put_append(out, connection, stream, batch),
            ApiStyle::Kafka => kafka::put_append(out, stream, batch),
            ApiStyle::Durable | ApiStyle::Ursula | ApiStyle::S2 => self.put_post(out, append),
        }
    }

    fn put_post(&self, out: &mut Vec<u8>, append: Append<'_>) {
        let Append { stream, producer, batch, .. } = append;
        let path = self.path(stream);
        let frame = Frame::of(self.style, self.holds);
        if self.style == ApiStyle::S2 {
            self.start(out, format_args!("POST {path}/records"));
            line(out, format_args!("Content-Type: application/json"));
        } else {
            self.start(out, format_args!("POST {path}"));
            line(out, format_args!("Content-Type: {}", self.holds.media_type()));
        }
        if let Some(Producer { id, epoch, seq }) = producer {
            line(out, format_args!("Producer-Id: {id}"));
            line(out, format_args!("Producer-Epoch: {epoch}"));
            line(out, format_args!("Producer-Seq: {seq}"));
        }
        line(out, format_args!("Content-Length: {}\r\n", frame.length(batch)));
        frame.put(batch, out);
    }

    pub(crate) fn put_read(&self, out: &mut Vec<u8>, stream: &str, read: Read<'_>) {
        let Read { from, live, cursor } = read;
        let path = self.path(stream);
        if self.style == ApiStyle::S2 {
            return self.put_records_read(out, &path, from, live);
        }
        let offset = match from {
            ReadFrom::Begin => "-1",
            ReadFrom::Tail => "now",
            ReadFrom::At(token) => token,
        };
        let live = match live {
            Live::No => "",
            Live::LongPoll => "&live=long-poll",
            Live::Sse => "&live=sse",
        };
        let (key, cursor) = cursor.map_or(("", ""), |cursor| ("&cursor=", cursor));
        self.start(out, format_args!("GET {path}?offset={offset}{live}{key}{cursor}"));
        out.extend_from_slice(b"\r\n");
    }

    fn put_records_read(&self, out: &mut Vec<u8>, path: &str, from: &ReadFrom, live: Live) {
        let (key, number) = match from {
            ReadFrom::Begin => ("seq_num", "0"),
            ReadFrom::Tail => ("tail_offset", "0"),
            ReadFrom::At(token) => ("seq_num", &**token),
        };
        let (count, wait) = (RECORDS_PER_PAGE, WAIT_SECONDS);
        let start = format_args!("GET {path}/records?{key}={number}");
        match live {
            Live::No => self.start(out, format_args!("{start}&count={count}")),
            Live::LongPoll => self.start(out, format_args!("{start}&count={count}&wait={wait}")),
            Live::Sse => {
                self.start(out, start);
                line(out, format_args!("Accept: text/event-stream"));
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn path(&self, stream: &str) -> String {
        let run = &self.run;
        match self.style {
            ApiStyle::Durable => format!("/v1/stream/{run}{stream}"),
            ApiStyle::Ursula => format!("/{NAMESPACE}/{run}{stream}"),
            ApiStyle::S2 => format!("/v1/streams/{run}{stream}"),
            ApiStyle::Nats | ApiStyle::Kafka => unreachable!("only HTTP has paths"),
        }
    }

    fn put(
        &self,
        out: &mut Vec<u8>,
        start: std::fmt::Arguments<'_>,
        media_type: Option<&str>,
        body: &[u8],
    ) {
        self.start(out, start);
        if let Some(media_type) = media_type {
            line(out, format_args!("Content-Type: {media_type}"));
        }
        end(out, body);
    }

    fn start(&self, out: &mut Vec<u8>, start: std::fmt::Arguments<'_>) {
        line(out, format_args!("{start} HTTP/1.1"));
        line(out, format_args!("Host: {}", self.host));
        if self.style == ApiStyle::S2 {
            line(out, format_args!("s2-basin: {NAMESPACE}"));
        }
    }
}

fn line(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = write!(out, "{text}\r\n");
}

fn end(out: &mut Vec<u8>, body: &[u8]) {
    line(out, format_args!("Content-Length: {}\r\n", body.len()));
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(style: ApiStyle, put: impl FnOnce(&Api, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&Api::new(style, "h:1"), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn append_of<'a>(
        stream: &'a str,
        producer: Option<&'a Producer>,
        batch: Batch<'a>,
    ) -> Append<'a> {
        Append { connection: 0, stream, producer, batch }
    }

    #[test]
    fn an_append_has_the_form_of_its_style() {
        let append = |style| {
            text(style, |api, out| {
                api.put_append(out, append_of("a-1", None, Batch::one(b"0123456789")))
            })
        };
        assert_eq!(
            append(ApiStyle::Durable),
            "POST /v1/stream/a-1 HTTP/1.1\r\nHost: h:1\r\nContent-Type: text/plain\r\n\
             Content-Length: 10\r\n\r\n0123456789"
        );
        assert!(append(ApiStyle::Ursula).starts_with("POST /thalweg-bench/a-1 HTTP/1.1\r\n"));
        let records = append(ApiStyle::S2);
        assert!(records.starts_with("POST /v1/streams/a-1/records HTTP/1.1\r\n"), "{records}");
        assert!(records.contains("\r\ns2-basin: thalweg-bench\r\n"), "{records}");
        assert!(
            records.ends_with("\r\n\r\n{\"records\":[{\"body\":\"0123456789\"}]}"),
            "{records}"
        );
    }

    #[test]
    fn each_run_on_a_server_that_keeps_its_streams_has_streams_of_its_own() {
        let style = [ApiStyle::Durable, ApiStyle::Ursula, ApiStyle::S2];
        for style in style {
            let create = |run: u64| {
                let mut out = Vec::new();
                Api::new(style, "h:1").for_run(run).put_create(&mut out, "a-1");
                String::from_utf8(out).unwrap()
            };
            assert!(create(0x2a).contains("run-2a-a-1"), "{}", create(0x2a));
            assert_ne!(create(1), create(2));
        }
    }

    #[test]
    fn the_server_understands_the_durable_style() {
        let producer = Producer { id: "p".into(), epoch: 0, seq: 7 };
        let create = text(ApiStyle::Durable, |api, out| api.put_create(out, "a-1"));
        let append = text(ApiStyle::Durable, |api, out| {
            api.put_append(out, append_of("a-1", Some(&producer), Batch::one(b"x")))
        });
        let messages = text(ApiStyle::Durable, |api, out| {
            let api = Api { holds: Holds::Messages, ..api.clone() };
            api.put_append(out, append_of("a-1", None, Batch { bytes: b"123456", each: 2 }));
        });
        assert!(messages.contains("\r\nContent-Type: application/json\r\n"), "{messages}");
        assert!(messages.ends_with("\r\nContent-Length: 10\r\n\r\n[12,34,56]"), "{messages}");
        for (request, wanted) in
            [(create, "Create("), (append, "seq: 7"), (messages, "content_type: Valid(")]
        {
            let mut slots = protocol::http1::HeaderSlots::new();
            let mut reader = protocol::http1::HeadReader::default();
            let limits = protocol::http1::HeadLimits::default();
            let head = reader.read(request.as_bytes(), &mut slots, &limits).unwrap().unwrap();
            let way = &protocol::request::Way::LOCAL;
            let parsed = format!("{:?}", protocol::request::parse(&head.request, way).unwrap());
            assert!(parsed.contains(wanted), "{parsed}");
        }
    }

    #[test]
    fn a_read_says_where_it_begins_and_whether_it_waits() {
        let at = ReadFrom::At("17".into());
        for (style, from, live, wanted) in [
            (ApiStyle::Durable, &ReadFrom::Begin, Live::No, "/v1/stream/s?offset=-1 "),
            (ApiStyle::Durable, &at, Live::LongPoll, "?offset=17&live=long-poll&cursor=5 "),
            (ApiStyle::Ursula, &ReadFrom::Tail, Live::Sse, "/thalweg-bench/s?offset=now&live=sse"),
            (ApiStyle::S2, &ReadFrom::Begin, Live::No, "/records?seq_num=0&count=1000 "),
            (ApiStyle::S2, &at, Live::LongPoll, "/records?seq_num=17&count=1000&wait=30 "),
            (ApiStyle::S2, &ReadFrom::Tail, Live::Sse, "/records?tail_offset=0 "),
        ] {
            let cursor = (live == Live::LongPoll).then_some("5");
            let request =
                text(style, |api, out| api.put_read(out, "s", Read { from, live, cursor }));
            assert!(request.contains(wanted), "{request}");
            assert!(request.ends_with("\r\n\r\n"), "{request}");
            let is_asked = request.contains("text/event-stream");
            assert_eq!(is_asked, style == ApiStyle::S2 && live == Live::Sse, "{request}");
        }
    }

    #[test]
    fn only_some_styles_need_a_namespace() {
        let request = |style| String::from_utf8(Api::new(style, "h").namespace_request()).unwrap();
        assert_eq!(request(ApiStyle::Durable), "");
        assert!(request(ApiStyle::Ursula).starts_with("PUT /thalweg-bench "));
        assert!(request(ApiStyle::S2).ends_with("{\"basin\":\"thalweg-bench\"}"));
    }
}
