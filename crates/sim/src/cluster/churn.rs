//! Writes that nobody waits for: streams that are made, filled, trimmed and deleted all the time.
//!
//! They fill the logs, so that a node that was away finds entries gone, and they change what a snapshot holds while it is on its
//! way. Whether they are right is seen by the states of the copies, which are equal at equal indexes.

use super::streams::NODES;
use super::world::{Act, World};
use model::{ByteOffset, StreamPath, TrimBefore};
use node::Request;
use stream::{Append, AppendType, ContentType};

/// Streams that churn.
const STREAMS: u64 = 6;

/// Mean time between two of these writes.
const CHURN_US: u64 = 30_000;

/// Most bytes of one.
const BYTES_MAX: u64 = 3_000;

impl World {
    /// One of these writes, and the next time.
    pub(super) fn churn(&mut self) {
        if self.is_ending {
            return;
        }
        let path = StreamPath::new(&format!("churn{}", self.dice.below(STREAMS))).expect("a path");
        let (request, data) = match self.dice.below(100) {
            0..25 => (super::clients::creation(path), Vec::new()),
            25..30 => (Request::Delete { path }, Vec::new()),
            30..40 => {
                let before = TrimBefore::Offset(ByteOffset::new(self.dice.below(20_000)));
                (Request::Trim { path, before }, Vec::new())
            }
            _ => {
                let content_type = AppendType::Named(ContentType::new("text/plain"));
                let append = Append { content_type, record_count: 1, ..Append::default() };
                let length = 1 + self.dice.below(BYTES_MAX);
                (Request::Append { path, append }, vec![b'c'; length as usize])
            }
        };
        let node = self.dice.below(NODES as u64) as usize;
        self.send_unheard(node, request, data);
        let delay_us = self.dice.delay_us(2 * CHURN_US);
        self.at(delay_us, Act::Churn);
    }
}
