//! From a recorded history to the checker and back.
//!
//! # Why histories are prepared
//! The search is exponential in what is under way at once, and an append whose answer was lost is
//! under way forever. Four steps keep it small; none changes the verdict:
//!
//! - Of several unanswered tries of one append, at most one took effect. If another try was
//!   acknowledged, none did. The others are left out, and the one begins when the first did.
//! - Where a reader met the bytes of such an append, it can have taken effect only there. The stream
//!   is read to its end before it is judged: if no reader met the bytes, it never took effect.
//! - An answered tail is the tail between two appends. So the read cannot precede the request of the
//!   one, nor follow the answer of the other. Such reads narrow each append in turn. Bytes alone, once
//!   there, are there later too.
//! - A history is cut at moments when no operation with an open effect is under way. All appends that
//!   were acknowledged or met are in the stream then, in the order of their places. So the state is
//!   known: it is the first operation of the next part.

use super::{
    History, Moment, Operation,
    model::{Append, Deed, State, StreamModel, Told},
};
use crate::oracle::OpNo;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use todc_utils::linearizability::{
    WGLChecker,
    history::{Action, History as Entries},
};

/// Parts are not cut smaller than this.
const PART_OPERATIONS: usize = 24;

impl History {
    /// Judges the history of a stream that was read to its end. `place_of` says where the bytes of
    /// an append were met. Returns how many operations there were.
    ///
    /// # Errors
    /// The first answer that no order of the operations explains.
    pub(crate) fn check(
        &mut self,
        path: &str,
        place_of: impl Fn(OpNo) -> Option<u64>,
    ) -> Result<usize, String> {
        let mut operations = self.take(path);
        place_lost(&mut operations, place_of);
        merge_tries(&mut operations);
        tighten(&mut operations);
        let count = operations.len();
        let mut state = State::default();
        for part in parts(operations) {
            if !is_linearizable(&state, &part) {
                return Err(first_unexplained(&state, &part));
            }
            state = carried(state, &part);
        }
        Ok(count)
    }
}

/// Says of each append without an answer where it took effect, and drops it if it did not.
fn place_lost(operations: &mut Vec<Operation>, place_of: impl Fn(OpNo) -> Option<u64>) {
    let ends = operations.iter().any(|operation| operation.deed.shows_end());
    operations.retain_mut(|operation| {
        let Deed::Append(append, Told::Nothing { place }) = &mut operation.deed else {
            return true;
        };
        *place = append.number.and_then(&place_of);
        place.is_some() || append.number.is_none() && ends
    });
}

/// Leaves one of the lost tries of each append, the first. Leaves none if another try was
/// acknowledged.
fn merge_tries(operations: &mut Vec<Operation>) {
    let added: BTreeSet<OpNo> = operations.iter().filter_map(added_number).collect();
    let mut kept: Vec<Rc<Append>> = Vec::new();
    operations.retain(|operation| {
        let Deed::Append(append, Told::Nothing { .. }) = &operation.deed else { return true };
        let is_known = append.number.is_some_and(|number| added.contains(&number));
        let is_first = !kept.contains(append);
        if is_first {
            kept.push(Rc::clone(append));
        }
        is_first && !is_known
    });
}

fn added_number(operation: &Operation) -> Option<OpNo> {
    match &operation.deed {
        Deed::Append(append, Told::Added { .. }) => append.number,
        _ => None,
    }
}

/// When the appends around a tail were asked for and answered.
#[derive(Debug, Default)]
struct Around {
    /// The first request for the append that ends there.
    requested: Option<Moment>,
    /// The answer to the append that begins there.
    answered: Option<Moment>,
}

fn around(operations: &[Operation]) -> BTreeMap<u64, Around> {
    let mut known: BTreeMap<u64, Around> = BTreeMap::new();
    for Operation { called, answered, deed } in operations {
        let Deed::Append(append, told) = deed else { continue };
        let Some(place) = told.place(append).filter(|_| !append.stored.is_empty()) else {
            continue;
        };
        let first = &mut known.entry(place + append.stored.len() as u64).or_default().requested;
        *first = Some(first.map_or(*called, |first| first.min(*called)));
        if answered.is_some() {
            known.entry(place).or_default().answered = *answered;
        }
    }
    known
}

/// When reads that claim a tail were asked for and answered.
#[derive(Debug)]
struct Claims {
    /// The last request of any.
    requested: Moment,
    /// The first answer to any.
    answered: Moment,
}

fn claims(operations: &[Operation]) -> BTreeMap<u64, Claims> {
    let mut known: BTreeMap<u64, Claims> = BTreeMap::new();
    for Operation { called, answered, deed } in operations {
        let (Some(tail), Some(answered)) = (deed.tail_claimed(), answered) else { continue };
        let claims =
            known.entry(tail).or_insert(Claims { requested: *called, answered: *answered });
        claims.requested = claims.requested.max(*called);
        claims.answered = claims.answered.min(*answered);
    }
    known
}

/// Narrows each append to when the tail can have moved: after every request whose answer has the tail
/// before it, and before every answer with the tail behind it.
fn tighten_appends(operations: &mut [Operation]) {
    let claims = claims(operations);
    for Operation { called, answered, deed } in operations {
        let Deed::Append(append, told) = deed else { continue };
        let Some(place) = told.place(append).filter(|_| !append.stored.is_empty()) else {
            continue;
        };
        let before = claims.get(&place).map_or(*called, |claims| claims.requested + 1);
        let behind = claims.get(&(place + append.stored.len() as u64));
        let last = behind.map(|claims| claims.answered - 1);
        let from = before.max(*called);
        let to = (*answered).into_iter().chain(last).min();
        if to.is_none_or(|to| from < to) {
            (*called, *answered) = (from, to);
        }
    }
}

/// Narrows each operation to when it can have found or left what it shows. Moments are spread first, so
/// that there is room between two of them, and before the first, for what must lie there.
fn tighten(operations: &mut [Operation]) {
    for operation in &mut *operations {
        operation.called = operation.called * 4 + 4;
        operation.answered = operation.answered.map(|answered| answered * 4 + 4);
    }
    let around = around(operations);
    tighten_appends(operations);
    for Operation { called, answered, deed } in &mut *operations {
        let Some(answered) = answered else { continue };
        let Some(tail) = deed.tail_claimed() else {
            // What is there stays there: it can be found at the last moment if at all.
            if deed.is_read() {
                *called = *answered - 1;
            }
            continue;
        };
        let Some(Around { requested, answered: next }) = around.get(&tail) else { continue };
        let from = requested.map_or(*called, |requested| (requested + 1).max(*called));
        let to = next.map_or(*answered, |next| (next - 1).min(*answered));
        if from < to {
            (*called, *answered) = (from, to);
        }
    }
    operations.sort_by_key(|operation| operation.called);
}

/// Cuts a history where its state is known.
fn parts(operations: Vec<Operation>) -> Vec<Vec<Operation>> {
    let mut parts = vec![Vec::new()];
    let (mut last_answer, mut shown, mut may_cut) = (0, 0, true);
    let mut lost: Vec<u64> = Vec::new();
    for operation in operations {
        lost.retain(|place| *place >= shown);
        let is_quiet = last_answer < operation.called && lost.is_empty() && may_cut;
        if is_quiet && parts.last().is_some_and(|part| part.len() >= PART_OPERATIONS) {
            parts.push(Vec::new());
        }
        last_answer = last_answer.max(operation.answered.unwrap_or(0));
        shown = shown.max(operation.deed.shown_end());
        if let Deed::Append(append, told) = &operation.deed {
            // Which of several such requests took effect may show only later.
            may_cut &= !append.stored.is_empty();
            if let Told::Nothing { place } = told {
                lost.extend(*place);
            }
        }
        parts.last_mut().expect("there is one").push(operation);
    }
    parts
}

/// The state after a part that is linearizable and was cut where nothing is open.
fn carried(state: State, part: &[Operation]) -> State {
    let mut placed = BTreeMap::new();
    for operation in part {
        if let Deed::Append(append, told) = &operation.deed
            && let Some(place) = told.place(append)
        {
            placed.insert(place, Rc::clone(append));
        }
    }
    placed.into_iter().fold(state, |state, (place, append)| {
        let told = Told::Nothing { place: Some(place) };
        state.after(&Deed::Append(append, told)).unwrap_or(state)
    })
}

fn is_linearizable(state: &State, part: &[Operation]) -> bool {
    let begin = Deed::Carried(Box::new(state.clone()));
    let mut actions = vec![(0, 0, Action::Call(begin.clone())), (0, 0, Action::Response(begin))];
    for (index, Operation { called, answered, deed }) in part.iter().enumerate() {
        actions.push((*called, index + 1, Action::Call(deed.clone())));
        let answered = answered.unwrap_or(Moment::MAX);
        actions.push((answered, index + 1, Action::Response(deed.clone())));
    }
    actions.sort_by_key(|(moment, ..)| *moment);
    let actions = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
    WGLChecker::<StreamModel>::is_linearizable(Entries::from_actions(actions))
}

/// The history as it was when the answer came at `moment`.
fn until(part: &[Operation], moment: Moment) -> Vec<Operation> {
    let begun = part.iter().filter(|operation| operation.called < moment);
    let known = begun.filter_map(|operation| {
        if operation.answered.is_some_and(|answered| answered <= moment) {
            return Some(operation.clone());
        }
        let Deed::Append(append, told) = &operation.deed else { return None };
        let told = Told::Nothing { place: told.place(append) };
        let deed = Deed::Append(Rc::clone(append), told);
        Some(Operation { answered: None, deed, ..*operation })
    });
    known.collect()
}

/// Every beginning of a linearizable history is one too: the shortest that is not ends with the
/// answer to look at.
fn first_unexplained(state: &State, part: &[Operation]) -> String {
    let mut answers: Vec<Moment> = part.iter().filter_map(|operation| operation.answered).collect();
    answers.sort_unstable();
    let explained = answers.partition_point(|moment| is_linearizable(state, &until(part, *moment)));
    let Some(moment) = answers.get(explained) else {
        return format!("from tail {}: what was met without an answer", state.tail());
    };
    let told = until(part, *moment).into_iter().filter(|operation| operation.called < *moment);
    let lines: Vec<String> = told.map(|operation| operation.to_string()).collect();
    let from = lines.len().saturating_sub(2 * PART_OPERATIONS);
    format!("at moment {moment}, from tail {}:\n  {}", state.tail(), lines[from..].join("\n  "))
}
