//! One of several writers of a stream that append only to the state that they have seen.

use super::{Client, Ctx, Heard, Move, Verdict, judge, pause};
use crate::{
    oracle::{OpNo, Rule, StreamNo},
    wire::Ask,
};

#[derive(Debug)]
pub(crate) struct Contender {
    stream: StreamNo,
    /// Makes the stream first.
    creates: bool,
    left: u64,
    seen: Option<Seen>,
    sent: Sent,
}

/// The state of the stream at some time.
#[derive(Debug, Clone)]
struct Seen {
    tag: String,
    tail: u64,
    next_record: String,
}

#[derive(Debug, Clone, Copy)]
enum Sent {
    Create,
    Look,
    /// With the tail that it is for.
    Append(OpNo, u64),
}

impl Contender {
    pub(crate) fn new(stream: StreamNo, creates: bool, left: u64) -> Self {
        Self { stream, creates, left, seen: None, sent: Sent::Look }
    }

    fn append(&mut self, ctx: &mut Ctx<'_>, seen: &Seen) -> Move {
        self.left -= 1;
        let (op, body) = ctx.oracle.new_op(self.stream, ctx.dice);
        self.sent = Sent::Append(op, seen.tail);
        let truth = ctx.oracle.truth(self.stream);
        let ask = Ask::new("POST", &truth.path).body(&body);
        let ask = ask.field("Content-Type", truth.shape.content_type());
        Move::Ask(match ctx.dice.below(3) {
            0 => ask.field("Stream-Record-Match", seen.next_record.as_str()),
            1 => ask.field("If-Match", format!("W/\"x\", {}", seen.tag)),
            _ => ask.field("If-Match", seen.tag.as_str()),
        })
    }

    fn broken(&self, ctx: &mut Ctx<'_>, what: impl std::fmt::Display) {
        let detail = format!("{}: {what}", ctx.oracle.truth(self.stream).path);
        ctx.oracle.broken(Rule::Contended, detail);
    }
}

impl Client for Contender {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if ctx.is_ending || ctx.oracle.is_damaged(self.stream) || self.left == 0 {
            return Move::Done;
        }
        if self.creates {
            self.sent = Sent::Create;
            let truth = ctx.oracle.truth(self.stream);
            let kind = truth.shape.content_type();
            return Move::Ask(Ask::new("PUT", &truth.path).field("Content-Type", kind));
        }
        if !ctx.oracle.truth(self.stream).is_ready {
            return Move::SleepMs(200);
        }
        // What was seen may be long over: then it must be refused.
        let seen = if ctx.dice.percent(80) { self.seen.take() } else { self.seen.clone() };
        match seen {
            Some(seen) => self.append(ctx, &seen),
            None => {
                self.sent = Sent::Look;
                Move::Ask(Ask::new("HEAD", &ctx.oracle.truth(self.stream).path))
            }
        }
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        match (judge(ctx, self.stream, &heard), self.sent) {
            (Verdict::Done(_), Sent::Create) => {
                self.creates = false;
                ctx.oracle.truth_mut(self.stream).is_ready = true;
            }
            (Verdict::Done(answer), Sent::Look) => {
                let (tail, tag) = (answer.next_offset(), answer.field("etag"));
                let next_record = answer.field("stream-record-next");
                match (tail, tag, next_record) {
                    (Some(tail), Some(tag), Some(next_record)) => {
                        let (tag, next_record) = (tag.to_owned(), next_record.to_owned());
                        self.seen = Some(Seen { tag, tail, next_record });
                    }
                    told => self.broken(ctx, format_args!("HEAD tells {told:?}")),
                }
                return Move::SleepMs(ctx.dice.below(20));
            }
            (Verdict::Done(answer), Sent::Append(op, wanted)) => {
                let tail = answer.next_offset().unwrap_or(0);
                ctx.oracle.acked_at(op, tail);
                let bytes = ctx.oracle.op(op).stored.len() as u64;
                if tail != wanted + bytes {
                    self.broken(ctx, format_args!("an append for {wanted} ends at {tail}"));
                }
            }
            (Verdict::Refused(problem, answer), Sent::Append(op, wanted)) => {
                ctx.oracle.refused(op);
                // Somebody has to win.
                if answer.next_offset() == Some(wanted) {
                    self.broken(ctx, format_args!("nobody was before the append for {wanted}"));
                }
                if !matches!(problem.as_str(), "precondition-failed" | "record-mismatch") {
                    self.broken(ctx, format_args!("an append is refused: {problem}"));
                }
            }
            (Verdict::Refused(problem, _), sent) => {
                self.broken(ctx, format_args!("{sent:?} is refused: {problem}"));
            }
            (Verdict::Busy, Sent::Append(op, _)) => ctx.oracle.refused(op),
            (Verdict::Busy | Verdict::Unknown, _) => {}
            (Verdict::Damaged, _) => return Move::Done,
        }
        pause(ctx.dice)
    }
}
