//! Connections that read and remember what they were given.

use super::Round;
use crate::doors::Place;
use crate::http::{Connection, offset, request};
use crate::ledger::{Fate, Stream, lock};
use crate::numbers::Numbers;
use crate::record::Kind;
use crate::report::add;
use base64::prelude::{BASE64_STANDARD, Engine};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// When there is nothing to read yet.
const IDLE_PAUSE: Duration = Duration::from_millis(2);

/// Reads until told to stop or until the server is gone.
pub(super) fn run(round: &Round<'_>, index: u32) {
    let mut numbers = round.numbers(1000 + u64::from(index));
    let (mut connection, mut place) = (None, round.doors.place(index));
    while round.is_running() {
        let streams = round.ledger.all();
        let stream = streams.iter().rev().take(120).nth(numbers.below(120));
        let Some(stream) = stream else {
            std::thread::sleep(IDLE_PAUSE);
            continue;
        };
        let Err(error) = read_one((round, &mut place), &mut connection, stream, &mut numbers)
        else {
            continue;
        };
        connection = None;
        if round.doors.next(place).is_err() {
            match why_broken_off(round, place, stream, &error) {
                Ok(()) => add(&round.report.cut_by_delete, 1),
                Err(_) if round.doors.next(place).is_ok() => {}
                Err(what) => round.report.violation(format!("a reader: {what}")),
            }
        }
        match round.doors.next(place) {
            Ok(None) => return,
            Ok(Some(next)) => place = next,
            Err(()) => {}
        }
    }
}

/// An answer that has begun can only be broken off when its stream is deleted, for it has a length. The next request
/// says so. Anything else that breaks is a contradiction.
fn why_broken_off(
    round: &Round<'_>,
    mut place: Place,
    stream: &Arc<Mutex<Stream>>,
    error: &io::Error,
) -> Result<(), String> {
    let (path, is_deleted, is_replaced) = {
        let stream = lock(stream);
        (stream.path.clone(), stream.deleted != Fate::No, stream.is_replaced)
    };
    // What was read may be another stream's, of another type.
    if is_replaced {
        return Ok(());
    }
    let is_cut = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
    if !is_cut || !is_deleted {
        return Err(format!("{path}: {error}"));
    }
    let next = round
        .doors
        .open(&mut place)
        .and_then(|mut connection| connection.call(&request("HEAD", &path, &[], b"")));
    match next {
        Ok(answer) if matches!(answer.status, 404 | 410) => Ok(()),
        // Another stream may have the path by now.
        Ok(_) if lock(stream).is_replaced => Ok(()),
        Ok(answer) => Err(format!("{path}: {error}, and then {}", answer.shown())),
        Err(next) => Err(format!("{path}: {error}, and then {next}")),
    }
}

fn read_one(
    (round, place): (&Round<'_>, &mut Place),
    connection: &mut Option<Connection>,
    stream: &Arc<Mutex<Stream>>,
    numbers: &mut Numbers,
) -> io::Result<()> {
    let (path, kind, from, is_there) = {
        let stream = lock(stream);
        let mut ends = stream.ends();
        ends.push(stream.fork.map_or(0, |fork| fork.at));
        let from = if numbers.chance(30) { 0 } else { *numbers.pick(&ends) };
        (
            stream.path.clone(),
            stream.kind,
            from,
            stream.created == Fate::Done && !stream.is_replaced,
        )
    };
    if !is_there {
        return Ok(());
    }
    if numbers.chance(25) {
        let mut own = round.doors.open(place)?;
        return follow(&mut own, stream, &path, from);
    }
    if connection.is_none() {
        *connection = Some(round.doors.open(place)?);
    }
    let connection = connection.as_mut().expect("opened above");
    let is_live = numbers.chance(30);
    pages(connection, stream, (&path, kind, from), is_live)
}

/// Catches up from an offset, and may then wait once.
fn pages(
    connection: &mut Connection,
    stream: &Arc<Mutex<Stream>>,
    (path, kind, mut from): (&str, Kind, u64),
    is_live: bool,
) -> io::Result<()> {
    let mut live = "";
    loop {
        let target = format!("{path}?offset={}{live}", offset(from));
        let answer = connection.call(&request("GET", &target, &[], b""))?;
        // It may be deleted by now. The check after the restart reports refused reads and damage.
        let Some(next) = answer.next.filter(|_| answer.is_success()) else { return Ok(()) };
        if answer.status == 200 {
            let stored = kind.stored(&answer.body).map_err(io::Error::other)?;
            remember(stream, from, &stored, next)?;
        }
        if answer.closed {
            lock(stream).closed = Fate::Done;
            return Ok(());
        }
        if answer.up_to_date || answer.status == 204 {
            if !is_live || !live.is_empty() {
                return Ok(());
            }
            live = "&live=long-poll";
        }
        from = next;
    }
}

/// Follows by events until the server ends the answer or there were some.
fn follow(
    connection: &mut Connection,
    stream: &Arc<Mutex<Stream>>,
    path: &str,
    mut from: u64,
) -> io::Result<()> {
    let kind = lock(stream).kind;
    let target = format!("{path}?offset={}&live=sse", offset(from));
    let mut data: Vec<u8> = Vec::new();
    let mut wrong = Ok(());
    let mut left = 20_u32;
    connection.events(&request("GET", &target, &[], b""), |event| {
        if event.kind == "data" {
            data = event.data;
            return true;
        }
        left -= 1;
        let step = control(&event.data, kind, std::mem::take(&mut data)).and_then(|control| {
            remember(stream, from, &control.stored, control.next)?;
            from = control.next;
            if control.closed {
                lock(stream).closed = Fate::Done;
            }
            Ok(!control.closed)
        });
        match step {
            Ok(is_open) => is_open && left > 0,
            Err(error) => {
                wrong = Err(error);
                false
            }
        }
    })?;
    wrong
}

/// What a control event and the data before it say.
struct Control {
    stored: Vec<u8>,
    next: u64,
    closed: bool,
}

fn control(event: &[u8], kind: Kind, data: Vec<u8>) -> io::Result<Control> {
    let value: serde_json::Value = serde_json::from_slice(event)?;
    let next = value["streamNextOffset"].as_str();
    let next = next.and_then(|text| protocol::offset::parse(text.as_bytes()).ok());
    let next = next.map(|next| next.get());
    let next = next.ok_or_else(|| io::Error::other("a control event without an offset"))?;
    let stored = match kind {
        Kind::Json if data.is_empty() => Vec::new(),
        Kind::Json => kind.stored(&data).map_err(io::Error::other)?,
        Kind::Text | Kind::Small => data,
        Kind::Binary => base64(&data).ok_or_else(|| io::Error::other("broken base64"))?,
    };
    Ok(Control { stored, next, closed: value["streamClosed"] == true })
}

fn remember(stream: &Arc<Mutex<Stream>>, from: u64, stored: &[u8], next: u64) -> io::Result<()> {
    let mut stream = lock(stream);
    if next != from + stored.len() as u64 {
        let (path, count) = (&stream.path, stored.len());
        let what = format!("{path}: {count} bytes from {from} on are said to end at {next}");
        return Err(io::Error::other(what));
    }
    stream.saw(from, stored);
    Ok(())
}

/// Decodes padded base64; line breaks are allowed.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    BASE64_STANDARD.decode(symbols).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::Doors;
    use crate::ledger::{Ledger, Style};
    use crate::report::Report;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    /// A server that answers the requests of one connection each with these bytes, and closes.
    fn serving(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
                socket.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na part";
    const GONE: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    const THERE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

    /// What a reader says whose answer is cut by a server with these answers.
    fn judged(deleted: Fate, answers: &'static [&'static str]) -> Result<(), String> {
        let (ledger, report) = (Ledger::new(1), Report::default());
        let address = serving(answers);
        let round = Round::new(&ledger, &report, Doors::new([address]), 0);
        let make = |id| Stream::new(id, "/a".to_owned(), Kind::Text, Style::Plain);
        let stream = ledger.add(make);
        lock(&stream).deleted = deleted;
        let mut connection = Connection::open(address).unwrap();
        let error = connection.call(&request("GET", "/a", &[], b"")).expect_err("it is cut");
        why_broken_off(&round, round.doors.place(0), &stream, &error)
    }

    #[test]
    fn an_answer_may_be_broken_off_if_its_stream_is_deleted_and_the_next_one_says_so() {
        assert_eq!(judged(Fate::Done, &[CUT, GONE]), Ok(()));
        assert_eq!(judged(Fate::Unknown, &[CUT, GONE]), Ok(()));
        assert!(judged(Fate::Unknown, &[CUT, THERE]).unwrap_err().contains("and then 200"));
        assert!(judged(Fate::No, &[CUT]).is_err());
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        assert_eq!(base64(b"Zm9vYmFy").unwrap(), b"foobar");
        assert_eq!(base64(b"Zm9vYg==").unwrap(), b"foob");
        assert_eq!(base64(b"Zm9vYg="), None);
        assert_eq!(base64(b"!!!!"), None);
    }

    #[test]
    fn a_control_event_says_where_to_continue() {
        let event =
            br#"{"streamNextOffset":"0000000000000004_0000000000000000","streamClosed":true}"#;
        let control = control(event, Kind::Json, b"[1,2]".to_vec()).unwrap();
        assert_eq!(
            (control.stored.as_slice(), control.next, control.closed),
            (&b"1,2,"[..], 4, true)
        );
    }
}
