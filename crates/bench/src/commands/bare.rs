//! The yardstick: reads each request as a server must, answers it at once, stores nothing.
//!
//! It is a tokio `current_thread` runtime with httparse, the plainest thing that people build. What
//! it costs per request is what no server here can be cheaper than without other means.

use crate::failure::Outcome;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const READ_BYTES: usize = 16 << 10;
const HEADERS_MAX: usize = 32;

/// Longest request that it takes; a longer one ends its connection.
const REQUEST_BYTES_MAX: usize = 8 << 20;

const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
const NOTHING: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const APPENDED: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// Prints the address and answers until the process is killed.
pub(super) fn serve(address: SocketAddr) -> Outcome<()> {
    serve_each(address, answer_all)
}

/// Prints the address and gives each connection to `answer`, on one thread.
pub(super) fn serve_each<F>(address: SocketAddr, answer: impl Fn(TcpStream) -> F) -> Outcome<()>
where
    F: Future<Output: Send> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (socket, _) = listener.accept().await?;
            // What breaks one connection is of no concern to the others.
            if socket.set_nodelay(true).is_ok() {
                let answering = answer(socket);
                tokio::spawn(async move { drop(answering.await) });
            }
        }
    })
}

async fn answer_all(mut socket: TcpStream) -> std::io::Result<()> {
    let mut input = Vec::with_capacity(READ_BYTES);
    let mut output = Vec::new();
    loop {
        while let Some((length, answer)) = request(&input) {
            input.drain(..length);
            output.extend_from_slice(answer);
        }
        socket.write_all(&output).await?;
        output.clear();
        input.reserve(READ_BYTES);
        if input.len() > REQUEST_BYTES_MAX || socket.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// The length of the request at the start of `input` and its answer; `None` until it is whole.
fn request(input: &[u8]) -> Option<(usize, &'static [u8])> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let (_, length) = lengths(&mut request, input)?;
    let answer = match request.method {
        Some("PUT") => CREATED,
        Some("GET") => NOTHING,
        _ => APPENDED,
    };
    Some((length, answer))
}

/// Parses the request at the start of `input`: the lengths of its head and of all of it; `None` until it is whole.
pub(super) fn lengths<'b>(
    request: &mut httparse::Request<'_, 'b>,
    input: &'b [u8],
) -> Option<(usize, usize)> {
    let httparse::Status::Complete(head) = request.parse(input).ok()? else { return None };
    let mut length = head;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            length += std::str::from_utf8(header.value).ok()?.parse::<usize>().ok()?;
        }
    }
    (input.len() >= length).then_some((head, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_when_it_is_whole() {
        let text = b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPUT /y";
        let length = text.len() - 6;
        assert_eq!(request(text), Some((length, APPENDED)));
        assert_eq!(request(&text[..length - 1]), None);
        assert_eq!(request(b"PUT /x HTTP/1.1\r\n\r\n"), Some((19, CREATED)));
    }
}
