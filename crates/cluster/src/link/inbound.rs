//! A link that was accepted: what its peer sends, from the first byte to sections.

use super::acceptor::Acceptor;
use super::hello::{Hello, Secret};
use super::refusal::Refusal;
use super::{LinkError, Progress};
use crate::frame::{FRAME_BYTES_MAX, Frame, Parts, Section};
use crate::join::JoinQuestion;
use bytes::BytesMut;

/// Bytes that a node sends before it is welcome, and a few that a stranger may send before it is refused.
const STRANGER_BYTES_MAX: usize = 1 << 10;

/// The receiving end of a link.
///
/// # Bounds
/// It holds less than one frame, and the large section whose parts have arrived.
#[derive(Debug)]
pub struct Inbound {
    acceptor: Acceptor,
    peer: Option<Hello>,
    received: BytesMut,
    parts: Parts,
    /// A joiner has asked.
    has_asked: bool,
}

/// What came of bytes that were received.
#[derive(Debug, Default)]
pub struct Heard {
    /// Bytes to send back.
    pub send: Vec<u8>,
    /// The peer has proved who it is just now.
    pub up: Option<Hello>,
    /// What it says, in order.
    pub sections: Vec<Section>,
    /// What a node asks that is to join: it has no number, and says nothing else. Once on a link.
    pub question: Option<JoinQuestion>,
    /// Why the link must be closed once `send` is sent. What was heard before counts.
    pub end: Option<LinkError>,
}

impl Inbound {
    /// An end that says `hello` of its node.
    #[must_use]
    pub fn new(hello: Hello, secret: Secret) -> Self {
        let acceptor = Acceptor::new(hello, secret);
        let (received, parts) = (BytesMut::new(), Parts::default());
        Self { acceptor, peer: None, received, parts, has_asked: false }
    }

    /// The peer, once it has proved who it is.
    #[must_use]
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.received.len() + self.parts.held_bytes()
    }

    /// Takes bytes as they come; `check` says whether the cluster knows the node.
    pub fn handle(&mut self, bytes: &[u8], check: &dyn Fn(&Hello) -> Result<(), Refusal>) -> Heard {
        self.received.extend_from_slice(bytes);
        let mut heard = Heard::default();
        let mut step = |heard: &mut Heard| match self.peer {
            None => self.greet(check, heard),
            Some(peer) if peer.number.is_none() => self.take_question(heard),
            Some(_) => self.take_frame(heard),
        };
        while heard.end.is_none() {
            match step(&mut heard) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => heard.end = Some(error),
            }
        }
        heard
    }

    /// Whether something was done.
    fn greet(
        &mut self,
        check: &dyn Fn(&Hello) -> Result<(), Refusal>,
        heard: &mut Heard,
    ) -> Result<bool, LinkError> {
        let step = self.acceptor.handle(&self.received, check);
        let _ = self.received.split_to(step.used);
        heard.send.extend(step.send);
        match step.progress {
            Progress::Refused(refusal) => Err(LinkError::Refused(refusal)),
            Progress::Up(hello) => {
                self.peer = Some(*hello);
                heard.up = Some(*hello);
                Ok(true)
            }
            Progress::More if self.received.len() > STRANGER_BYTES_MAX => {
                Err(LinkError::Refused(Refusal::NotANode))
            }
            Progress::More => Ok(step.used > 0),
        }
    }

    /// Whether there was a whole question.
    fn take_question(&mut self, heard: &mut Heard) -> Result<bool, LinkError> {
        let no_node = LinkError::Refused(Refusal::NotANode);
        let asked = JoinQuestion::decode(&self.received).map_err(|_| no_node)?;
        let Some((question, used)) = asked else { return Ok(false) };
        if std::mem::replace(&mut self.has_asked, true) || question.member.store != self.store() {
            return Err(no_node);
        }
        let _ = self.received.split_to(used);
        heard.question = Some(question);
        Ok(true)
    }

    /// The directory of the peer.
    fn store(&self) -> u64 {
        self.peer.map_or(0, |peer| peer.store)
    }

    /// Whether there was a whole frame.
    fn take_frame(&mut self, heard: &mut Heard) -> Result<bool, LinkError> {
        let Some(length) = Frame::length(&self.received)? else { return Ok(false) };
        if self.received.len() < length {
            self.received.reserve(length.min(FRAME_BYTES_MAX) - self.received.len());
            return Ok(false);
        }
        let frame = Frame::decode(&self.received.split_to(length).freeze())?;
        heard.sections.reserve(frame.sections.len());
        for section in frame.sections {
            match section {
                Section::Part { .. } => heard.sections.extend(self.parts.take(&section)?),
                section => heard.sections.push(section),
            }
        }
        Ok(true)
    }
}
