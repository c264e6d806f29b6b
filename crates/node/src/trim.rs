//! Dropping the beginning of a stream: what a client asks for, or what its bounds do not keep.
//!
//! A trim ends where an append begins, so at least what is asked for is kept. Where it begins is looked up in stored
//! bytes, by jobs if need be. The trim that is logged names the byte and its record: every replica does the same.

use crate::{
    Failure, FoundRecord, Reply, Request, ShardAnswer, ShardCall, Ticket,
    finder::{Finder, Learned},
    read::found,
    retention::age_ms,
    step::{Moved, Step, View},
};
use log::{Aim, TimeAim};
use model::{ByteOffset, Monotonic, StreamKey, StreamPath, Timestamp, TrimBefore};
use stream::{Command, Outcome, Retention, StreamInfo, Trim};

/// A trim on its way.
#[derive(Debug)]
pub(crate) struct TrimSteps {
    /// The client that waits; none for retention.
    client: Option<Client>,
    key: StreamKey,
    info: StreamInfo,
    /// What is still to be looked for.
    goals: Vec<Goal>,
    /// What is being looked for.
    asked: Option<(Goal, Finder)>,
    /// The furthest trim so far.
    best: Option<Trim>,
    is_proposed: bool,
}

/// The client of a trim, and what it has asked for.
#[derive(Debug)]
struct Client {
    ticket: Ticket,
    since: Monotonic,
    path: StreamPath,
    before: TrimBefore,
}

/// The first append to keep.
#[derive(Debug, Clone, Copy)]
struct Goal {
    aim: Aim,
    /// How old an append may be, in milliseconds, if that is what it is about.
    age_ms_max: Option<u64>,
}

impl Goal {
    fn of(aim: Aim) -> Self {
        Self { aim, age_ms_max: None }
    }
}

impl TrimSteps {
    /// Begins a trim for a client.
    ///
    /// # Errors
    /// The answer, if there is nothing to look for.
    pub(crate) fn for_client(
        view: &View<'_>,
        ticket: Ticket,
        path: &StreamPath,
        before: TrimBefore,
    ) -> Result<Self, Box<Step>> {
        let (key, info) = view.stream_at(ticket, path)?;
        let all = Trim { to: info.tail, first_record: info.next_record };
        let (is_beyond, is_all, is_done, aim) = match before {
            TrimBefore::Offset(at) => {
                (at > info.tail, at == info.tail, at <= info.head, Aim::Byte(at))
            }
            TrimBefore::Record(number) => (
                number > info.next_record,
                number == info.next_record,
                number <= info.first_record,
                Aim::Record(number),
            ),
        };
        if is_beyond {
            let (tail, next_record) = (info.tail, info.next_record);
            let failure = Failure::Beyond { tail, next_record };
            return Err(Box::new(Step::Reply(ticket, Reply::Failed(failure))));
        }
        let (best, goals) = match (is_all, is_done) {
            (true, _) => (Some(all), Vec::new()),
            (_, true) => (None, Vec::new()),
            _ => (None, vec![Goal::of(aim)]),
        };
        let since = view.now.monotonic;
        let client = Client { ticket, since, path: path.clone(), before };
        Ok(Self::new(Some(client), (key, info), goals, best))
    }

    /// Begins a look at what a stream need not keep at `now`.
    pub(crate) fn for_retention(
        key: StreamKey,
        info: StreamInfo,
        kept: Retention,
        now: Timestamp,
    ) -> Self {
        let mut goals = Vec::new();
        let mut best = None;
        let all = Trim { to: info.tail, first_record: info.next_record };
        let bytes = info.tail.since(info.head);
        if let Some(bound) = kept.bytes.at_least().filter(|bound| bytes > *bound) {
            match ByteOffset::new(info.tail.get() - bound) {
                at if at == info.tail => best = Some(all),
                at => goals.push(Goal::of(Aim::Byte(at))),
            }
        }
        let records = info.next_record - info.first_record;
        if let Some(bound) = kept.records.at_least().filter(|bound| records > *bound) {
            match info.next_record - bound {
                number if number == info.next_record => best = Some(all),
                number => goals.push(Goal::of(Aim::Record(number))),
            }
        }
        if let Some(seconds) = kept.age_seconds.at_least().filter(|_| bytes > 0) {
            let ms_max = age_ms(seconds);
            let first = Timestamp::new(now.get().saturating_sub(ms_max));
            let aim = Aim::Time(TimeAim::Arrival(first));
            goals.push(Goal { aim, age_ms_max: Some(ms_max) });
        }
        Self::new(None, (key, info), goals, best)
    }

    fn new(
        client: Option<Client>,
        (key, info): (StreamKey, StreamInfo),
        goals: Vec<Goal>,
        best: Option<Trim>,
    ) -> Self {
        Self { client, key, info, goals, asked: None, best, is_proposed: false }
    }

    /// The first step.
    pub(crate) fn begin(&mut self) -> Step {
        self.advance()
    }

    pub(crate) fn step(&mut self, view: &mut View<'_>, answer: ShardAnswer) -> Step {
        if self.is_proposed {
            return self.end(view, answer);
        }
        let (goal, mut finder) = self.asked.take().expect("an answer belongs to a question");
        match found(answer).and_then(|found| finder.learn(self.key, &self.info, found)) {
            Ok(Learned::AskNext) => self.ask(goal, finder),
            Ok(Learned::Found(found)) => self.learn(view, goal, found),
            Err(failure) => self.learn_failure(view, finder.aim(), failure),
        }
    }

    fn learn(&mut self, view: &mut View<'_>, goal: Goal, found: Option<FoundRecord>) -> Step {
        let all = Trim { to: self.info.tail, first_record: self.info.next_record };
        let trim = found.map_or(all, |found| Trim {
            to: found.append.bounds.start,
            first_record: found.append.first_record,
        });
        if let (Some(ms_max), Some(found)) = (goal.age_ms_max, found) {
            let due = found.append.bounds.at.plus_ms(ms_max.saturating_add(1));
            view.retention.put_down(self.key, due);
        }
        self.note(trim);
        self.advance()
    }

    fn note(&mut self, trim: Trim) {
        if trim.to > self.info.head && self.best.is_none_or(|best| best.to < trim.to) {
            self.best = Some(trim);
        }
    }

    /// What was looked for is lost, or another trim has dropped it meanwhile. Then there is nothing left to do for it.
    fn learn_failure(&mut self, view: &mut View<'_>, aim: Aim, failure: Failure) -> Step {
        let failure = view.overtaken(self.key, aim, failure);
        let info = view.groups.get(self.key.group).state.info(self.key.stream);
        match (failure, info) {
            (Failure::Trimmed { .. }, Some(info)) if info.head > self.info.head => {
                self.info = info;
                self.advance()
            }
            (failure, _) => self.fail(view, failure),
        }
    }

    fn ask(&mut self, goal: Goal, finder: Finder) -> Step {
        let (owner, search) = finder.question(self.key, &self.info);
        self.asked = Some((goal, finder));
        Step::Ask(ShardCall::Find(owner, search))
    }

    fn advance(&mut self) -> Step {
        if let Some(goal) = self.goals.pop() {
            return self.ask(goal, Finder::new(&self.info, goal.aim));
        }
        if let Some(trim) = self.best {
            self.is_proposed = true;
            return Step::Propose(self.key.into(), Command::Trim(trim), Vec::new());
        }
        match &self.client {
            Some(Client { ticket, .. }) => {
                let (head, first_record) = (self.info.head, self.info.first_record);
                Step::Reply(*ticket, Reply::Outcome(Outcome::Trimmed { head, first_record }))
            }
            None => Step::End,
        }
    }

    fn end(&mut self, view: &mut View<'_>, answer: ShardAnswer) -> Step {
        match (answer, &self.client) {
            (ShardAnswer::Failed(Failure::NoLeader), Some(client)) => {
                let request = Request::Trim { path: client.path.clone(), before: client.before };
                let Client { ticket, since, .. } = *client;
                Step::Elsewhere(Box::new(Moved { ticket, since, request, data: Vec::new() }))
            }
            (ShardAnswer::Failed(failure), _) => self.fail(view, failure),
            (ShardAnswer::Outcome(outcome), Some(Client { ticket, .. })) => {
                Step::Reply(*ticket, Reply::Outcome(outcome))
            }
            (ShardAnswer::Outcome(_), None) => {
                view.retention.trims += 1;
                Step::End
            }
            (other, _) => unreachable!("a trim was logged, and the answer is {other:?}"),
        }
    }

    fn fail(&mut self, view: &mut View<'_>, failure: Failure) -> Step {
        match &self.client {
            Some(Client { ticket, .. }) => Step::Reply(*ticket, Reply::Failed(failure)),
            None => {
                view.retention.put_off(self.key);
                Step::End
            }
        }
    }

    /// Whether nobody waits for it but the bounds of its stream.
    pub(crate) fn is_retention(&self) -> bool {
        self.client.is_none()
    }
}
