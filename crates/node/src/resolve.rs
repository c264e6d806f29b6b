//! Where a read would begin: the offset and the number of a record, or of the first one at a time.

use crate::{
    ReadRequest, Reply, Resolved, ShardAnswer, ShardCall, Ticket,
    read::found,
    records::{RecordSteps, Start},
    step::{Step, View},
};
use model::Bounds;

/// A question for a place on its way.
#[derive(Debug)]
pub(crate) struct ResolveSteps {
    ticket: Ticket,
    records: RecordSteps,
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
        let (key, info) = view.stream_at(ticket, &read.path)?;
        let clamp = read.records.unwrap_or_default().clamp;
        let start = Start::of(&info, read.from, clamp);
        let start =
            start.map_err(|failure| Box::new(Step::Reply(ticket, Reply::Failed(failure))))?;
        let records = RecordSteps::new(key, info, start, Bounds::default());
        Ok(Self { ticket, records })
    }

    /// Asks, or answers.
    pub(crate) fn advance(&mut self) -> Step {
        if let Some((owner, search)) = self.records.question() {
            return Step::Ask(ShardCall::Find(owner, search));
        }
        let RecordSteps { key, start: (at, record), found, .. } = self.records;
        let info = self.records.info.clone();
        let time = found.map(|found| found.time());
        let resolved = Resolved { key, info, at, record, time };
        Step::Reply(self.ticket, Reply::Resolved(Box::new(resolved)))
    }

    pub(crate) fn step(&mut self, answer: ShardAnswer) -> Step {
        match found(answer).and_then(|found| self.records.learn(found)) {
            Ok(()) => self.advance(),
            Err(failure) => Step::Reply(self.ticket, Reply::Failed(failure)),
        }
    }
}
