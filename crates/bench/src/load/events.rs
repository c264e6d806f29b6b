//! A stream followed by server-sent events, with as little work per event as can be.

use super::body::{Body, Head};
use super::socket::Socket;
use crate::api::{ApiStyle, Content};
use crate::failure::{Failure, Outcome};
use memchr::memchr;

/// One follower.
#[derive(Debug)]
pub(crate) struct Follower {
    style: ApiStyle,
    body: Option<Body>,
    content: Content,
    /// Decoded bytes that are not a whole line yet.
    lines: Vec<u8>,
    is_data: bool,
    /// Control events so far.
    pub(crate) controls: u64,
    /// The answer was ended as the protocol wants it, with its last chunk.
    pub(crate) is_complete: bool,
}

impl Follower {
    pub(crate) fn new(style: ApiStyle) -> Self {
        Self {
            style,
            body: None,
            content: Content::new(style),
            lines: Vec::new(),
            is_data: false,
            controls: 0,
            is_complete: false,
        }
    }

    /// Whether the system has answered. The first control event says that the follower is at the tail.
    /// Systems without control events send nothing but the head before data.
    pub(crate) fn is_live(&self) -> bool {
        match self.style {
            ApiStyle::Durable => self.controls > 0,
            ApiStyle::Ursula | ApiStyle::S2 => self.body.is_some(),
            ApiStyle::Nats | ApiStyle::Kafka => {
                unreachable!("live readers are asked for over HTTP")
            }
        }
    }

    /// Takes the input of `socket` and gives the stream's bytes in each event to `seen`.
    pub(crate) fn take(&mut self, socket: &mut Socket, seen: impl FnMut(&[u8])) -> Outcome<()> {
        if self.body.is_none() && !self.take_head(socket)? {
            return Ok(());
        }
        let Self { body: Some(body), lines, .. } = self else { return Ok(()) };
        self.is_complete |= body.take(socket, |bytes| lines.extend_from_slice(bytes))?;
        self.take_lines(seen);
        Ok(())
    }

    fn take_head(&mut self, socket: &mut Socket) -> Outcome<bool> {
        let Some(head) = Head::parse(socket.input())? else { return Ok(false) };
        if head.status != 200 {
            return Err(Failure::new(format!("a follower was answered {}", head.status)));
        }
        socket.consume(head.head_bytes);
        self.body = Some(head.body());
        Ok(true)
    }

    fn take_lines(&mut self, mut seen: impl FnMut(&[u8])) {
        let mut used = 0;
        while let Some(length) = memchr(b'\n', &self.lines[used..]) {
            let line = &self.lines[used..used + length];
            used += length + 1;
            if let Some(kind) = line.strip_prefix(b"event:") {
                self.is_data = matches!(kind.trim_ascii(), b"data" | b"batch");
                self.controls += u64::from(kind.trim_ascii() == b"control");
            } else if let Some(data) = line.strip_prefix(b"data:").filter(|_| self.is_data) {
                self.content
                    .take(data.strip_prefix(b" ").unwrap_or(data).trim_ascii_end(), &mut seen);
            }
        }
        self.lines.drain(..used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(style: ApiStyle, pieces: &[&str]) -> (Vec<String>, u64) {
        let mut follower = Follower::new(style);
        let mut seen = Vec::new();
        for piece in pieces {
            follower.lines.extend_from_slice(piece.as_bytes());
            follower.take_lines(|data| seen.push(String::from_utf8(data.to_vec()).unwrap()));
        }
        assert!(follower.lines.is_empty());
        (seen, follower.controls)
    }

    #[test]
    fn data_and_controls_are_told_apart() {
        let first = "event: data\ndata:7xyz\n\nevent: control\ndata:8\n\nevent: data\ndata: ";
        let wanted = vec!["7xyz".to_owned(), "9".to_owned()];
        assert_eq!(seen(ApiStyle::Durable, &[first, "9\n"]), (wanted, 1));
    }

    #[test]
    fn every_record_of_a_batch_is_seen() {
        let batch = "event: batch\ndata: {\"records\":[{\"seq_num\":3,\"body\":\"a\"},\
            {\"seq_num\":4,\"body\":\"b\"}]}\nid: 4,2,9\n\nevent: ping\ndata: {\"body\":\"c\"}\n\n";
        assert_eq!(seen(ApiStyle::S2, &[batch]), (vec!["a".to_owned(), "b".to_owned()], 0));
    }
}
