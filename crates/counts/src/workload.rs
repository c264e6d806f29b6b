//! What is done, how often.

use crate::plane::Plane;
use access::{Access, Secret, StaticToken};
use clap::ValueEnum;
use std::path::Path;
use thalweg_counts::requests::Template;

/// Streams that exist before anything is counted.
const STREAM_COUNT: u64 = 1_000;

/// Appends that each of them holds then. Tables of a stream grow at 4 and at 8: in between a run sees
/// the steady path.
const PREPARED_APPENDS: u64 = 5;

/// What one turn of a busy server's loop finds.
const BUSY_TURN: u64 = 32;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Appends, each with a commit of its own
    #[value(name = "append-1")]
    Append1,
    /// Appends, 32 to a commit
    #[value(name = "append-32")]
    Append32,
    /// The same, each with a token that is looked at
    #[value(name = "append-32-token")]
    Append32Token,
    /// Appends to streams with live readers, 32 to a commit, and one frame of each
    #[value(name = "live-32")]
    Live32,
    /// Creates, 32 to a commit
    #[value(name = "create-32")]
    Create32,
    /// Reads of streams of five appends, whole
    #[value(name = "read")]
    Read,
}

/// What all operations of a run added up to, the preparation included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) wal_bytes: u64,
    pub(crate) answer_bytes: u64,
}

impl Workload {
    /// Prepares streams, then does the operations.
    ///
    /// # Panics
    /// If anything is refused: the count would mean something else.
    pub(crate) fn run(self, operations: u64, dir: &Path) -> Totals {
        let is_live = self == Self::Live32;
        let media_type = if is_live { "text/plain" } else { "application/octet-stream" };
        let (token, rules) = one_token();
        let (access, shown) = match self {
            Self::Append32Token => (rules, Some(token)),
            _ => (Access::open(None), None),
        };
        let mut plane = Plane::open(dir, BUSY_TURN as usize, access);
        let shows = |template: Template| match &shown {
            Some(token) => template.with_token(token),
            None => template,
        };
        let mut creates = shows(Template::create(media_type));
        let mut appends = shows(Template::append(media_type));
        turns(&mut plane, 0..STREAM_COUNT, BUSY_TURN, |plane, slot, at| {
            plane.send(slot, creates.of(at));
        });
        turns(&mut plane, 0..PREPARED_APPENDS * STREAM_COUNT, BUSY_TURN, |plane, slot, at| {
            plane.send(slot, appends.of(at % STREAM_COUNT));
        });
        let mut reads = shows(Template::read());
        plane.check_answer(reads.of(0));
        if is_live {
            plane.follow(STREAM_COUNT);
        }
        let prepared = plane.answer_count();
        let mut next = 0;
        while next < operations {
            let end = operations.min(next + self.turn_count());
            turns(&mut plane, next..end, self.turn_count(), |plane, slot, at| match self {
                Self::Append1 | Self::Append32 | Self::Append32Token | Self::Live32 => {
                    plane.send(slot, appends.of(at % STREAM_COUNT));
                }
                Self::Create32 => plane.send(slot, creates.of(STREAM_COUNT + at)),
                Self::Read => plane.send(slot, reads.of(at % STREAM_COUNT)),
            });
            if is_live {
                (next..end).for_each(|at| plane.take_frame(at % STREAM_COUNT));
            }
            next = end;
        }
        assert_eq!(plane.answer_count() - prepared, operations, "each operation is answered once");
        Totals { wal_bytes: plane.log_stats().batch_bytes, answer_bytes: plane.answer_bytes() }
    }

    /// Requests that the loop finds in one turn.
    const fn turn_count(self) -> u64 {
        match self {
            Self::Append1 | Self::Read => 1,
            Self::Append32 | Self::Append32Token | Self::Live32 | Self::Create32 => BUSY_TURN,
        }
    }
}

/// A token that may do what the workloads do, and rules that know it.
fn one_token() -> (String, Access) {
    let (id, secret) = ("counts", Secret::new([7; 32]));
    let hash = secret.hash().render();
    let text = format!("[[token]]\nid = \"{id}\"\nsha256 = \"{hash}\"\ngrants = [\"* counts/\"]\n");
    let rules = access::file::parse(&text, &|_, _| Err("is not there".to_owned()));
    (StaticToken { id, secret }.render(), Access::new(rules.expect("an access file"), 1, None))
}

/// Gives requests `numbers` to the plane, so many to a turn.
fn turns(
    plane: &mut Plane,
    numbers: std::ops::Range<u64>,
    turn_count: u64,
    mut give: impl FnMut(&mut Plane, usize, u64),
) {
    let mut next = numbers.start;
    while next < numbers.end {
        let end = numbers.end.min(next + turn_count);
        for (slot, number) in (0..).zip(next..end) {
            give(plane, slot, number);
        }
        plane.finish();
        next = end;
    }
}
