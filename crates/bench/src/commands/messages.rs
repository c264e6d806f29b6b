//! JSON messages with keys, packed and pipelined, as a producer of many records sends them.
//!
//! # What it does
//! A key chooses one of N streams, so that the messages of a key stay in order. Each stream belongs to
//! one connection. It draws keys at random and collects the messages of each stream. When a stream
//! has enough of them for a body, they are appended: a JSON array is one append, all or none. A
//! connection has several appends in flight, up to the allowed number of unacknowledged messages.
//!
//! # Alike or not
//! PolarStreams compresses, and published its rates with payloads that repeat. Messages are distinct
//! here: each contains its stream and its place there. So reading a stream back proves that nothing is
//! missing, repeated, changed or out of order. With `--identical` all messages are the same bytes, and
//! reading back proves only their number.

use super::{Bench, streams};
use crate::api::{Api, Append, Batch, Holds, stream_name};
use crate::cli::Messages;
use crate::failure::{Failure, Outcome};
use crate::load::exchange::{Exchanged, Plan, Source};
use crate::load::pages::Collector;
use crate::payload::{Payloads, mixed};
use crate::report::Run;
use crate::server::Server;
use std::time::Duration;

const PREFIX: &str = "k";

/// Keys of each stream.
const KEYS_PER_STREAM: u64 = 100;

/// The text before and behind the payload of a message: members in the order of their names, without
/// blanks. A server that takes messages apart writes them so.
const HEAD: &[u8] = b"{\"amount\":1250,\"data\":\"";
const FOOT: &[u8] = b"\",\"kind\":\"order\"}";

pub(super) fn run(bench: &Bench, asked: &Messages) -> Outcome<Run> {
    check(asked)?;
    let mut server = bench.server()?;
    server.api.holds = Holds::Messages;
    let mut run = bench.start_run("messages", &server);
    describe(asked, &mut run);
    streams::create(&server, PREFIX, asked.streams, (asked.connections, 4))?;
    let mut packer = Packer::new(&server, asked);
    let depth = (asked.in_flight / asked.batch).max(1);
    let duration = Some(Duration::from_secs_f64(asked.seconds));
    let plan = Plan { depth, rate: None, duration };
    let load = (asked.connections, plan);
    let (exchanged, reading) =
        streams::measure(&server, &mut packer, load, asked.warm_up_seconds, "messages")?;
    report(&exchanged, asked, &mut run);
    reading.report(exchanged.acknowledged * asked.batch as u64, "message", &mut run);
    if bench.stores() {
        packer.verify(&server, &mut run)?;
    }
    Ok(run)
}

fn check(asked: &Messages) -> Outcome<()> {
    let connections = asked.connections as u64;
    if connections == 0 || asked.streams == 0 || !asked.streams.is_multiple_of(connections) {
        return Err(Failure::new(
            "--streams must be a multiple of --connections: each has its own",
        ));
    }
    if asked.batch == 0 || asked.message_bytes < MESSAGE_BYTES_MIN {
        return Err(Failure::new(format!(
            "an append needs a message, and a message {MESSAGE_BYTES_MIN} bytes"
        )));
    }
    Ok(())
}

fn describe(asked: &Messages, run: &mut Run) {
    run.setting("streams", asked.streams);
    run.setting("connections", asked.connections);
    run.setting("batch", asked.batch);
    run.setting("in-flight", asked.in_flight);
    run.setting("message-bytes", asked.message_bytes);
    run.setting("identical", asked.identical);
    run.setting("warm-up-seconds", asked.warm_up_seconds);
    run.setting("seconds", asked.seconds);
}

fn report(exchanged: &Exchanged, asked: &Messages, run: &mut Run) {
    let batch = asked.batch as f64;
    run.figure("messages acknowledged", exchanged.acknowledged as f64 * batch, "");
    run.figure("messages per second", exchanged.rate() * batch, "1/s");
    let mib = asked.message_bytes as f64 / (1 << 20) as f64;
    run.figure("bytes per second", exchanged.rate() * batch * mib, "MiB/s");
    streams::report(exchanged, "append", run);
}

const MESSAGE_BYTES_MIN: usize = HEAD.len() + FOOT.len() + crate::payload::NUMBER_BYTES;

/// Makes messages of one length from payloads.
#[derive(Debug)]
struct Forms {
    payloads: Payloads,
    identical: bool,
}

impl Forms {
    fn new(message_bytes: usize, identical: bool) -> Self {
        let payloads = Payloads::new(message_bytes - HEAD.len() - FOOT.len());
        Self { payloads, identical }
    }

    fn put(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(HEAD);
        self.payloads.put(if self.identical { 0 } else { number }, out);
        out.extend_from_slice(FOOT);
    }
}

/// Packs messages of one stream into appends.
#[derive(Debug)]
struct Packer {
    api: Api,
    forms: Forms,
    message_bytes: usize,
    streams: u64,
    connections: u64,
    batch: usize,
    /// Keys that each connection has drawn.
    drawn: Vec<u64>,
    /// For each stream how many messages wait for others to be packed with.
    waiting: Vec<usize>,
    /// For each stream how many messages were sent.
    sent: Vec<u64>,
    /// For each stream how many were acknowledged.
    acknowledged: Vec<u64>,
    body: Vec<u8>,
}

impl Packer {
    fn new(server: &Server, asked: &Messages) -> Self {
        let per_stream = vec![0; asked.streams as usize];
        Self {
            api: server.api.clone(),
            forms: Forms::new(asked.message_bytes, asked.identical),
            message_bytes: asked.message_bytes,
            streams: asked.streams,
            connections: asked.connections as u64,
            batch: asked.batch,
            drawn: vec![0; asked.connections],
            waiting: vec![0; asked.streams as usize],
            sent: per_stream.clone(),
            acknowledged: per_stream,
            body: Vec::new(),
        }
    }

    /// The stream of the next message of `connection`: that of a key that is as likely as any other
    /// of this connection's.
    fn draw(&mut self, connection: usize) -> usize {
        let drawn = &mut self.drawn[connection];
        *drawn += 1;
        let own_keys = self.streams * KEYS_PER_STREAM / self.connections;
        let random = mixed(*drawn * self.connections + connection as u64);
        let key = connection as u64 + random % own_keys * self.connections;
        (key % self.streams) as usize
    }

    /// The next stream of `connection` that has messages for an append.
    fn pack(&mut self, connection: usize) -> usize {
        loop {
            let stream = self.draw(connection);
            self.waiting[stream] += 1;
            if self.waiting[stream] == self.batch {
                self.waiting[stream] = 0;
                return stream;
            }
        }
    }

    /// Message `at` of `stream`.
    fn number(&self, stream: usize, at: u64) -> u64 {
        stream as u64 + at * self.streams
    }

    /// Reads the streams back and checks that they hold what was acknowledged, in order.
    fn verify(&self, server: &Server, run: &mut Run) -> Outcome<()> {
        let mut collector = Collector::new(server)?;
        let (mut stored, mut missing, mut wrong) = (0, 0, 0);
        let mut message = Vec::new();
        for (stream, acknowledged) in self.acknowledged.iter().enumerate() {
            let data = collector.read_all(&stream_name(PREFIX, stream as u64))?;
            let mut count = 0;
            for found in data.chunks(self.message_bytes) {
                message.clear();
                self.forms.put(self.number(stream, count), &mut message);
                wrong += u64::from(found != message);
                count += 1;
            }
            stored += count;
            missing += acknowledged.saturating_sub(count);
            wrong += count.saturating_sub(self.sent[stream]);
        }
        run.figure("messages read back", stored as f64, "");
        run.check(format!("no acknowledged message is missing ({missing})"), missing == 0);
        run.check(
            format!("nothing is stored twice, changed or out of order ({wrong})"),
            wrong == 0,
        );
        Ok(())
    }
}

impl Source for Packer {
    fn next(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<u64> {
        let stream = self.pack(connection);
        let first = self.sent[stream];
        self.sent[stream] += self.batch as u64;
        self.body.clear();
        for at in first..self.sent[stream] {
            self.forms.put(self.number(stream, at), &mut self.body);
        }
        let batch = Batch { bytes: &self.body, each: self.message_bytes };
        let name = stream_name(PREFIX, stream as u64);
        self.api.put_append(out, Append { connection, stream: &name, producer: None, batch });
        Some(stream as u64)
    }

    fn acknowledged(&mut self, stream: u64) {
        self.acknowledged[stream as usize] += self.batch as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiStyle;

    fn asked() -> Messages {
        Messages {
            streams: 12,
            connections: 3,
            batch: 1,
            in_flight: 64,
            message_bytes: 128,
            identical: false,
            warm_up_seconds: 0.0,
            seconds: 1.0,
        }
    }

    fn packer(identical: bool, batch: usize) -> Packer {
        let mut server = Server::at("127.0.0.1:1", None, ApiStyle::Durable).unwrap();
        server.api.holds = Holds::Messages;
        let asked = Messages { batch, identical, ..asked() };
        check(&asked).unwrap();
        Packer::new(&server, &asked)
    }

    /// The body of the next append of `connection`, and its stream.
    fn next(packer: &mut Packer, connection: usize) -> (u64, String) {
        let mut out = Vec::new();
        let stream = packer.next(connection, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let name = format!("-{PREFIX}-{stream:08} ");
        assert!(text.lines().next().unwrap().contains(&name), "{text}");
        (stream, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    #[test]
    fn an_append_is_an_array_of_messages_of_one_stream() {
        let mut packer = packer(false, 4);
        let mut seen = [0; 12];
        for turn in 0..60 {
            let (stream, body) = next(&mut packer, turn % 3);
            assert_eq!(stream as usize % 3, turn % 3, "a stream belongs to one connection");
            let messages: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
            assert_eq!((messages.len(), body.len()), (4, 4 * 128 + 5));
            for message in messages {
                let data = message["data"].as_str().unwrap();
                let number = packer.forms.payloads.number_of(data.as_bytes());
                assert_eq!(number, Some(stream + 12 * seen[stream as usize]));
                seen[stream as usize] += 1;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "every stream has keys: {seen:?}");
    }

    #[test]
    fn identical_messages_are_alike_everywhere() {
        let mut packer = packer(true, 1);
        let (_, first) = next(&mut packer, 0);
        assert!((0..20).all(|turn| next(&mut packer, turn % 3).1 == first));
    }

    #[test]
    fn what_cannot_be_shared_out_is_refused() {
        assert!(check(&asked()).is_ok());
        assert!(check(&Messages { streams: 10, ..asked() }).is_err());
        assert!(check(&Messages { message_bytes: 20, ..asked() }).is_err());
        assert!(check(&Messages { batch: 0, ..asked() }).is_err());
    }
}
