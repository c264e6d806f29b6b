//! The only user of a path whose streams have a lifetime: may not go early, may not stay late.

use super::{Client, Ctx, FORGOTTEN_MS, Heard, Move, Verdict, judge, reading::Reading};
use crate::{
    clock::WallRange,
    oracle::{Lifetimes, OpNo, Rule, Shape, StreamNo},
    wire::{Answer, Ask},
};

/// From the moment when a lifetime has run out to the moment when the log knows: a few slow jobs.
const SLOWEST_EXPIRY_US: u64 = 15_000_000;

/// A read that waits this long for the log to take its use is answered without; a crash may forget
/// the use then.
const LONGEST_WAIT_US: u64 = 5_000_000;

#[derive(Debug)]
pub(crate) struct Mortal {
    path: String,
    /// Seconds of the sliding window; `None` for a fixed end.
    ttl: Option<u64>,
    expires_in: u64,
    life: Option<Life>,
    sent: Option<Step>,
    reading: Option<Reading>,
    tainted_create: Option<Step>,
    lives_left: u64,
}

#[derive(Debug)]
struct Life {
    stream: StreamNo,
    lifetimes: Lifetimes,
    is_made: bool,
    backward_jumps: u64,
    /// When it was alive for certain: it may have gone at any moment since.
    alive_us: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Create { fields: Vec<(&'static str, String)> },
    Append { op: OpNo, body: Vec<u8> },
    Read,
    Head,
}

impl Mortal {
    pub(crate) fn new(path: String, ttl: Option<u64>, expires_in: u64) -> Self {
        Self {
            path,
            ttl,
            expires_in,
            life: None,
            sent: None,
            reading: None,
            tainted_create: None,
            lives_left: 4,
        }
    }

    fn create(&mut self, ctx: &mut Ctx<'_>) -> Step {
        let stream = ctx.oracle.add_stream(&self.path, Shape::Text);
        ctx.oracle.truth_mut(stream).is_mortal = true;
        let wall = ctx.clock.wall_ms();
        let now = ctx.clock.time_since(ctx.clock.now_us);
        let (lifetimes, field) = match self.ttl {
            Some(ttl) => (Lifetimes::sliding(ttl * 1000, now), ("Stream-TTL", ttl.to_string())),
            None => {
                let at = (wall / 1000 + self.expires_in) * 1000;
                (Lifetimes::fixed(at), ("Stream-Expires-At", rfc3339(at)))
            }
        };
        let backward_jumps = ctx.backward_jumps;
        let alive_us = ctx.clock.now_us;
        self.life = Some(Life { stream, lifetimes, is_made: false, backward_jumps, alive_us });
        Step::Create { fields: vec![field] }
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>, step: Step) -> Move {
        let stream = self.life.as_ref().expect("a life was begun").stream;
        let ask = match &step {
            Step::Create { fields } => {
                let mut ask = Ask::new("PUT", &self.path).field("Content-Type", "text/plain");
                ask.fields.extend(fields.iter().cloned());
                ask
            }
            Step::Append { body, .. } => {
                Ask::new("POST", &self.path).field("Content-Type", "text/plain").body(body)
            }
            Step::Read => {
                self.reading = Some(Reading::begin(ctx, stream, Some(0)));
                Ask::new("GET", &self.path)
            }
            Step::Head => Ask::new("HEAD", &self.path),
        };
        self.sent = Some(step);
        Move::Ask(ask)
    }

    fn rest(&self, ctx: &mut Ctx<'_>) -> Move {
        let window_ms = self.ttl.unwrap_or(self.expires_in) * 1000;
        Move::SleepMs(match ctx.dice.below(100) {
            0..60 => ctx.dice.between(1, window_ms / 4),
            60..85 => ctx.dice.between(window_ms / 2, window_ms),
            _ => ctx.dice.between(window_ms, window_ms * 2),
        })
    }

    fn done(&mut self, ctx: &mut Ctx<'_>, step: &Step, answer: &Answer, when: WallRange) -> Move {
        let was_tainted = self.tainted_create.take().is_some();
        let path = self.path.clone();
        let life = self.life.as_mut().expect("a life was begun");
        if let Step::Create { .. } = step {
            if answer.status == 200 && !was_tainted {
                if ctx.backward_jumps == life.backward_jumps {
                    let detail = format!("{path} is expired and yet there");
                    ctx.oracle.broken(Rule::Undeleted, detail);
                }
                return Move::Done;
            }
            life.is_made = true;
            // To find it there already is no use of it.
            match answer.status {
                200 => life.lifetimes.perhaps_used(when),
                _ => life.lifetimes.used(when),
            }
            ctx.oracle.truth_mut(life.stream).is_ready = true;
            return self.rest(ctx);
        }
        if life.lifetimes.must_be_gone(when) && ctx.backward_jumps == life.backward_jumps {
            let detail = format!("{path} answers {step:?} after its end, {when:?} {life:?}");
            ctx.oracle.broken(Rule::Lifetime, detail);
        }
        match step {
            Step::Append { op, .. } => {
                life.lifetimes.used(when);
                match answer.next_offset() {
                    Some(tail) => ctx.oracle.acked_at(*op, tail),
                    None => ctx.oracle.broken(Rule::Protocol, "an append without offset"),
                }
            }
            Step::Read => {
                match ctx.clock.now_us - life.alive_us < LONGEST_WAIT_US {
                    true => life.lifetimes.used(when),
                    false => life.lifetimes.perhaps_used(when),
                }
                let reading = self.reading.take().expect("a read is under way");
                reading.take(ctx, answer);
            }
            Step::Head | Step::Create { .. } => {}
        }
        self.rest(ctx)
    }

    fn gone(&mut self, ctx: &mut Ctx<'_>, what: &str) -> Move {
        let life = self.life.as_mut().expect("a life was begun");
        if what != "stream-not-found" && !what.is_empty() {
            ctx.oracle.broken(Rule::Protocol, format!("{}: {what}", self.path));
        }
        // Its end may have been on its way to the log, slowly, when a jump set the clock back.
        let when = ctx.clock.time_since(life.alive_us.saturating_sub(SLOWEST_EXPIRY_US));
        let is_promised = self.ttl.is_none() || !ctx.may_forget_uses;
        if is_promised && !life.lifetimes.may_be_gone(when) {
            let detail = format!("{} is gone at {when:?}: {life:?}", self.path);
            ctx.oracle.broken(Rule::Lifetime, detail);
        }
        ctx.oracle.truth_mut(life.stream).is_gone = true;
        self.life = None;
        Move::SleepMs(ctx.dice.between(1, 500))
    }
}

impl Client for Mortal {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if let Some(step) = self.tainted_create.clone() {
            return self.ask(ctx, step);
        }
        if ctx.is_ending {
            return Move::Done;
        }
        let Some(life) = self.life.as_ref() else {
            if self.lives_left == 0 {
                return Move::Done;
            }
            self.lives_left -= 1;
            let step = self.create(ctx);
            return self.ask(ctx, step);
        };
        let (stream, is_made) = (life.stream, life.is_made);
        if ctx.oracle.is_damaged(stream) || !is_made {
            return Move::Done;
        }
        let step = match ctx.dice.below(100) {
            0..30 => {
                let (op, body) = ctx.oracle.new_op(stream, ctx.dice);
                Step::Append { op, body }
            }
            30..70 => Step::Read,
            _ => Step::Head,
        };
        self.ask(ctx, step)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let when = ctx.clock.time_since(heard.since_us);
        let stream = self.life.as_ref().expect("a life was begun").stream;
        let step = self.sent.take().expect("an answer belongs to a request");
        match judge(ctx, stream, &heard) {
            Verdict::Done(answer) => {
                if let Some(life) = &mut self.life {
                    life.alive_us = heard.since_us;
                }
                self.done(ctx, &step, &answer, when)
            }
            Verdict::Refused(problem, answer) if answer.status == 404 => self.gone(ctx, &problem),
            Verdict::Refused(problem, _) => {
                let detail = format!("{}: {step:?} refused: {problem}", self.path);
                ctx.oracle.broken(Rule::Protocol, detail);
                Move::Done
            }
            Verdict::Busy if matches!(step, Step::Create { .. }) => {
                // The lifetime begins with the creation, or is fixed: ask for the same again.
                self.tainted_create = Some(step);
                Move::SleepMs(ctx.dice.between(100, 1_000))
            }
            Verdict::Busy => self.rest(ctx),
            Verdict::Unknown => {
                let late = WallRange { high: when.high + FORGOTTEN_MS, ..when };
                let life = self.life.as_mut().expect("a life was begun");
                life.lifetimes.perhaps_used(if heard.gave_up { late } else { when });
                if let Step::Create { .. } = step {
                    self.tainted_create = Some(step);
                    if heard.gave_up {
                        return Move::SleepMs(FORGOTTEN_MS);
                    }
                }
                Move::SleepMs(ctx.dice.between(1, 500))
            }
            Verdict::Damaged => Move::Done,
        }
    }
}

/// A time of the simulated years as RFC 3339, whole seconds. Source: Hinnant, `civil_from_days`.
fn rfc3339(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_calendars_have_them() {
        assert_eq!(rfc3339(1_767_225_600_000), "2026-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_709_209_999_000), "2024-02-29T12:33:19Z");
    }
}
