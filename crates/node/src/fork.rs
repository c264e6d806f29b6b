//! Making a fork, whose source may live in another group. See [`stream::ForkPoint`] for the three
//! steps and what a crash between them leaves behind.

use crate::{
    Failure, FoundRecord, Locate, LocateError, Reply, Request, ShardAnswer, ShardCall, Ticket,
    finder::{Finder, Learned},
    read::owner_of,
    step::{Moved, Step, Target, View},
};
use env::Random;
use log::Aim;
use model::{ByteOffset, Monotonic, StreamKey, StreamPath, limits};
use stream::{
    Command, ContentType, Create, CreateRequest, ForkPoint, ForkRequest, Lifetime, Lineage,
    Outcome, Pin, PinToken, Refusal, StreamInfo,
    messages::{self, Flattened},
};

/// A fork on its way.
#[derive(Debug)]
pub(crate) struct ForkSteps {
    ticket: Ticket,
    since: Monotonic,
    asked: CreateRequest,
    data: Vec<u8>,
    /// The messages that `data` holds, if the type of the source has shown that it is JSON.
    flattened: Option<Flattened>,
    stage: Stage,
}

/// What it waits for.
#[derive(Debug)]
enum Stage {
    /// Asking the source's group.
    Source,
    /// Asking the owner of the anchored append how far the sub-offset reaches.
    SubOffset {
        source: StreamKey,
        info: StreamInfo,
    },
    /// Asking which record the fork begins with.
    Record {
        source: StreamKey,
        info: StreamInfo,
        at: ByteOffset,
        finder: Finder,
    },
    /// Looking at the source once more, whose head was here: what was looked for is lost, or a trim has dropped it meanwhile.
    Doubt {
        source: StreamKey,
        head: ByteOffset,
        failure: Failure,
    },
    /// Taking the reference.
    Pin(Box<ForkPoint>, ContentType, Lifetime),
    /// Making the fork.
    Create {
        source: StreamKey,
        token: PinToken,
    },
    Ended,
}

impl ForkSteps {
    /// A fork that `asked` wants, which names its source.
    pub(crate) fn begin(
        (ticket, since): (Ticket, Monotonic),
        asked: CreateRequest,
        data: Vec<u8>,
    ) -> (Self, Step) {
        let fork = Self { ticket, since, asked, data, flattened: None, stage: Stage::Source };
        let step = fork.ask_source();
        (fork, step)
    }

    fn ask_source(&self) -> Step {
        Step::Ask(ShardCall::ForkSource {
            offset: self.request().offset,
            content_type: self.asked.content_type.clone(),
            path: self.request().source.clone(),
        })
    }

    /// The reference that it has asked for, once it has.
    pub(crate) fn token(&self) -> Option<PinToken> {
        match &self.stage {
            Stage::Pin(point, ..) => Some(point.token),
            Stage::Create { token, .. } => Some(*token),
            Stage::Source
            | Stage::SubOffset { .. }
            | Stage::Record { .. }
            | Stage::Doubt { .. }
            | Stage::Ended => None,
        }
    }

    fn request(&self) -> &ForkRequest {
        self.asked.fork.as_ref().expect("a creation without source is no fork")
    }

    pub(crate) fn step(&mut self, view: &mut View<'_>, answer: ShardAnswer) -> Step {
        match (std::mem::replace(&mut self.stage, Stage::Ended), answer) {
            (stage, ShardAnswer::Failed(failure)) => self.abandon(view, &stage, failure),
            (Stage::Source, ShardAnswer::ForkSource(Ok((source, info)))) => {
                self.anchor(view, source, info)
            }
            (Stage::Source | Stage::Doubt { .. }, ShardAnswer::ForkSource(Err(refusal))) => {
                self.refuse(refusal)
            }
            (
                Stage::Doubt { source: before, head, .. },
                ShardAnswer::ForkSource(Ok((source, info))),
            ) if source != before || info.head > head => self.anchor(view, source, info),
            (Stage::Doubt { failure, .. }, ShardAnswer::ForkSource(Ok(_))) => {
                self.reply(Reply::Failed(failure))
            }
            (Stage::SubOffset { source, info }, ShardAnswer::Located(located)) => match located {
                Ok(at) => self.count(view, (source, info), at),
                Err(LocateError::Beyond { available }) => {
                    self.refuse(Refusal::ForkSubOffset { available })
                }
                // The source went away after its group was asked.
                Err(LocateError::Failed(Failure::NotFound)) => {
                    self.refuse(Refusal::ForkSourceNotFound)
                }
                Err(LocateError::Failed(failure)) => self.doubt((source, info.head), failure),
            },
            (Stage::Record { source, info, at, mut finder }, ShardAnswer::Found(found)) => {
                match found.and_then(|found| finder.learn(source, &info, found)) {
                    Ok(Learned::Found(found)) => self.branch(view, (source, info), at, found),
                    Ok(Learned::AskNext) => unreachable!("a byte has one owner"),
                    Err(failure) => self.doubt((source, info.head), failure),
                }
            }
            (
                Stage::Pin(mut point, content_type, lifetime),
                ShardAnswer::Outcome(Outcome::Pinned { head, first_record }),
            ) => {
                // The source may have been trimmed since it was looked at.
                if head > point.at {
                    view.releases.add(point.source, point.token);
                    return self.refuse(Refusal::ForkTrimmed { head });
                }
                if head > point.head {
                    let is_all = head == point.at;
                    point.head = head;
                    point.head_record = if is_all { point.records } else { first_record };
                }
                self.create(view, point, (content_type, lifetime))
            }
            (Stage::Pin(..), ShardAnswer::Outcome(outcome)) => self.reply(Reply::Outcome(outcome)),
            (Stage::Create { source, token }, ShardAnswer::Outcome(outcome)) => {
                if !matches!(outcome, Outcome::Created(_)) {
                    view.releases.add(source, token);
                }
                self.reply(Reply::Outcome(outcome))
            }
            (stage, answer) => unreachable!("fork stage {stage:?} got {answer:?}"),
        }
    }

    fn reply(&self, reply: Reply) -> Step {
        Step::Reply(self.ticket, reply)
    }

    fn refuse(&self, refusal: Refusal) -> Step {
        self.reply(Reply::Outcome(Outcome::Refused(refusal)))
    }

    /// Bytes of the source were not found.
    fn doubt(&mut self, (source, head): (StreamKey, ByteOffset), failure: Failure) -> Step {
        if !matches!(failure, Failure::Damaged { .. } | Failure::Trimmed { .. }) {
            return self.reply(Reply::Failed(failure));
        }
        self.stage = Stage::Doubt { source, head, failure };
        self.ask_source()
    }

    /// A step failed. If the creation's fate is unknown, so is the reference's: it stays, and the
    /// next start of the node compares the two.
    fn abandon(&mut self, view: &mut View<'_>, stage: &Stage, failure: Failure) -> Step {
        let unknown =
            matches!(failure, Failure::Poisoned { applied_unknown: true } | Failure::Unknown);
        if let Stage::Create { source, token } = *stage {
            if matches!(failure, Failure::NoLeader) {
                return self.begin_elsewhere(view, (source, token));
            }
            if !unknown {
                view.releases.add(source, token);
            }
        }
        self.reply(Reply::Failed(failure))
    }

    /// The group of the fork is led by another node by now, or in another term, and the fork is not made, for certain. So it is
    /// made there, from the beginning.
    fn begin_elsewhere(
        &mut self,
        view: &mut View<'_>,
        (source, token): (StreamKey, PinToken),
    ) -> Step {
        view.releases.add(source, token);
        let request = Request::Create(Box::new(self.asked.clone()));
        let (ticket, since, data) = (self.ticket, self.since, std::mem::take(&mut self.data));
        Step::Elsewhere(Box::new(Moved { ticket, since, request, data }))
    }

    /// The source is known: looks for the place where the fork leaves it.
    fn anchor(&mut self, view: &mut View<'_>, source: StreamKey, info: StreamInfo) -> Step {
        let anchor = self.request().offset.unwrap_or(info.tail);
        let count = self.request().sub_offset;
        if count == 0 {
            return self.count(view, (source, info), anchor);
        }
        if anchor == info.tail {
            return self.refuse(Refusal::ForkSubOffset { available: 0 });
        }
        let (owner, limit) = owner_of(source, &info, anchor);
        let json = info.layout.is_json();
        let what = Locate::SubOffset { from: anchor, count, json, limit };
        self.stage = Stage::SubOffset { source, info };
        Step::Ask(ShardCall::Locate(owner, what))
    }

    /// Looks for the number of the first record that the fork does not share: it leaves the source at `at`.
    fn count(
        &mut self,
        view: &mut View<'_>,
        (source, info): (StreamKey, StreamInfo),
        at: ByteOffset,
    ) -> Step {
        if at == info.tail || at == info.head {
            return self.branch(view, (source, info), at, None);
        }
        // Of what it shares, the last record: it may share that in part.
        let finder = Finder::new(&info, Aim::Byte(ByteOffset::new(at.get() - 1)));
        let (owner, search) = finder.question(source, &info);
        self.stage = Stage::Record { source, info, at, finder };
        Step::Ask(ShardCall::Find(owner, search))
    }

    /// Takes a reference on the source, which the fork leaves at `at`, behind `last`.
    fn branch(
        &mut self,
        view: &mut View<'_>,
        (source, info): (StreamKey, StreamInfo),
        at: ByteOffset,
        last: Option<FoundRecord>,
    ) -> Step {
        let (records, mark) = match last {
            Some(last) => (last.number + 1, last.append.mark),
            None if at == info.tail => (info.next_record, info.mark),
            None => (info.first_record, info.mark.map(|_| 0)),
        };
        let inherits = self.asked.content_type.is_none();
        if inherits && !self.data.is_empty() && info.layout.is_json() {
            match messages::flatten(&self.data) {
                Ok(flattened) => self.flattened = Some(flattened),
                Err(error) => return self.reply(Reply::InvalidJson(error)),
            }
        }
        let fork_group = view.state_of(&self.asked.path).group();
        let term = view.groups.get(fork_group).role.term();
        let token = PinToken { fork_group, term, nonce: view.nonces.next_u64() };
        let point = ForkPoint {
            request: self.request().clone(),
            source,
            token,
            at,
            head: info.head.min(at),
            head_record: if info.head >= at { records } else { info.first_record },
            records,
            mark,
            lifetime: self.asked.lifetime,
            lineage: Lineage::of_fork(&info.lineage, source, (at, records)),
        };
        let from = point.head;
        let pin = Command::Pin(Pin { token, from, fork_path: self.asked.path.clone() });
        let lifetime = self.asked.lifetime.or_inherit(info.lifetime);
        self.stage = Stage::Pin(Box::new(point), info.content_type, lifetime);
        Step::Ask(ShardCall::Propose(source, pin))
    }

    /// Logs the creation, in this shard and in the term of its reference. A leader of a later term that does not find the fork
    /// knows that it never will be made.
    fn create(
        &mut self,
        view: &mut View<'_>,
        point: Box<ForkPoint>,
        (content_type, lifetime): (ContentType, Lifetime),
    ) -> Step {
        let (source, token) = (point.source, point.token);
        if view.groups.get(token.fork_group).role.term() != token.term {
            return self.begin_elsewhere(view, (source, token));
        }
        self.stage = Stage::Create { source, token };
        let (data, record_count) = match self.flattened.take() {
            Some(flattened) => (flattened.stored, flattened.count),
            None => (self.data.clone(), self.asked.record_count),
        };
        let create = Create {
            path: self.asked.path.clone(),
            layout: content_type.layout(),
            content_type,
            lifetime,
            close: self.asked.close,
            record_count,
            retention: self.asked.retention,
            record_time: self.asked.record_time,
            fork: Some(point),
        };
        let to = Target { group: token.fork_group, stream: None };
        Step::Propose(to, Command::Create(Box::new(create)), data)
    }
}

/// Checks the source of a fork, in the source's group. PROTOCOL §4.2, "Fork creation errors".
pub(crate) fn fork_source(
    view: &View<'_>,
    path: &StreamPath,
    offset: Option<ByteOffset>,
    content_type: Option<&ContentType>,
) -> Result<(StreamKey, StreamInfo), Refusal> {
    let state = view.state_of(path);
    let info = state.resolve(path, view.now.wall).map_err(|refusal| match refusal {
        Refusal::NotFound => Refusal::ForkSourceNotFound,
        Refusal::Gone => Refusal::ForkSourceGone,
        other => other,
    })?;
    if content_type.is_some_and(|wanted| *wanted != info.content_type) {
        return Err(Refusal::ForkContentType { expected: info.content_type });
    }
    let at = offset.unwrap_or(info.tail);
    if at > info.tail {
        return Err(Refusal::ForkBeyondTail { tail: info.tail });
    }
    if at < info.head {
        return Err(Refusal::ForkTrimmed { head: info.head });
    }
    if info.lineage.depth() >= limits::FORK_DEPTH_MAX {
        return Err(Refusal::ForkDepth);
    }
    Ok((StreamKey { group: state.group(), stream: info.stream }, info))
}
