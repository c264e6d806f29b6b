//! The one place where requests are decided: after the head, before the body and before the invitation to send it.
//!
//! # Why here
//! A client that may not do something should not send gigabytes first. And what is denied must not tell what exists, so
//! nothing below is asked before.
//!
//! # Invariants
//! - What reaches the node was [`Authorized`] here ([`Step::ask_as`] takes nothing else), or asks on about a stream that a
//!   reply to it has named.
//! - Three credentials in a row that are not valid cost the connection: each may cost a verification.
//! - Whatever lasts is judged again when the rules change, and ends with its credential.

use crate::{
    connection::State,
    gate::{Gate, Judged},
    receive::Next,
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire::BodyLength,
};
use access::{
    Access, Authorized, Cost, Credential, Denied, Named, Need, Now, Operation, Refused, SignedUrl,
};
use model::StreamPath;
use node::Stamp;
use protocol::{
    problem::{Code, Problem},
    request::{Page, Proof, ReadRequest, Request, Shown},
};
use std::sync::Arc;

/// Credentials in a row that are not valid, until the connection is closed.
const BAD_CREDENTIALS_MAX: u8 = 3;

/// A body that nobody wants is read past up to this length; a longer one costs the connection.
const DISCARD_BYTES_MAX: u64 = 1 << 20;

/// A request with what its head says of its body.
struct Claim {
    request: Request,
    body: BodyLength,
}

impl Named for Claim {
    fn needs(&self) -> [Option<Need<'_>>; 2] {
        let one = |operation, path| [Some(need(operation, path)), None];
        match &self.request {
            Request::Create(create) => {
                // A fork shows the bytes of its source.
                let source =
                    create.asked.fork.as_ref().map(|fork| need(Operation::Read, &fork.source));
                [Some(need(Operation::Create, &create.asked.path)), source]
            }
            Request::Append(append) => one(Operation::Append, &append.path),
            Request::Read(read) => one(Operation::Read, &read.path),
            Request::Head(path) => one(Operation::Read, path),
            Request::Resolve { path, .. } => one(Operation::Read, path),
            // A change of the retention may drop data, as a trim does.
            Request::Change { path, .. } | Request::Trim { path, .. } => {
                one(Operation::Delete, path)
            }
            Request::Delete(path) => one(Operation::Delete, path),
            Request::Preflight { .. } => [None, None],
        }
    }

    fn cost(&self) -> Cost {
        let append_bytes = match self.body {
            BodyLength::Known(bytes) => bytes,
            BodyLength::Unknown => 0,
        };
        let is_live = self.request.is_live();
        Cost { creates: matches!(self.request, Request::Create(_)), append_bytes, is_live }
    }
}

fn need(operation: Operation, path: &StreamPath) -> Need<'_> {
    Need { operation, path: path.as_str() }
}

fn path_of(request: &Request) -> &str {
    match request {
        Request::Create(create) => create.asked.path.as_str(),
        Request::Append(append) => append.path.as_str(),
        Request::Read(read) => read.path.as_str(),
        Request::Head(path) | Request::Delete(path) => path.as_str(),
        Request::Resolve { path, .. } | Request::Change { path, .. } => path.as_str(),
        Request::Trim { path, .. } => path.as_str(),
        Request::Preflight { .. } => "",
    }
}

impl<T: Transport> Step<'_, T> {
    /// Decides whether a request is carried out.
    #[inline(always)]
    pub(crate) fn judge_request(
        &mut self,
        id: ConnId,
        request: Request,
        (shown, page): (Option<&Shown<'_>>, Option<&Page<'_>>),
        body: BodyLength,
    ) -> Judged<Request> {
        if let Some(page) = page
            && !self.state.gate.known_host.is(page)
        {
            if let Err(problem) = self.state.options.pages.admit(page, &request) {
                return Judged::Foreign(Box::new(problem));
            }
            self.state.gate.known_host.note(page);
        }
        let access = &self.state.gate.access;
        if access.is_open() {
            return Judged::Authorized(access.decide_open(request));
        }
        self.decide(id, Claim { request, body }, shown)
    }

    fn decide(&mut self, id: ConnId, claim: Claim, shown: Option<&Shown<'_>>) -> Judged<Request> {
        let proof = shown.map_or(&Proof::None, |shown| &shown.proof);
        let now = now(self.state.now);
        let Gate { access, verified, .. } = &mut self.state.gate;
        let Some(connection) = self.state.connections.get_mut(id) else { return Judged::Later };
        let mut client = connection.peer.client();
        if let Some(address) = shown.and_then(|shown| shown.client) {
            (client.address, client.is_forwarded) = (address, true);
        }
        let who = match &claim.request {
            // A browser asks it without any credential.
            Request::Preflight { .. } => Ok(access::Who::Anonymous),
            request => {
                let credential = credential(proof, path_of(request));
                access.authenticate(verified, &mut connection.known, &credential, client, now.wall)
            }
        };
        let decided = match who {
            Ok(who) => access.decide(who, client, claim, now),
            Err(Refused::Denied(denied)) => Err(denied),
            Err(Refused::Later) => return Judged::Later,
        };
        match decided {
            Ok(authorized) => {
                let line = connection.parent.unwrap_or(id);
                if let Some(connection) = self.state.connections.get_mut(line) {
                    connection.bad_credentials = 0;
                }
                Judged::Authorized(authorized.map(|claim| claim.request))
            }
            Err(denied) => Judged::Denied(denied),
        }
    }

    /// Counts a denial, and closes a connection that only guesses after the answer; what to answer.
    pub(crate) fn refuse(
        &mut self,
        id: ConnId,
        denied: &Denied,
        shown: Option<&Shown<'_>>,
    ) -> Problem {
        let problem = problem_of(denied, shown.is_some_and(|shown| shown.is_producer));
        let is_limited = matches!(denied, Denied::Limited(_));
        self.state.counts.rejected += u64::from(is_limited);
        self.state.counts.denied += u64::from(!is_limited);
        let is_bad =
            matches!(denied, Denied::Invalid(_) | Denied::Expired { .. } | Denied::NotYet { .. });
        let line = self.line_of(id);
        let Some(connection) = self.state.connections.get_mut(line).filter(|_| is_bad) else {
            return problem;
        };
        connection.bad_credentials += 1;
        if connection.bad_credentials >= BAD_CREDENTIALS_MAX {
            connection.meta.keep_alive = false;
            if let State::Streams(streams) = &mut connection.state {
                streams.line.shut_down();
            }
        }
        problem
    }

    /// Answers before the body has come: it is read past if that is cheap.
    pub(crate) fn refuse_early(
        &mut self,
        id: ConnId,
        problem: &Problem,
        body: BodyLength,
        expects_invitation: bool,
    ) -> Next {
        let left_bytes = match body {
            BodyLength::Known(0) => 0,
            BodyLength::Known(length) if length <= DISCARD_BYTES_MAX && !expects_invitation => {
                length
            }
            BodyLength::Known(_) | BodyLength::Unknown => {
                if let Some(connection) = self.state.connections.get_mut(id) {
                    connection.meta.keep_alive = false;
                }
                0
            }
        };
        self.answer_problem(id, problem);
        if let Some(connection) = self.state.connections.get_mut(id)
            && matches!(connection.state, State::Head)
            && left_bytes > 0
        {
            connection.state = State::Discard { left_bytes };
        }
        Next::Again
    }

    /// Whether a client that shows nothing gets the same answer to a read, so that shared caches may keep it.
    #[inline]
    pub(crate) fn is_public(&self, read: &ReadRequest) -> bool {
        self.state.gate.access.may_anyone_read(read.path.as_str())
    }

    /// Charges a body whose head did not say how long it is.
    pub(crate) fn charge_late(&mut self, id: ConnId, request: &Authorized<Request>, bytes: usize) {
        let access = &self.state.gate.access;
        if access.is_open() {
            return;
        }
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let client = connection.peer.client();
        access.charge_bytes(request.permit(), client, bytes as u64, now(self.state.now));
    }

    /// New rules: they count from the next request on, and for all that lasts.
    pub(crate) fn take_access(&mut self, access: Arc<Access>) {
        self.state.put_access(access);
        self.state.deadlines.judge_slot = Some(0);
        self.state.deadlines.is_behind = true;
    }

    /// Whether a read that begins to last is still allowed. If not, or if that cannot be known in this turn, it is
    /// answered.
    pub(crate) fn may_last(&mut self, id: ConnId, request: &mut Authorized<ReadRequest>) -> bool {
        let is_over = request.permit().is_over(self.state.now.wall);
        let problem = match self.judge_again(id, request) {
            Ok(()) if !is_over => return true,
            Ok(()) => Problem::new(Code::TokenExpired),
            Err(Refused::Denied(denied)) => problem_of(&denied, false),
            Err(Refused::Later) => Problem::overloaded(1),
        };
        self.answer_problem(id, &problem);
        false
    }

    fn judge_again(
        &mut self,
        id: ConnId,
        request: &mut Authorized<ReadRequest>,
    ) -> Result<(), Refused> {
        let now = self.state.now.wall;
        let Gate { access, verified, .. } = &mut self.state.gate;
        let Some(connection) = self.state.connections.get_mut(id) else { return Ok(()) };
        let client = connection.peer.client();
        access.decide_again(
            request,
            |read| need(Operation::Read, &read.path),
            verified,
            client,
            now,
        )
    }

    /// Judges some of what lasts by new rules, until all of it was judged.
    pub(crate) fn judge_some(&mut self) {
        let Some(slot) = self.state.deadlines.judge_slot else { return };
        if slot == 0 {
            self.state.gate.is_judging_late = false;
        }
        let next = self.look_at_some(slot, Self::judge_one);
        let again = self.state.gate.is_judging_late.then_some(0);
        self.state.deadlines.judge_slot = next.or(again);
        self.state.deadlines.is_behind |= self.state.deadlines.judge_slot.is_some();
    }

    /// Judges a reader that lasts; whether it was ended.
    fn judge_one(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        // It is taken out for a moment, so that the rules and the connection can be seen, too.
        let state = std::mem::replace(&mut connection.state, State::Head);
        let (state, judged) = match state {
            State::Sse(mut reader) => {
                let judged = self.judge_again(id, &mut reader.request);
                if let Some(number) = reader.live_number() {
                    self.state.live.renew_reader(reader.key, number, reader.as_live(id));
                }
                (State::Sse(reader), judged)
            }
            State::LongPoll(mut poll) => {
                let judged = self.judge_again(id, &mut poll.request);
                (State::LongPoll(poll), judged)
            }
            other => (other, Ok(())),
        };
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        connection.state = state;
        match judged {
            Ok(()) => false,
            Err(Refused::Later) => {
                self.state.gate.is_judging_late = true;
                false
            }
            Err(Refused::Denied(_)) => self.end_lasting(id),
        }
    }

    /// Ends a reader whose credential allows it no more; whether that is done.
    pub(crate) fn end_lasting(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        match &mut connection.state {
            State::Sse(reader) => {
                reader.is_revoked = true;
                let ends_now = reader.is_between_events();
                if ends_now {
                    self.end_sse_with_control(id);
                }
                ends_now
            }
            State::LongPoll(poll) => {
                let (key, number) = (poll.key, poll.number);
                poll.is_revoked = true;
                // One that a change has woken is answered in its turn.
                let is_waiting = self.state.live.has_poll(key, number);
                if is_waiting {
                    self.time_out_poll(id, number);
                }
                is_waiting
            }
            _ => false,
        }
    }
}

fn now(now: Stamp) -> Now {
    Now { wall: now.wall, monotonic: now.monotonic }
}

/// What a head shows, as the rules want it.
fn credential<'a>(proof: &'a Proof<'_>, path: &'a str) -> Credential<'a> {
    match proof {
        Proof::None => Credential::None,
        Proof::Unknown => Credential::Unknown,
        Proof::Bearer(token) => Credential::Bearer(token),
        Proof::Signed(query) => Credential::Signed(SignedUrl {
            path,
            prefix: query.prefix.as_deref(),
            key: &query.key,
            expires: &query.expires,
            signature: &query.signature,
        }),
    }
}

/// What a denial is to a client.
fn problem_of(denied: &Denied, is_producer: bool) -> Problem {
    match denied {
        Denied::Missing { operation, path } => Problem::token_missing(operation.name(), path),
        Denied::Invalid(why) => Problem::token_invalid(why.sentence()),
        Denied::Expired { at } => Problem::token_expired(*at),
        Denied::NotYet { .. } => Problem::token_invalid(
            "The token is not valid yet; compare the clock of its issuer with ours.",
        ),
        Denied::Insufficient { operation, path, who } => {
            Problem::access_denied(who, operation.name(), path, is_producer)
        }
        Denied::Limited(exceeded) => {
            let seconds = u32::try_from(exceeded.retry_after_ms.div_ceil(1000)).unwrap_or(u32::MAX);
            let detail = format!("The limit {} is used up.", exceeded.limit.name());
            Problem::with_detail(Code::RateLimited, detail).retry_after(seconds.max(1))
        }
    }
}
