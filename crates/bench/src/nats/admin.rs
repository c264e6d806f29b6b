//! What is asked of NATS before and after a measurement, one request at a time.

use super::frame::Frame;
use super::{STREAM, greeting};
use crate::failure::{Doing, Failure, Outcome};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Bounds of one answer to a read; the server cuts off a client that takes too much at once.
const BATCH_MESSAGES: u32 = 1000;
const BATCH_BYTES: u32 = 8 << 20;

/// What one read of the socket takes at most.
const PIECE_BYTES: usize = 256 << 10;

/// A connection that waits for each answer. Its inbox has the number 0.
#[derive(Debug)]
struct Session {
    socket: TcpStream,
    input: Vec<u8>,
    /// Where reads of the socket go.
    piece: Vec<u8>,
}

/// Makes the JetStream stream of all subjects, on disk.
pub(crate) fn make_stream(address: SocketAddr) -> Outcome<()> {
    let mut session = Session::open(address)?;
    let settings = format!(
        "{{\"name\":\"{STREAM}\",\"subjects\":[\"{STREAM}.*\"],\"storage\":\"file\",\
         \"num_replicas\":1,\"allow_direct\":true}}"
    );
    session.ask(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &settings)?;
    let (_, answer) = session.next_message()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    if text.contains("\"error\"") || !text.contains("\"config\"") {
        return Err(Failure::new(format!("NATS made no stream: {text:.300}")));
    }
    Ok(())
}

/// All payloads of the subject of `stream`, in order.
pub(crate) fn read_subject(address: SocketAddr, stream: &str) -> Outcome<Vec<u8>> {
    let mut session = Session::open(address)?;
    let mut data = Vec::new();
    let mut next = 1;
    loop {
        let asked = format!(
            "{{\"seq\":{next},\"batch\":{BATCH_MESSAGES},\"max_bytes\":{BATCH_BYTES},\
             \"next_by_subj\":\"{STREAM}.{stream}\"}}"
        );
        session.ask(&format!("$JS.API.DIRECT.GET.{STREAM}"), &asked)?;
        let before = next;
        loop {
            let (headers, payload) = session.next_message()?;
            let Some(sequence) = header(&headers, "Nats-Sequence") else {
                // The end of this answer, or nothing from there on.
                break is_end(&headers)?;
            };
            data.extend_from_slice(&payload);
            next = 1 + sequence.parse::<u64>().doing(|| "a sequence of NATS".to_owned())?;
        }
        if next == before {
            return Ok(data);
        }
    }
}

/// Refuses what is not the end of an answer.
fn is_end(headers: &str) -> Outcome<()> {
    let status = headers.split_ascii_whitespace().nth(1);
    if matches!(status, Some("204" | "404")) {
        return Ok(());
    }
    Err(Failure::new(format!("NATS answered a read: {headers:.200}")))
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

impl Session {
    fn open(address: SocketAddr) -> Outcome<Self> {
        let mut socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        socket.write_all(&greeting(0))?;
        Ok(Self { socket, input: Vec::new(), piece: vec![0; PIECE_BYTES] })
    }

    fn ask(&mut self, subject: &str, payload: &str) -> Outcome<()> {
        let length = payload.len();
        let request = format!("PUB {subject} _B.0.x {length}\r\n{payload}\r\n");
        Ok(self.socket.write_all(request.as_bytes())?)
    }

    /// The next message, as headers and payload.
    fn next_message(&mut self) -> Outcome<(String, Vec<u8>)> {
        loop {
            while let Some((frame, length)) = Frame::parse(&self.input)? {
                let found = match frame {
                    Frame::Message { headers, payload, .. } => {
                        Some((headers.to_owned(), payload.to_vec()))
                    }
                    Frame::Error(text) => return Err(Failure::new(format!("NATS: {text}"))),
                    Frame::Ping => {
                        self.socket.write_all(b"PONG\r\n")?;
                        None
                    }
                    Frame::Other => None,
                };
                self.input.drain(..length);
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            match self.socket.read(&mut self.piece).doing(|| "an answer of NATS".to_owned())? {
                0 => return Err(Failure::new("NATS ended the connection")),
                count => self.input.extend_from_slice(&self.piece[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_tell_the_sequence_and_the_end() {
        let headers = "NATS/1.0\r\nNats-Stream: bench\r\nNats-Sequence: 17\r\n\r\n";
        assert_eq!(header(headers, "nats-sequence"), Some("17"));
        assert!(is_end("NATS/1.0 204 EOB\r\n\r\n").is_ok());
        assert!(is_end("NATS/1.0 404 Message Not Found\r\n\r\n").is_ok());
        assert!(is_end(headers).is_err() && is_end("NATS/1.0 503\r\n\r\n").is_err());
    }
}
