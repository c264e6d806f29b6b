//! Writers of streams that are never deleted: plain, conditional, idempotent; some close.

use super::{Client, Ctx, Heard, Move, Verdict, judge, pause};
use crate::{
    oracle::{OpNo, Rule, StreamNo},
    wire::{Answer, Ask},
};

/// How a writer makes its appends safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Not at all: an append whose answer is lost is never sent again.
    Plain,
    /// `Stream-Seq`: the only writer of its stream that sends one.
    Conditional { next: u64 },
    /// Producer fields.
    Idempotent { id: String, epoch: u64, seq: u64 },
}

#[derive(Debug)]
pub(crate) struct Writer {
    stream: StreamNo,
    manner: Manner,
    /// Makes the stream first.
    creates: bool,
    under_way: Option<Sent>,
    /// Appends left to send; then it closes the stream or stops.
    left: u64,
    closes: bool,
}

#[derive(Debug, Clone)]
struct Sent {
    op: Option<OpNo>,
    body: Vec<u8>,
    close: bool,
    /// Some attempt's outcome is unknown.
    tainted: bool,
    /// An old `Stream-Seq` that must be refused.
    probe: bool,
    is_create: bool,
}

impl Writer {
    pub(crate) fn new(
        stream: StreamNo,
        manner: Manner,
        creates: bool,
        (left, closes): (u64, bool),
    ) -> Self {
        Self { stream, manner, creates, under_way: None, left, closes }
    }

    fn ask(&self, ctx: &Ctx<'_>, sent: &Sent) -> Move {
        let truth = ctx.oracle.truth(self.stream);
        let method = if sent.is_create { "PUT" } else { "POST" };
        let mut ask = Ask::new(method, &truth.path).body(&sent.body);
        if sent.is_create || !sent.body.is_empty() {
            ask = ask.field("Content-Type", truth.shape.content_type());
        }
        if sent.close {
            ask = ask.field("Stream-Closed", "true");
        }
        if sent.is_create {
            return Move::Ask(ask);
        }
        match &self.manner {
            Manner::Plain => {}
            Manner::Conditional { next } => {
                let seq = if sent.probe { next - 1 } else { *next };
                ask = ask.field("Stream-Seq", format!("{seq:08}"));
            }
            Manner::Idempotent { id, epoch, seq } => {
                ask = ask
                    .field("Producer-Id", id.as_str())
                    .field("Producer-Epoch", epoch.to_string())
                    .field("Producer-Seq", seq.to_string());
            }
        }
        Move::Ask(ask)
    }

    fn begin(&mut self, ctx: &mut Ctx<'_>) -> Move {
        let close = self.left == 0;
        self.left = self.left.saturating_sub(1);
        let probe = matches!(self.manner, Manner::Conditional { next } if next > 1)
            && !close
            && ctx.dice.percent(8);
        let is_empty = close && ctx.dice.percent(40);
        let (op, body) = if is_empty {
            (None, Vec::new())
        } else {
            let (op, body) = ctx.oracle.new_op(self.stream, ctx.dice);
            (Some(op), body)
        };
        self.send(ctx, Sent { op, body, close, tainted: false, probe, is_create: false })
    }

    fn send(&mut self, ctx: &Ctx<'_>, sent: Sent) -> Move {
        let ask = self.ask(ctx, &sent);
        self.under_way = Some(sent);
        ask
    }

    fn done(&mut self, ctx: &mut Ctx<'_>, sent: &Sent, answer: &Answer) -> Move {
        let Some(tail) = answer.next_offset() else {
            ctx.oracle.broken(Rule::Protocol, "an append's answer without Stream-Next-Offset");
            return Move::Done;
        };
        if sent.is_create {
            ctx.oracle.truth_mut(self.stream).is_ready = true;
            return pause(ctx.dice);
        }
        if sent.probe {
            ctx.oracle.broken(Rule::WriterForgotten, "an old Stream-Seq was accepted");
        }
        let is_new = match &self.manner {
            Manner::Idempotent { .. } => self.check_producer(ctx, sent, answer),
            _ => true,
        };
        match sent.op {
            Some(op) if is_new => ctx.oracle.acked_at(op, tail),
            Some(op) => ctx.oracle.acked(op, tail),
            None => ctx.oracle.tail_seen(self.stream, tail),
        }
        if sent.close && !answer.is("stream-closed") {
            ctx.oracle.broken(Rule::Reopened, "a closing append was answered without it");
        }
        if answer.is("stream-closed") {
            ctx.oracle.closed_seen(self.stream, tail);
        }
        self.advance();
        if sent.close { Move::Done } else { pause(ctx.dice) }
    }

    /// The answer's producer fields; returns whether the append was new.
    fn check_producer(&self, ctx: &mut Ctx<'_>, sent: &Sent, answer: &Answer) -> bool {
        let Manner::Idempotent { id, epoch, seq } = &self.manner else { return true };
        let told = (answer.field("producer-epoch"), answer.field("producer-seq"));
        let (epoch, seq) = (epoch.to_string(), seq.to_string());
        if told != (Some(epoch.as_str()), Some(seq.as_str())) {
            let detail = format!("{id} sent {epoch}/{seq} and was told {told:?}");
            ctx.oracle.broken(Rule::WriterForgotten, detail);
        }
        let is_new = answer.status == 200;
        if !is_new && !sent.tainted && sent.op.is_some() {
            let detail = format!("{id} {epoch}/{seq} is said to be a repeat, but never was sent");
            ctx.oracle.broken(Rule::WriterForgotten, detail);
        }
        is_new
    }

    fn advance(&mut self) {
        match &mut self.manner {
            Manner::Plain => {}
            Manner::Conditional { next } => *next += 1,
            Manner::Idempotent { seq, .. } => *seq += 1,
        }
    }

    fn refused(
        &mut self,
        ctx: &mut Ctx<'_>,
        sent: &Sent,
        (problem, answer): (&str, &Answer),
    ) -> Move {
        let is_conditional = matches!(self.manner, Manner::Conditional { .. });
        match problem {
            "stream-seq-conflict" if is_conditional && (sent.tainted || sent.probe) => {
                if sent.probe {
                    self.give_up(ctx, sent);
                    return pause(ctx.dice);
                }
                let floor = ctx.oracle.truth(self.stream).floor;
                sent.op.into_iter().for_each(|op| ctx.oracle.acked(op, floor));
                self.advance();
                pause(ctx.dice)
            }
            "stream-closed" => {
                self.give_up(ctx, sent);
                match answer.next_offset() {
                    Some(end) => ctx.oracle.closed_seen(self.stream, end),
                    None => ctx.oracle.broken(Rule::Protocol, "closed, and not told where"),
                }
                Move::Done
            }
            problem => {
                let path = &ctx.oracle.truth(self.stream).path;
                let detail = format!("{path}: {:?} was refused: {problem}", self.manner);
                let rule = match problem {
                    "stream-not-found" | "stream-gone" => Rule::AckedLost,
                    _ => Rule::WriterForgotten,
                };
                ctx.oracle.broken(rule, detail);
                Move::Done
            }
        }
    }

    fn give_up(&self, ctx: &mut Ctx<'_>, sent: &Sent) {
        if !sent.tainted {
            sent.op.into_iter().for_each(|op| ctx.oracle.refused(op));
        }
    }

    fn unknown(&mut self, ctx: &mut Ctx<'_>, mut sent: Sent) -> Move {
        sent.tainted = true;
        if sent.is_create {
            self.under_way = Some(sent);
            return Move::SleepMs(ctx.dice.between(100, 2_000));
        }
        match &mut self.manner {
            // It is unknown whether it is there.
            Manner::Plain => {
                if sent.close {
                    self.left = 0;
                }
                pause(ctx.dice)
            }
            // It lost its memory, as after a crash of its own: a new epoch fences the old one.
            Manner::Idempotent { epoch, seq, .. } if ctx.dice.percent(15) => {
                (*epoch, *seq) = (*epoch + 1, 0);
                pause(ctx.dice)
            }
            _ => {
                self.under_way = Some(sent);
                Move::SleepMs(ctx.dice.between(1, 2_000))
            }
        }
    }
}

impl Client for Writer {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if let Some(sent) = self.under_way.take() {
            return self.send(ctx, sent);
        }
        if self.creates {
            self.creates = false;
            let sent = Sent {
                op: None,
                body: Vec::new(),
                close: false,
                tainted: false,
                probe: false,
                is_create: true,
            };
            return self.send(ctx, sent);
        }
        if ctx.is_ending || ctx.oracle.is_damaged(self.stream) || (self.left == 0 && !self.closes) {
            return Move::Done;
        }
        if !ctx.oracle.truth(self.stream).is_ready {
            return Move::SleepMs(200);
        }
        self.begin(ctx)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let sent = self.under_way.take().expect("an answer belongs to a request");
        match judge(ctx, self.stream, &heard) {
            Verdict::Done(answer) => self.done(ctx, &sent, &answer),
            Verdict::Busy => {
                if !sent.is_create && self.manner == Manner::Plain && ctx.dice.percent(50) {
                    self.give_up(ctx, &sent);
                } else {
                    self.under_way = Some(sent);
                }
                Move::SleepMs(ctx.dice.between(50, 2_000))
            }
            Verdict::Unknown => self.unknown(ctx, sent),
            Verdict::Refused(problem, answer) => self.refused(ctx, &sent, (&problem, &answer)),
            Verdict::Damaged => Move::Done,
        }
    }
}
