//! After a restart: everything that was acknowledged is there, byte for byte, once, in order.
//!
//! No load runs meanwhile. Each stream is read from its first byte to its last and compared with the
//! ledger. Some are then asked again what was answered before: the repeat of a producer's append, of a
//! `Stream-Seq`, an append to a closed stream. None of these may change anything.

use crate::http::{Answer, Connection, offset, request};
use crate::ledger::{Fate, Held, Ledger, Stream, Style, lock};
use crate::load::render;
use crate::numbers::Numbers;
use crate::record::{Kind, append};
use crate::report::{Report, add};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const THREAD_COUNT: usize = 6;
/// How long a start with a smaller log than before may be busy with making room.
const OVERLOAD_MAX: Duration = Duration::from_secs(20);

/// What may be found beside what was acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed {
    /// Streams may answer that they are damaged, because this file is.
    pub(crate) damaged_file: Option<String>,
    /// Nothing may be written: the disk is full.
    pub(crate) read_only: bool,
    /// What is unknown stays so: only a restart settles it.
    pub(crate) unsettled: bool,
}

/// Streams that were damaged.
pub(crate) type Damaged = BTreeSet<u32>;

/// One verification.
#[derive(Debug)]
pub(crate) struct Verification<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) report: &'a Report,
    pub(crate) address: SocketAddr,
    pub(crate) number: u64,
    pub(crate) allowed: Allowed,
}

/// All of a stream.
struct Whole {
    content: Vec<u8>,
    is_closed: bool,
}

impl Verification<'_> {
    /// Compares all streams. Contradictions are in the report.
    pub(crate) fn run(&self) -> Damaged {
        let streams = self.ledger.all();
        let damaged = Mutex::new(Damaged::new());
        std::thread::scope(|scope| {
            for thread in 0..THREAD_COUNT {
                let (streams, damaged) = (&streams, &damaged);
                scope.spawn(move || {
                    let mine = streams.iter().skip(thread).step_by(THREAD_COUNT);
                    self.run_part(mine, thread as u64, damaged);
                });
            }
        });
        damaged.into_inner().unwrap_or_default()
    }

    fn run_part<'s>(
        &self,
        streams: impl Iterator<Item = &'s Arc<Mutex<Stream>>>,
        thread: u64,
        damaged: &Mutex<Damaged>,
    ) {
        let mut numbers = Numbers::of(self.ledger.seed, &[self.number, 2000 + thread]);
        let mut connection = match Connection::open(self.address) {
            Ok(connection) => connection,
            Err(error) => return self.report.violation(format!("verification: {error}")),
        };
        for stream in streams {
            let mut stream = lock(stream);
            let is_gone = stream.created == Fate::No && stream.deleted == Fate::No;
            if is_gone || stream.is_replaced {
                continue;
            }
            match self.check(&mut connection, &mut stream, &mut numbers) {
                Ok(true) => {}
                Ok(false) => drop(lock(damaged).insert(stream.id)),
                Err(what) => {
                    let Stream { path, kind, style, id, fork, .. } = &*stream;
                    let about = format!("{path} (number {id}, {kind:?}, {style:?}, fork {fork:?})");
                    self.report.violation(format!("{about}: {what}"));
                    return;
                }
            }
        }
    }

    /// Whether the stream is undamaged.
    fn check(
        &self,
        connection: &mut Connection,
        stream: &mut Stream,
        numbers: &mut Numbers,
    ) -> Result<bool, String> {
        let whole = match self.read(connection, stream)? {
            Ok(whole) => whole,
            Err((at, answer)) => return self.check_refusal(stream, at, &answer),
        };
        if stream.deleted == Fate::Done {
            return Err(format!("it was deleted and holds {} bytes", whole.content.len()));
        }
        let Whole { content, is_closed } = &whole;
        let held = Held { content, is_closed: *is_closed, is_final: !self.allowed.unsettled };
        let checked = stream.check(self.ledger, held)?;
        stream.created = Fate::Done;
        self.report.checked(checked);
        if numbers.chance(20) {
            if let Err(what) = check_parts(connection, stream, &whole.content, numbers) {
                // What could be read a moment ago may be damaged by now; then the next answer says so.
                *connection = Connection::open(self.address).map_err(|error| error.to_string())?;
                return match self.read(connection, stream)? {
                    Err((at, answer)) if self.allowed.damaged_file.is_some() => {
                        self.check_refusal(stream, at, &answer)
                    }
                    _ => Err(what),
                };
            }
            if !self.allowed.read_only {
                self.probe(connection, stream, numbers)?;
                check_tail(connection, stream, &whole)?;
            }
        }
        Ok(true)
    }

    /// Reads a whole stream, or what refuses that.
    fn read(
        &self,
        connection: &mut Connection,
        stream: &Stream,
    ) -> Result<Result<Whole, (u64, Answer)>, String> {
        let mut read = read_whole(connection, &stream.path, stream.kind);
        if read.is_err() && self.allowed.damaged_file.is_some() {
            // An answer that meets damage on its way can only be broken off; the next one says why.
            add(&self.report.broken_off, 1);
            *connection = Connection::open(self.address).map_err(|error| error.to_string())?;
            read = read_whole(connection, &stream.path, stream.kind);
            read = read.map_err(|error| {
                io::Error::other(format!(
                    "damage breaks off every answer and none says why: {error}"
                ))
            });
        }
        read.map_err(|error| error.to_string())
    }

    fn check_refusal(&self, stream: &mut Stream, at: u64, answer: &Answer) -> Result<bool, String> {
        match answer.status {
            404 | 410 if stream.deleted != Fate::No => {
                stream.deleted = Fate::Done;
                add(&self.report.streams_verified, 1);
                Ok(true)
            }
            // 410 is the answer of a stream that had the path before and whose bytes a fork reads.
            404 | 410 if stream.created == Fate::Unknown => Ok(true),
            500 if answer.code() == "stream-damaged" => {
                let Some(file) = &self.allowed.damaged_file else {
                    return Err(format!("unexpected damage: {}", answer.shown()));
                };
                let is_named = String::from_utf8_lossy(&answer.body).contains(file.as_str());
                add(&self.report.damaged, 1);
                add(&self.report.unnamed, u64::from(!is_named));
                Ok(false)
            }
            _ => {
                let Stream { created, deleted, .. } = stream;
                let known = format!("from {at} on; created: {created:?}, deleted: {deleted:?}");
                Err(format!("LOST ({known}): {}", answer.shown()))
            }
        }
    }

    /// Repeats what was answered before; nothing may change by it.
    fn probe(
        &self,
        connection: &mut Connection,
        stream: &Stream,
        numbers: &mut Numbers,
    ) -> Result<(), String> {
        if stream.closed == Fate::Done {
            let fields = [("Content-Type", stream.kind.media_type())];
            let request = request("POST", &stream.path, &fields, b"1");
            return expect(connection, &request, 409, "stream-closed");
        }
        let writer = match stream.style {
            Style::Plain => return Ok(()),
            Style::Producer => numbers.below(stream.writers.len()),
            Style::Sequenced => 0,
        };
        let state = &stream.writers[writer];
        let writer = u32::try_from(writer).expect("two writers");
        let last = stream.last_stored(writer).filter(|last| *last >= state.epoch_start);
        let last = last.filter(|last| !(stream.has_first && writer == 0 && *last == 0));
        let Some(last) = last else { return Ok(()) };
        let id = stream.append_id(writer, last);
        let body = append(stream.kind, id, self.ledger.seed).body;
        let request = render(stream, id, &body, false);
        add(&self.report.repeats, 1);
        match stream.style {
            Style::Sequenced => expect(connection, &request, 409, "stream-seq-conflict"),
            _ => expect(connection, &request, 204, ""),
        }
    }
}

fn expect(
    connection: &mut Connection,
    request: &[u8],
    status: u16,
    code: &str,
) -> Result<(), String> {
    let deadline = Instant::now() + OVERLOAD_MAX;
    let mut answer = connection.call(request).map_err(|error| error.to_string())?;
    while answer.code() == "overloaded" && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        answer = connection.call(request).map_err(|error| error.to_string())?;
    }
    if (answer.status, answer.code().as_str()) == (status, code) {
        return Ok(());
    }
    let head = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(head);
    Err(format!("{line} should be answered {status} {code}, and is {}", answer.shown()))
}

/// Everything from the first byte on, or where it is refused and how.
fn read_whole(
    connection: &mut Connection,
    path: &str,
    kind: Kind,
) -> io::Result<Result<Whole, (u64, Answer)>> {
    let mut content = Vec::new();
    loop {
        let target = format!("{path}?offset={}", offset(content.len() as u64));
        let answer = connection.call(&request("GET", &target, &[], b""))?;
        if answer.status != 200 {
            return Ok(Err((content.len() as u64, answer)));
        }
        content.extend(kind.stored(&answer.body).map_err(io::Error::other)?);
        if answer.next != Some(content.len() as u64) {
            let (next, length) = (answer.next, content.len());
            let what = format!("{length} bytes are said to end at {next:?}");
            return Err(io::Error::other(what));
        }
        if answer.up_to_date {
            return Ok(Ok(Whole { content, is_closed: answer.closed }));
        }
    }
}

/// Reads from the ends of some appends on.
fn check_parts(
    connection: &mut Connection,
    stream: &Stream,
    content: &[u8],
    numbers: &mut Numbers,
) -> Result<(), String> {
    let ends = stream.ends();
    if ends.is_empty() {
        return Ok(());
    }
    for _ in 0..2 {
        let from = *numbers.pick(&ends);
        let target = format!("{}?offset={}", stream.path, offset(from));
        let answer = connection.call(&request("GET", &target, &[], b""));
        let answer = answer.map_err(|error| error.to_string())?;
        let part = stream.kind.stored(&answer.body)?;
        let rest = usize::try_from(from).ok().and_then(|from| content.get(from..));
        if answer.status != 200 || !rest.is_some_and(|rest| rest.starts_with(&part)) {
            return Err(format!("from {from} on it reads otherwise than from its start"));
        }
    }
    Ok(())
}

/// The tail is where the content ends.
fn check_tail(connection: &mut Connection, stream: &Stream, whole: &Whole) -> Result<(), String> {
    let answer = connection.call(&request("HEAD", &stream.path, &[], b""));
    let answer = answer.map_err(|error| error.to_string())?;
    let found = (answer.status, answer.next, answer.closed);
    let wanted = (200, Some(whole.content.len() as u64), whole.is_closed);
    if found == wanted {
        return Ok(());
    }
    Err(format!("after repeats its status, tail and close are {found:?} and not {wanted:?}"))
}
