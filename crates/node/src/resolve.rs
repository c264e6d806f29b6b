//! Where a read would begin: the offset and the number of a record, or of the first one at a time.

use crate::{
    FoundRecord, ReadRequest, Reply, Resolved, Search, ShardAnswer, ShardCall, Ticket,
    again::Again,
    finder::{Finder, Learned},
    read::found,
    records::{RecordSteps, Start},
    step::{Step, View},
};
use log::Aim;
use model::{Bounds, StreamKey};

/// A question for a place on its way.
#[derive(Debug)]
pub(crate) struct ResolveSteps {
    ticket: Ticket,
    records: RecordSteps,
    /// Looks for the time of the record, where its place was found without it.
    time_finder: Option<Finder>,
    again: Option<Box<Again>>,
}

impl ResolveSteps {
    /// Begins to look.
    ///
    /// # Errors
    /// The answer, if there is nothing to look for.
    pub(crate) fn begin(
        view: &View<'_>,
        ticket: Ticket,
        read: &ReadRequest,
    ) -> Result<Self, Box<Step>> {
        let records = begin(view, ticket, read)?;
        Ok(Self { ticket, records, time_finder: None, again: Again::of(read) })
    }

    /// Asks, or answers.
    pub(crate) fn advance(&mut self) -> Step {
        let question = self.records.question().or_else(|| self.time_question());
        match question {
            Some((owner, search)) => Step::Ask(ShardCall::Find(owner, search)),
            None => self.answer(self.records.found),
        }
    }

    /// What has to be asked for the time of the record, and of whom. By time, an append may have been found that lies
    /// before the head.
    fn time_question(&mut self) -> Option<(StreamKey, Search)> {
        let RecordSteps { key, ref info, start: (at, _), found, .. } = self.records;
        let is_known = found.is_some_and(|found| found.append.bounds.end > at);
        if is_known || at >= info.tail {
            return None;
        }
        let finder = self.time_finder.insert(Finder::new(info, Aim::Byte(at)));
        Some(finder.question(key, info))
    }

    fn answer(&self, found: Option<FoundRecord>) -> Step {
        let RecordSteps { key, start: (at, record), ref info, .. } = self.records;
        let time = found.filter(|_| at < info.tail).map(|found| found.time());
        let resolved = Resolved { key, info: info.clone(), at, record, time };
        Step::Reply(self.ticket, Reply::Resolved(Box::new(resolved)))
    }

    pub(crate) fn step(&mut self, view: &View<'_>, answer: ShardAnswer) -> Step {
        let step = self.next_step(view, answer);
        let again = self.again.as_mut().and_then(|again| again.instead_of(&step));
        match again.map(|read| begin(view, self.ticket, read)) {
            None => step,
            Some(Ok(records)) => {
                (self.records, self.time_finder) = (records, None);
                self.advance()
            }
            Some(Err(step)) => *step,
        }
    }

    fn next_step(&mut self, view: &View<'_>, answer: ShardAnswer) -> Step {
        let learned = match (found(answer), &mut self.time_finder) {
            (Ok(found), Some(finder)) => finder.learn(self.records.key, &self.records.info, found),
            (Ok(found), None) => self.records.learn(found).map(|()| Learned::AskNext),
            (Err(failure), _) => Err(failure),
        };
        match learned {
            Ok(Learned::Found(found)) => self.answer(found),
            Ok(Learned::AskNext) => self.advance(),
            Err(failure) => {
                let aim = self.time_finder.map_or_else(|| self.records.aim(), |it| it.aim());
                view.not_found(self.ticket, (self.records.key, aim), failure)
            }
        }
    }
}

/// What is to be looked for.
///
/// # Errors
/// The answer, if there is nothing to look for.
fn begin(view: &View<'_>, ticket: Ticket, read: &ReadRequest) -> Result<RecordSteps, Box<Step>> {
    let (key, info) = view.stream_at(ticket, &read.path)?;
    let clamp = read.records.unwrap_or_default().clamp;
    let start = Start::of(&info, read.from, clamp);
    let start = start.map_err(|failure| Box::new(Step::Reply(ticket, Reply::Failed(failure))))?;
    Ok(RecordSteps::new(key, info, start, Bounds::default()))
}
