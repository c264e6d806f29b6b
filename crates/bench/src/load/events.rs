//! A stream followed by server-sent events, with as little work per event as can be.

use super::socket::Socket;
use crate::failure::{Failure, Outcome};
use crate::payload::number_in;
use memchr::memchr;
use protocol::client::parse_answer;
use protocol::http1::ChunkedDecoder;

/// One follower.
#[derive(Debug)]
pub(crate) struct Follower {
    chunks: ChunkedDecoder,
    has_head: bool,
    /// Decoded bytes that are not a whole line yet.
    lines: Vec<u8>,
    is_data: bool,
    /// Control events so far.
    pub(crate) controls: u64,
    /// The answer was ended as the protocol wants it, with its last chunk.
    pub(crate) is_complete: bool,
}

impl Follower {
    pub(crate) fn new() -> Self {
        Self {
            chunks: ChunkedDecoder::new(u64::MAX),
            has_head: false,
            lines: Vec::new(),
            is_data: false,
            controls: 0,
            is_complete: false,
        }
    }

    /// Takes the input of `socket` and gives the number of each payload to `seen`.
    pub(crate) fn take(&mut self, socket: &mut Socket, seen: impl FnMut(u64)) -> Outcome<()> {
        if !self.has_head && !self.take_head(socket)? {
            return Ok(());
        }
        let step = self.chunks.decode(socket.input(), &mut self.lines);
        let step = step.map_err(|error| Failure::new(format!("broken chunks: {error:?}")))?;
        socket.consume(step.consumed);
        self.is_complete |= step.done;
        self.take_lines(seen);
        Ok(())
    }

    fn take_head(&mut self, socket: &mut Socket) -> Outcome<bool> {
        let head = parse_answer(socket.input(), false);
        let head = head.map_err(|error| Failure::new(error.to_string()))?;
        let Some(head) = head else { return Ok(false) };
        if head.status != 200 {
            return Err(Failure::new(format!("a follower was answered {}", head.status)));
        }
        socket.consume(head.head_bytes);
        self.has_head = true;
        Ok(true)
    }

    fn take_lines(&mut self, mut seen: impl FnMut(u64)) {
        let mut used = 0;
        while let Some(length) = memchr(b'\n', &self.lines[used..]) {
            let line = &self.lines[used..used + length];
            used += length + 1;
            if let Some(kind) = line.strip_prefix(b"event:") {
                self.is_data = kind.trim_ascii() == b"data";
                self.controls += u64::from(kind.trim_ascii() == b"control");
            } else if let Some(data) = line.strip_prefix(b"data:").filter(|_| self.is_data)
                && let Some(number) = number_in(data.strip_prefix(b" ").unwrap_or(data))
            {
                seen(number);
            }
        }
        self.lines.drain(..used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_controls_are_told_apart() {
        let mut follower = Follower::new();
        follower.lines = b"event: data\ndata:0000000000000007xyz\n\nevent: control\n\
            data:0000000000000008\n\nevent: data\ndata: 00000000000000"
            .to_vec();
        let mut seen = Vec::new();
        follower.take_lines(|number| seen.push(number));
        follower.lines.extend_from_slice(b"09\n");
        follower.take_lines(|number| seen.push(number));
        assert_eq!((seen, follower.controls), (vec![7, 9], 1));
        assert!(follower.lines.is_empty());
    }
}
