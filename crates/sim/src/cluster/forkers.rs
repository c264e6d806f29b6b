//! Clients that fork the streams of others: the source and the fork may be led by two nodes.
//!
//! # What must hold
//! - A fork has all that was acknowledged before it was asked for, and its bytes are the first ones of its source.
//! - It keeps them when its source is deleted.
//! - A source that was deleted goes with its last fork: no reference stays that no fork holds.

use super::clients::{Asker, Next, create, first_bytes, read_of, window_behind};
use super::oracle::{ForkRead, Oracle, ops_in};
use super::streams::{group_of, path_of};
use crate::dice::Dice;
use log::LogOptions;
use model::{GroupId, StreamPath};
use node::{ReadReply, Reply, Request};
use std::collections::VecDeque;
use stream::{ForkRequest, Outcome, Refusal};

/// How many of 100 forks stay until the end.
const KEPT_PERCENT: u64 = 40;

#[derive(Debug)]
enum Stage {
    /// To make the next fork.
    Make,
    Read,
    Delete,
    /// At the end: to delete the source.
    DeleteSource,
    /// To look whether it is gone.
    Look,
}

/// Makes forks of one stream and reads them; or, at the end, gives all of them up.
#[derive(Debug)]
pub(super) struct Forker {
    number: usize,
    stream: usize,
    node: usize,
    stage: Stage,
    left: u64,
    /// The fork that it is about.
    fork: StreamPath,
    /// Appends that were acknowledged before it was asked for first.
    acked: Vec<usize>,
    read: Option<(Box<ReadReply>, Vec<u8>)>,
    /// Forks that are left at the end. Each is read and deleted.
    forks: VecDeque<StreamPath>,
    is_closer: bool,
    dice: Dice,
}

fn fork_path(number: usize, left: u64) -> StreamPath {
    StreamPath::new(&format!("f{number}-{left}")).expect("a path")
}

impl Forker {
    pub(super) fn new(number: usize, stream: usize, mut dice: Dice) -> Self {
        let left = dice.between(2, 12);
        let fork = fork_path(number, left);
        Self {
            number,
            stream,
            node: 0,
            stage: Stage::Make,
            left,
            fork,
            acked: Vec::new(),
            read: None,
            forks: VecDeque::new(),
            is_closer: false,
            dice,
        }
    }

    /// Deletes a stream, and then all forks that were ever asked for.
    pub(super) fn closer(stream: usize, oracle: &Oracle, dice: Dice) -> Self {
        let forks = oracle.forks.iter().filter(|(of, _)| *of == stream);
        let forks = forks.map(|(_, path)| path.clone()).collect();
        let this = Self::new(0, stream, dice);
        Self { stage: Stage::DeleteSource, forks, is_closer: true, ..this }
    }

    fn next_fork(&mut self) -> Next {
        self.left -= 1;
        self.fork = fork_path(self.number, self.left);
        self.stage = Stage::Make;
        if self.left == 0 { Next::End } else { Next::Again }
    }

    /// At the end: the next fork, or a look at the source.
    fn next_left(&mut self) -> Next {
        self.stage = match self.forks.pop_front() {
            Some(fork) => {
                self.fork = fork;
                Stage::Read
            }
            None => Stage::Look,
        };
        Next::Again
    }

    fn note_asked(&mut self, oracle: &mut Oracle) {
        let key = (self.stream, self.fork.clone());
        if oracle.forks.contains(&key) {
            return;
        }
        oracle.forks.insert(key);
        let ops = oracle.ops.iter().enumerate();
        let acked = ops.filter(|(_, op)| op.stream == self.stream && op.is_acked);
        self.acked = acked.map(|(number, _)| number).collect();
    }

    /// Reads on, or looks at what was read.
    fn read_on(&mut self, oracle: &mut Oracle, reply: Box<ReadReply>, bytes: Vec<u8>) -> Next {
        if let Some(window) = window_behind(&reply, bytes.len()) {
            self.read = Some((reply, bytes));
            return Next::Ask(window);
        }
        if reply.end < reply.info.tail {
            // What is behind it is damaged on that node.
            return Next::Again;
        }
        if !self.is_closer {
            let found = ops_in(&bytes);
            if let Some(op) = self.acked.iter().find(|op| !found.contains(op)) {
                let what = "was acknowledged before and is not in the fork";
                oracle.broken(format!("append {op} {what} {}", self.fork));
            }
        }
        oracle.fork_reads.push(ForkRead { stream: self.stream, fork: self.fork.clone(), bytes });
        if !self.is_closer && self.dice.percent(KEPT_PERCENT) {
            return self.next_fork();
        }
        self.stage = Stage::Delete;
        Next::Again
    }

    fn is_gone(reply: &Reply) -> bool {
        matches!(
            reply,
            Reply::Outcome(Outcome::Refused(Refusal::NotFound | Refusal::Gone) | Outcome::Deleted)
        )
    }
}

impl Asker for Forker {
    fn node(&mut self) -> &mut usize {
        &mut self.node
    }

    fn asks_anywhere(&self) -> bool {
        true
    }

    fn delay_us(&mut self) -> u64 {
        self.dice.delay_us(200_000)
    }

    fn group(&self, options: &LogOptions) -> GroupId {
        group_of(self.stream, options)
    }

    fn ask(&mut self, oracle: &mut Oracle, _: bool) -> (Request, Vec<u8>) {
        self.read = None;
        let request = match self.stage {
            Stage::Make => {
                self.note_asked(oracle);
                let source = path_of(self.stream);
                let fork = ForkRequest { source, offset: None, sub_offset: 0 };
                create(self.fork.clone(), None, Some(fork))
            }
            Stage::Read => read_of(self.fork.clone(), 0),
            Stage::Delete => Request::Delete { path: self.fork.clone() },
            Stage::DeleteSource => Request::Delete { path: path_of(self.stream) },
            Stage::Look => Request::Head { path: path_of(self.stream) },
        };
        (request, Vec::new())
    }

    fn op(&self) -> Option<usize> {
        None
    }

    fn give_up(&mut self, _: &mut Oracle) -> Next {
        Next::Again
    }

    fn hear(&mut self, oracle: &mut Oracle, reply: Reply, contents: &mut [Vec<u8>]) -> Next {
        let read = self.read.take();
        match (&self.stage, reply, read) {
            (_, Reply::Failed(node::Failure::NotFound | node::Failure::Trimmed { .. }), _) => {
                oracle.broken(format!("bytes of {} are gone", self.fork));
                Next::End
            }
            (_, Reply::Failed(_), _) => Next::Again,
            (Stage::Make, Reply::Outcome(Outcome::Created(_) | Outcome::Existed(_)), _) => {
                self.stage = Stage::Read;
                Next::Again
            }
            // It may be that nobody has made it yet.
            (Stage::Make, Reply::Outcome(Outcome::Refused(Refusal::ForkSourceNotFound)), _)
                if contents[self.stream].is_empty() =>
            {
                Next::Again
            }
            (Stage::Read, Reply::Read(reply), _) => {
                let bytes = first_bytes(&reply);
                self.read_on(oracle, reply, bytes)
            }
            (Stage::Read, Reply::Window(slice), Some((reply, mut bytes))) => {
                bytes.extend(slice.to_bytes().expect("a window can be read"));
                self.read_on(oracle, reply, bytes)
            }
            (Stage::Read, Reply::Outcome(Outcome::Refused(Refusal::NotFound)), _)
                if self.is_closer =>
            {
                self.next_left()
            }
            (Stage::Delete, reply, _) if Self::is_gone(&reply) => {
                if self.is_closer {
                    self.next_left()
                } else {
                    self.next_fork()
                }
            }
            (Stage::DeleteSource, reply, _) if Self::is_gone(&reply) => self.next_left(),
            (Stage::Look, Reply::Outcome(Outcome::Refused(Refusal::NotFound)), _) => Next::End,
            // The last references are being given back, or a fork was made late.
            (Stage::Look, Reply::Outcome(Outcome::Refused(Refusal::Gone)), _) => {
                let forks = oracle.forks.iter().filter(|(of, _)| *of == self.stream);
                self.forks = forks.map(|(_, path)| path.clone()).collect();
                self.next_left()
            }
            (stage, reply, _) => {
                oracle.broken(format!("fork {} in {stage:?} got {reply:?}", self.fork));
                Next::End
            }
        }
    }
}
