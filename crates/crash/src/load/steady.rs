//! A writer that does nothing but append small records to a stream of its own, and measures how long it waits between two
//! acknowledgements.
//!
//! It behaves as a good client does. What is refused for now, and what got no answer, is repeated with the same producer
//! fields, at another node if its own fell.

use super::appends::{Sent, begin, settle};
use super::{REFUSAL_PAUSE, Round};
use crate::doors::Place;
use crate::http::{Answer, Connection, request};
use crate::ledger::{Fate, Stream, Style, lock};
use crate::record::Kind;
use crate::report::add;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The owners of these streams have numbers from here on.
const OWNERS_FROM: u32 = 10_000;

/// How long a writer waited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    /// The door at which it began.
    pub(crate) door: usize,
    /// The longest time between two acknowledgements, or from the last one to its end.
    pub(crate) longest: Duration,
}

/// Appends until told to stop or until all servers are gone.
pub(super) fn run(round: &Round<'_>, index: u32) {
    let mut place = round.doors.place(index);
    let door = place.door;
    let mut connection = None;
    let (mut acknowledged_at, mut longest) = (None::<Instant>, Duration::ZERO);
    let owner = OWNERS_FROM + index;
    let mut old = owned(round, owner).into_iter();
    let stream = round.ledger.add(|id| {
        let path = format!("/steady/{index}/{id}");
        let mut stream = Stream::new(id, path, Kind::Small, Style::Producer);
        stream.owner = Some(owner);
        stream
    });
    let mut deleting = old.next();
    while round.is_running() {
        let Some(here) = round.leave(&mut connection, place) else { break };
        place = here;
        let result =
            open(round, &mut place, &mut connection).and_then(|connection| match &deleting {
                Some(old) => delete(round, connection, old).map(|()| false),
                None => step(round, connection, &stream),
            });
        match result {
            Ok(true) => {
                let waited = acknowledged_at.map_or(Duration::ZERO, |at| at.elapsed());
                longest = longest.max(waited);
                acknowledged_at = Some(Instant::now());
            }
            Ok(false) if deleting.as_ref().is_some_and(|old| lock(old).deleted == Fate::Done) => {
                deleting = old.next();
            }
            Ok(false) => {}
            Err(error) => {
                connection = None;
                let Some(next) = round.after_break(place, &error) else { break };
                place = next;
            }
        }
    }
    let waited = acknowledged_at.map_or(Duration::ZERO, |at| at.elapsed());
    let longest = longest.max(waited);
    lock(&round.gaps).push(Gap { door, longest });
}

type Shared = Arc<Mutex<Stream>>;

/// What the writer of an earlier round left behind and may be deleted.
fn owned(round: &Round<'_>, owner: u32) -> Vec<Shared> {
    let mut all = round.ledger.all();
    all.retain(|stream| {
        let stream = lock(stream);
        stream.owner == Some(owner) && stream.deleted != Fate::Done && !stream.may_change
    });
    all
}

fn open<'c>(
    round: &Round<'_>,
    place: &mut Place,
    connection: &'c mut Option<Connection>,
) -> io::Result<&'c mut Connection> {
    if connection.is_none() {
        *connection = Some(round.doors.open(place)?);
    }
    Ok(connection.as_mut().expect("opened above"))
}

/// Creates the stream or appends to it; whether an append is acknowledged.
fn step(round: &Round<'_>, connection: &mut Connection, stream: &Shared) -> io::Result<bool> {
    if lock(stream).created != Fate::Done {
        return create(round, connection, stream).map(|()| false);
    }
    let (sent, bytes) = {
        let mut stream = lock(stream);
        let writer = &mut stream.writers[0];
        let pending = writer.pending.first().copied();
        let number = pending.unwrap_or(writer.next);
        if pending.is_none() {
            writer.pending.push(number);
            writer.next += 1;
        }
        let sent = Sent { id: stream.append_id(0, number), is_repeat: pending.is_some() };
        (sent, begin(round, &mut stream, sent, false))
    };
    let answer = connection.call(&bytes).inspect_err(|_| {
        add(&round.report.unknown, 1);
        lock(stream).unanswered(Some(sent.id));
    })?;
    let mut stream = lock(stream);
    let settled = settle(round, &mut stream, sent, &answer);
    settled.unwrap_or_else(|what| round.report.violation(what));
    if !answer.is_success() {
        std::thread::sleep(REFUSAL_PAUSE);
    }
    Ok(stream.writers[0].pending.is_empty())
}

fn create(round: &Round<'_>, connection: &mut Connection, stream: &Shared) -> io::Result<()> {
    let request = {
        let mut stream = lock(stream);
        stream.created = Fate::Unknown;
        request("PUT", &stream.path, &[("Content-Type", stream.kind.media_type())], b"")
    };
    let answer = connection.call(&request).inspect_err(|_| lock(stream).unanswered(None))?;
    match answer.status {
        200 | 201 => {
            lock(stream).created = Fate::Done;
            add(&round.report.lifecycle, 1);
        }
        _ => refused(round, stream, &answer),
    }
    Ok(())
}

fn delete(round: &Round<'_>, connection: &mut Connection, stream: &Shared) -> io::Result<()> {
    let (request, is_repeat) = {
        let mut stream = lock(stream);
        let is_repeat = stream.deleted == Fate::Unknown;
        stream.deleted = Fate::Unknown;
        (request("DELETE", &stream.path, &[], b""), is_repeat)
    };
    let answer = connection.call(&request).inspect_err(|_| lock(stream).unanswered(None))?;
    match answer.status {
        204 => {
            lock(stream).deleted = Fate::Done;
            add(&round.report.lifecycle, 1);
        }
        404 | 410 if is_repeat => lock(stream).deleted = Fate::Done,
        _ => refused(round, stream, &answer),
    }
    Ok(())
}

fn refused(round: &Round<'_>, stream: &Shared, answer: &Answer) {
    let mut stream = lock(stream);
    if answer.code() == "write-unknown" {
        stream.unanswered(None);
    }
    if !round.is_refusal(answer) {
        let what = format!("{}: a create or delete was answered {}", stream.path, answer.shown());
        round.report.violation(what);
    }
    add(&round.report.refused, 1);
    std::thread::sleep(REFUSAL_PAUSE);
}
