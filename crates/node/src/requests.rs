//! What a request asks for, but for appends.

use crate::{
    Change, Failure, ReadRequest, Reply, Request, ShardCore, Stamp, Ticket,
    fork::ForkSteps,
    locate::window_question,
    operation::Operation,
    proposed::ReplyTo,
    read::ReadSteps,
    reads::{Asker, PendingRead},
    resolve::ResolveSteps,
    shard::Proposal,
    step::{Step, Target, window_bytes},
    trim::TrimSteps,
};
use log::{Extent, Read, Slice};
use model::{ByteOffset, StreamKey, StreamPath, TrimBefore};
use stream::{Append, Command, Create, CreateCheck, CreateRequest, Refusal};

impl ShardCore {
    pub(crate) fn handle_create(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        (asked, data): (Box<CreateRequest>, &[u8]),
    ) {
        let group = self.groups.of_path(&asked.path);
        let holder = if group.is_path_in_flight(&asked.path) {
            group.state.expired_holder(&asked.path, now.wall)
        } else {
            match group.state.check_create(&asked, now.wall) {
                CreateCheck::Answered(outcome) => {
                    return self.reply(ticket, Reply::Outcome(outcome));
                }
                CreateCheck::Expired(stream) => Some(stream),
                CreateCheck::Free => None,
            }
        };
        let to = Target { group: group.state.group(), stream: None };
        if asked.fork.is_some() {
            let (fork, step) = ForkSteps::begin((ticket, now.monotonic), *asked, data.to_vec());
            return self.drive(now, Operation::Fork(Box::new(fork)), step);
        }
        let CreateRequest { path, content_type, lifetime, close, record_count, .. } = *asked;
        let CreateRequest { retention, record_time, .. } = *asked;
        let content_type = content_type.expect("only a fork may leave its content type open");
        if let Some(stream) = holder {
            self.expire_before(now, StreamKey { group: to.group, stream });
        }
        let layout = content_type.layout();
        let create = Create {
            path,
            content_type,
            layout,
            lifetime,
            close,
            record_count,
            retention,
            record_time,
            fork: None,
        };
        let command = Command::Create(Box::new(create));
        self.propose_for(ticket, Proposal { to, command, data });
    }

    /// Logs the expiry of a stream that still holds a path, if there is one: a creation follows.
    pub(crate) fn expire_holder(&mut self, now: Stamp, path: &StreamPath) {
        let state = &self.groups.of_path(path).state;
        if let Some(stream) = state.expired_holder(path, now.wall) {
            let key = StreamKey { group: state.group(), stream };
            self.expire_before(now, key);
        }
    }

    fn expire_before(&mut self, now: Stamp, holder: StreamKey) {
        // One that finds no room is proposed again: by a later slice, or by the next creation.
        let _ = self.propose_expiry(now, holder);
    }

    /// Expires a stream unless something of it is in flight: then a later slice asks again. `false` if the log has no room.
    pub(crate) fn propose_expiry(&mut self, now: Stamp, key: StreamKey) -> bool {
        let group = self.groups.get(key.group);
        if group.is_in_flight(key.stream) || !group.state.is_due(key.stream, now.wall) {
            return true;
        }
        let proposal = Proposal { to: key.into(), command: Command::Expire, data: &[] };
        let is_proposed = self.propose(proposal, ReplyTo::Expiries).is_ok();
        if is_proposed {
            self.expiries.note_proposed();
        }
        is_proposed
    }

    pub(crate) fn handle_delete(&mut self, now: Stamp, ticket: Ticket, path: &StreamPath) {
        let state = &self.groups.of_path(path).state;
        let stream = match state.resolve_id(path, now.wall) {
            Ok(stream) => stream,
            Err(Refusal::Damaged) => match state.damaged_stream(path) {
                Some(stream) => stream,
                None => return self.refuse(ticket, Refusal::Damaged),
            },
            Err(refusal) => return self.refuse_path(now, ticket, path, refusal),
        };
        let key = StreamKey { group: state.group(), stream };
        self.propose_for(ticket, Proposal { to: key.into(), command: Command::Delete, data: &[] });
    }

    /// A missing stream and a closed one stay so, whatever is on its way in the log. What else could
    /// refuse the append is judged when its data is there, in the order of the log.
    pub(crate) fn handle_announced(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        path: &StreamPath,
        append: &Append,
    ) {
        let state = &self.groups.of_path(path).state;
        let closed = state.resolve(path, now.wall).ok().filter(|info| info.closed);
        // Any number of bytes but 0 is judged alike.
        match closed.and_then(|info| state.check_append(info.stream, append, 1)) {
            Some(outcome) => self.reply(ticket, Reply::Outcome(outcome)),
            None => self.handle_head(now, ticket, path),
        }
    }

    pub(crate) fn handle_change(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        path: &StreamPath,
        change: stream::Change,
    ) {
        let state = &self.groups.of_path(path).state;
        match state.resolve_id(path, now.wall) {
            Ok(stream) => {
                let key = StreamKey { group: state.group(), stream };
                let command = Command::Change(change);
                self.propose_for(ticket, Proposal { to: key.into(), command, data: &[] });
            }
            Err(refusal) => self.refuse_path(now, ticket, path, refusal),
        }
    }

    pub(crate) fn handle_trim(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        path: &StreamPath,
        before: TrimBefore,
    ) {
        match TrimSteps::for_client(&self.view(now), ticket, path, before) {
            Ok(mut trim) => {
                let step = trim.begin();
                self.drive(now, Operation::Trim(Box::new(trim)), step);
            }
            Err(step) => self.answer_at_once(now, *step),
        }
    }

    pub(crate) fn handle_resolve(&mut self, now: Stamp, ticket: Ticket, read: &ReadRequest) {
        match ResolveSteps::begin(&self.view(now), ticket, read) {
            Ok(mut resolve) => {
                let step = resolve.advance();
                self.drive(now, Operation::Resolve(Box::new(resolve)), step);
            }
            Err(step) => self.answer_at_once(now, *step),
        }
    }

    /// Carries out a step that ends what has not begun.
    fn answer_at_once(&mut self, now: Stamp, step: Step) {
        match step {
            Step::Reply(ticket, reply) => self.reply(ticket, reply),
            Step::Refuse(ticket, path, refusal) => self.refuse_path(now, ticket, &path, refusal),
            other => unreachable!("an answer is a reply or a refusal, and not {other:?}"),
        }
    }

    pub(crate) fn handle_head(&mut self, now: Stamp, ticket: Ticket, path: &StreamPath) {
        let state = &self.groups.of_path(path).state;
        match state.resolve(path, now.wall) {
            Ok(info) => {
                let key = StreamKey { group: state.group(), stream: info.stream };
                self.reply(ticket, Reply::Head(key, Box::new(info)));
            }
            Err(refusal) => self.refuse_path(now, ticket, path, refusal),
        }
    }

    /// PROTOCOL §5.1: a read starts a sliding lifetime again; a live read when it begins. The read waits
    /// for the log if a crash before it knows of the use would let the stream expire too early.
    pub(crate) fn handle_read(&mut self, now: Stamp, ticket: Ticket, read: ReadRequest) {
        let id = read.path.group(self.groups.total_count());
        let state = &mut self.groups.get_mut(id).state;
        let stream = match state.resolve_id(&read.path, now.wall) {
            Ok(stream) => stream,
            Err(refusal) => return self.refuse_path(now, ticket, &read.path, refusal),
        };
        let used_at = self.time.now();
        if !state.touch(stream, used_at) {
            return self.begin_read(now, ticket, &read);
        }
        if self.must_defer_use() {
            return self.defer(now, ticket, (Request::Read(read), &[]));
        }
        let key = StreamKey { group: id, stream };
        let use_it = Step::Propose(key.into(), Command::Touch(used_at), Vec::new());
        self.drive(now, Operation::Read(Box::new(ReadSteps::after_use(ticket, read))), use_it);
    }

    /// Begins a read whose use of the stream need not be logged.
    pub(crate) fn begin_read(&mut self, now: Stamp, ticket: Ticket, read: &ReadRequest) {
        match ReadSteps::new(&mut self.view(now), ticket, read) {
            (_, Step::Reply(ticket, reply)) => self.reply(ticket, reply),
            (read, step) => self.drive(now, Operation::Read(Box::new(read)), step),
        }
    }

    pub(crate) fn handle_window(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        key: StreamKey,
        (from, to): (ByteOffset, ByteOffset),
    ) {
        match self.view(now).window(key, from, to) {
            // What goes to another node goes through memory.
            Ok(Read::Ready(Slice::File { .. })) if ticket.peer().is_some() => {
                match self.log.extent(key, from, window_bytes(from, to)) {
                    Ok(Some(extent)) => self.read_window(ticket, key, (from, to), extent),
                    _ => self.reply(ticket, Reply::Failed(Failure::NoLeader)),
                }
            }
            Ok(Read::Ready(slice)) => self.reply(ticket, Reply::Window(slice)),
            Ok(Read::Job(extent)) => self.read_window(ticket, key, (from, to), extent),
            Err(failure) => self.fail_window(ticket, key, failure),
        }
    }

    /// Has a window read by a job.
    fn read_window(
        &mut self,
        ticket: Ticket,
        key: StreamKey,
        (from, to): (ByteOffset, ByteOffset),
        extent: Extent,
    ) {
        let pending = PendingRead { key, asker: Asker::Window(ticket) };
        self.reads.add(pending, window_question(from, to), extent);
    }

    pub(crate) fn fail_window(&mut self, ticket: Ticket, key: StreamKey, failure: Failure) {
        self.damage.note_failure(key, &failure);
        self.reply(ticket, Reply::Failed(failure));
    }

    /// Answers with a first change that holds the stream's present state. So no commit between the
    /// reader's last look and this moment is lost.
    pub(crate) fn handle_watch(&mut self, ticket: Ticket, key: StreamKey) {
        if self.is_watched_elsewhere(key) {
            return self.watch_elsewhere(ticket.shard, key);
        }
        let info = self.groups.get(key.group).state.info(key.stream);
        let change = Change::present(key, info.as_ref());
        if !change.gone {
            self.watchers.add(key, ticket.shard);
        }
        self.notify(ticket.shard, change);
    }
}
