//! What answers must say.

use super::{Keeper, Step, Wanted, book::stored, number_in, offset_in};
use crate::{clients::Ctx, oracle::Rule, wire::Answer};

impl Keeper {
    pub(super) fn done(&mut self, ctx: &mut Ctx<'_>, step: Step, answer: &Answer) {
        let checked = match step {
            Step::Create { bounds } => {
                self.book.keeps(bounds);
                Ok(())
            }
            Step::Append { piece, wanted } => self.appended(wanted, (piece.end(), &piece), answer),
            Step::Trim { to, .. } => {
                self.book.trimmed(to);
                let head = self.see_head(answer);
                let is_far_enough = self.book.head() >= to;
                head.and_then(|()| is_far_enough.then_some(()).ok_or("is not trimmed".into()))
            }
            Step::Change { bounds } => {
                self.book.keeps(bounds);
                self.see_head(answer)
            }
            Step::Look => self.see_head(answer),
            Step::ReadBegin => self.read_begin(answer),
            Step::ReadRecord { number, count_max } => {
                let start = self.book.start_of(number);
                self.read_records(answer, (start, number)).and_then(|next| match count_max {
                    Some(count) if next - number > count => Err(format!("{next} after {number}")),
                    _ => Ok(()),
                })
            }
            Step::ReadTail { count } => {
                let number = self.book.next_record().saturating_sub(count);
                let told = number_in(answer, "stream-record-start").unwrap_or(0);
                let start = self.book.start_of(told);
                let head =
                    if told > number { self.book.see_head(start, Some(told)) } else { Ok(()) };
                head.and_then(|()| self.read_records(answer, (start, told.max(number)))).map(drop)
            }
            Step::ReadGone if self.book.head() == 0 => Ok(()),
            Step::ReadGone => Err("shows what is gone".into()),
            Step::Resolve { number } => {
                let (at, told) =
                    (offset_in(answer, "stream-offset"), number_in(answer, "stream-record-start"));
                let fits = at == Some(self.book.start_of(number)) && told == Some(number);
                fits.then_some(()).ok_or(format!("has record {number} at {at:?}, {told:?}"))
            }
            Step::Fork(mut fork) => {
                fork.is_made = true;
                self.fork = Some(fork);
                Ok(())
            }
            Step::ReadFork => self.read_fork(answer),
            Step::Choose => unreachable!("nothing was asked"),
        };
        self.report(ctx, checked);
    }

    fn report(&self, ctx: &mut Ctx<'_>, checked: Result<(), String>) {
        if let Err(what) = checked {
            ctx.oracle.broken(Rule::Kept, format!("{} {what}", self.path));
        }
    }

    fn appended(
        &mut self,
        wanted: Wanted,
        (end, piece): (u64, &super::Piece),
        answer: &Answer,
    ) -> Result<(), String> {
        if wanted == (Wanted::Record { fits: false }) {
            return Err("takes an append that is for another record".into());
        }
        self.book.accept();
        let told =
            (number_in(answer, "stream-record-start"), number_in(answer, "stream-record-next"));
        let place = (answer.next_offset(), told);
        let expected = (Some(end), (Some(piece.first_record), Some(piece.next_record())));
        (place == expected).then_some(()).ok_or(format!("has {expected:?} at {place:?}"))
    }

    fn see_head(&mut self, answer: &Answer) -> Result<(), String> {
        let head = offset_in(answer, "stream-head").unwrap_or(0);
        self.book.see_head(head, Some(number_in(answer, "stream-record-first").unwrap_or(0)))
    }

    /// Compares the bytes of an answer that ends where it says; returns where it begins.
    fn compare(&self, answer: &Answer) -> Result<(u64, u64), String> {
        let bytes = stored(self.shape, &answer.body);
        let end = answer.next_offset().ok_or("is read, and not told how far")?;
        let start = end.checked_sub(bytes.len() as u64).ok_or("has more bytes than offsets")?;
        if self.book.bytes(start, end) != bytes {
            return Err(format!("holds other bytes from {start} to {end}"));
        }
        Ok((start, end))
    }

    fn read_begin(&mut self, answer: &Answer) -> Result<(), String> {
        let (start, _) = self.compare(answer)?;
        self.book.see_head(start, None)
    }

    /// A read that must begin with a record; returns the one behind its end.
    fn read_records(&mut self, answer: &Answer, place: (u64, u64)) -> Result<u64, String> {
        let (start, end) = self.compare(answer)?;
        let told = number_in(answer, "stream-record-start");
        if (start, told) != (place.0, Some(place.1)) {
            return Err(format!("shows record {told:?} at {start} for {place:?}"));
        }
        let next = number_in(answer, "stream-record-next");
        match (next, self.book.record_at(end)) {
            (Some(next), Some(known)) if next == known => Ok(next),
            (next, known) => Err(format!("ends at {end} with record {next:?}, not {known:?}")),
        }
    }

    fn read_fork(&mut self, answer: &Answer) -> Result<(), String> {
        let (start, end) = self.compare(answer)?;
        let (known, allowed) = (self.book.floor_of(start), self.book.allowed());
        let Some(fork) = &mut self.fork else { return Ok(()) };
        let head = *fork.head.get_or_insert(start);
        if head != start || known != start || start > allowed.min(fork.at) || end > fork.at {
            return Err(format!("has a fork {fork:?} with {start} to {end}"));
        }
        Ok(())
    }

    pub(super) fn refused(
        &mut self,
        ctx: &mut Ctx<'_>,
        step: &Step,
        (problem, answer): (&str, &Answer),
    ) {
        // A HEAD has no body that could name its problem.
        let is_gone = problem == "offset-trimmed" || answer.status == 410;
        let head = offset_in(answer, "stream-head");
        let checked = match step {
            Step::Append { wanted: Wanted::Record { fits: false }, piece } => {
                self.book.refuse();
                self.sequence -= 1;
                let next = number_in(answer, "stream-record-next");
                let fits = problem == "record-mismatch" && next == Some(piece.first_record);
                fits.then_some(()).ok_or(format!("refuses {problem}, {next:?}"))
            }
            Step::ReadRecord { number, .. } | Step::Resolve { number } if is_gone => {
                let start = self.book.start_of(*number);
                match head {
                    Some(head) if head > start => self.book.see_head(head, None),
                    _ => Err(format!("has no record {number} and begins at {head:?}")),
                }
            }
            Step::ReadGone if is_gone => match head {
                Some(head) => self.book.see_head(head, None),
                None => Err("is trimmed, and does not say where".into()),
            },
            Step::Fork(fork) if problem == "invalid-fork" && fork.at < self.book.allowed() => {
                Ok(())
            }
            Step::ReadFork if self.fork.as_ref().is_some_and(|fork| !fork.is_made) => Ok(()),
            step => Err(format!("{step:?} is refused: {} {problem}", answer.status)),
        };
        self.report(ctx, checked);
    }
}
