//! Appends to a running server, one after the other on one connection.

use protocol::client::{AnswerBody, parse_answer};
use std::io::{self, Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use thalweg_counts::requests::Template;

/// A server under an instrument is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest answer to a create or an append.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Streams, so that more than one group has work.
const STREAM_COUNT: u64 = 16;

/// Creates some streams and appends to them in turns.
///
/// # Errors
/// If the server refuses anything, or the connection breaks.
pub(crate) fn append_serially(address: SocketAddr, operations: u64) -> io::Result<()> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let media_type = "application/octet-stream";
    let mut creates = Template::create(media_type);
    for stream in 0..STREAM_COUNT {
        exchange(&mut socket, creates.of(stream))?;
    }
    let mut appends = Template::append(media_type);
    for operation in 0..operations {
        exchange(&mut socket, appends.of(operation % STREAM_COUNT))?;
    }
    Ok(())
}

fn exchange(socket: &mut TcpStream, request: &[u8]) -> io::Result<()> {
    socket.write_all(request)?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let mut received = 0;
    loop {
        match socket.read(&mut answer[received..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received += count,
        }
        let head = parse_answer(&answer[..received], false).map_err(|error| {
            Error::other(format!("the server's answer cannot be read: {error:?}"))
        })?;
        let Some(head) = head else { continue };
        if !(200..300).contains(&head.status) {
            return Err(Error::other(format!("the server answered {}", head.status)));
        }
        let body_bytes = match head.body {
            AnswerBody::Length(length) => length,
            AnswerBody::Chunked | AnswerBody::UntilClose => {
                return Err(Error::other("an answer without a length"));
            }
        };
        if received as u64 == head.head_bytes as u64 + body_bytes {
            return Ok(());
        }
    }
}
