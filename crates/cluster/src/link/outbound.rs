//! A link that was dialled: sections, from those that wait to the bytes of frames.

use super::dialler::Dialler;
use super::hello::{Hello, Secret};
use super::refusal::Refusal;
use super::{LinkError, Progress};
use crate::frame::{Outbox, Section};
use model::Timestamp;

/// Bytes that the sending end of a link holds at most. One large section fits always.
pub const OUTBOX_BYTES_MAX: usize = 64 << 20;

/// Bytes that an acceptor sends before it has said all that it has to.
const STRANGER_BYTES_MAX: usize = 1 << 10;

/// The sending end of a link.
#[derive(Debug)]
pub struct Outbound {
    dialler: Dialler,
    peer: Option<Hello>,
    received: Vec<u8>,
    outbox: Outbox,
    sending: Vec<u8>,
    /// Bytes of `sending` that are sent.
    sent: usize,
}

impl Outbound {
    /// An end that says `hello` of its node. Its first bytes are in [`Outbound::unsent`].
    #[must_use]
    pub fn new(hello: Hello, secret: Secret) -> Self {
        let (dialler, sending) = Dialler::new(hello, secret);
        let (received, outbox) = Default::default();
        Self { dialler, peer: None, received, outbox, sending, sent: 0 }
    }

    /// The peer, once both have proved who they are. Sections count from then on.
    #[must_use]
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// Takes bytes as they come; the peer, if it is just now that it has welcomed this node. `check` says
    /// whether it is the node that was dialled.
    ///
    /// # Errors
    /// [`LinkError`]: the link must be closed.
    pub fn handle(
        &mut self,
        bytes: &[u8],
        check: &dyn Fn(&Hello) -> Result<(), Refusal>,
    ) -> Result<Option<Hello>, LinkError> {
        if self.peer.is_some() {
            return match bytes {
                [] => Ok(None),
                // Links are one way.
                _ => Err(LinkError::Refused(Refusal::NotANode)),
            };
        }
        self.received.extend_from_slice(bytes);
        loop {
            let step = self.dialler.handle(&self.received, check);
            self.received.drain(..step.used);
            self.sending.extend(step.send);
            match step.progress {
                Progress::Refused(refusal) => return Err(LinkError::Refused(refusal)),
                Progress::Up(hello) => {
                    self.peer = Some(*hello);
                    return Ok(self.peer);
                }
                Progress::More if self.received.len() > STRANGER_BYTES_MAX => {
                    return Err(LinkError::Refused(Refusal::NotANode));
                }
                Progress::More if step.used == 0 => return Ok(None),
                Progress::More => {}
            }
        }
    }

    /// Adds a section.
    ///
    /// # Errors
    /// [`LinkError::Slow`] if the peer takes too little: the link must be closed.
    ///
    /// # Panics
    /// If the link is not up: what is sent before would be lost.
    pub fn push(&mut self, section: Section) -> Result<(), LinkError> {
        assert!(self.peer.is_some(), "sections are for nodes that are known");
        if self.outbox.waiting_bytes() > OUTBOX_BYTES_MAX {
            return Err(LinkError::Slow { bytes: self.outbox.waiting_bytes() });
        }
        self.outbox.push(section);
        Ok(())
    }

    /// Whether bytes wait to be sent, made to frames or not.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.sent < self.sending.len() || !self.outbox.is_empty()
    }

    /// An empty frame, if nothing else waits: it shows that the node is there.
    pub fn keep_alive(&mut self, now: Timestamp) {
        if self.peer.is_some() && !self.has_unsent() {
            self.begin_frame();
            Outbox::empty_frame(now, &mut self.sending);
        }
    }

    /// What is to be sent next: the rest of a frame, or the next one. Empty if there is nothing.
    pub fn unsent(&mut self, now: Timestamp) -> &[u8] {
        if self.sent == self.sending.len() {
            self.begin_frame();
            self.outbox.next_frame(now, &mut self.sending);
        }
        &self.sending[self.sent..]
    }

    fn begin_frame(&mut self) {
        self.sending.clear();
        self.sent = 0;
    }

    /// So many of the bytes of [`Outbound::unsent`] are sent.
    ///
    /// # Panics
    /// If there were not so many.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.sending.len(), "no more is sent than there is");
    }
}
