//! Bodies that arrive in pieces: invited, collected and charged.
//!
//! # Why
//! A body that is whole behind its head never comes here; [`crate::receive`] uses it where it lies. What a
//! header announces costs nothing. Each piece is charged to admission as it arrives, and the charge ends with
//! the upload, however it ends.

use crate::{
    connection::{Pending, Receiving, State},
    pipeline::Touch,
    receive::{NO_DATA, Next},
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire::{BodyReader, Taken},
};
use access::Authorized;
use model::StreamPath;
use protocol::{problem::Problem, request::Request};
use stream::Append;

impl<T: Transport> Step<'_, T> {
    pub(crate) fn receive(
        &mut self,
        id: ConnId,
        request: Authorized<Request>,
        left: BodyReader,
        expects_invitation: bool,
    ) -> Next {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return Next::Stop };
        let receiving = Receiving { request, body: Vec::new(), left, since: now, charged_bytes: 0 };
        let receiving = Box::new(receiving);
        if !expects_invitation {
            connection.state = State::Body(receiving);
            return Next::Again;
        }
        if self.state.stopping.is_none()
            && let Some((path, append)) = announced(&receiving)
        {
            if let Some(connection) = self.state.connections.get_mut(id) {
                // What follows is its body, however much that looks like a request.
                connection.begin_exchange(Touch::ALONE);
            }
            let announce = node::Request::Announce { path, append };
            let announce = receiving.request.part(|_| announce);
            self.ask_for(id, Pending::Announced(receiving), announce, NO_DATA);
            return Next::Stop;
        }
        self.invite(id, receiving);
        Next::Again
    }

    /// Asks the client to send the body that it announced.
    pub(crate) fn invite(&mut self, id: ConnId, mut receiving: Box<Receiving>) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        receiving.since = now;
        connection.progress = now;
        connection.state = State::Body(receiving);
        if connection.invite(self.io, now).is_err() {
            self.drop_connection(id);
        }
    }

    pub(crate) fn take_body(&mut self, id: ConnId, bytes: &[u8]) -> (usize, Next) {
        let Some(connection) = self.state.connections.get_mut(id) else { return (0, Next::Stop) };
        let State::Body(receiving) = &mut connection.state else { return (0, Next::Stop) };
        let before = receiving.body.len();
        let (used, done) = match receiving.left.take(bytes, &mut receiving.body) {
            Ok(Taken { bytes, is_done }) => (bytes, is_done),
            Err(problem) => {
                connection.meta.keep_alive = false;
                self.abandon_body(id);
                self.answer_problem(id, &problem);
                return (bytes.len(), Next::Stop);
            }
        };
        let arrived = receiving.body.len() - before;
        receiving.charged_bytes += arrived;
        let in_flight = self.state.admission.charge(arrived);
        if in_flight > self.state.options.body_bytes_in_flight_max && !done {
            connection.meta.keep_alive = false;
            self.abandon_body(id);
            self.state.counts.rejected += 1;
            self.answer_problem(id, &Problem::overloaded(1));
            return (bytes.len(), Next::Stop);
        }
        if !done {
            return (used, Next::Stop);
        }
        self.finish_body(id);
        (used, Next::Again)
    }

    /// All of a body has come.
    pub(crate) fn finish_body(&mut self, id: ConnId) {
        let Some(receiving) = self.abandon_body(id) else { return };
        if !receiving.left.is_length_known() {
            self.charge_late(id, &receiving.request, receiving.body.len());
        }
        self.finish_collected(id, receiving.request, receiving.body);
    }

    /// Takes the body that a connection was receiving out of it, and its charge back.
    pub(crate) fn abandon_body(&mut self, id: ConnId) -> Option<Box<Receiving>> {
        let connection = self.state.connections.get_mut(id)?;
        if !matches!(connection.state, State::Body(_)) {
            return None;
        }
        let state = std::mem::replace(&mut connection.state, State::Head);
        let State::Body(receiving) = state else { return None };
        self.state.admission.release(receiving.charged_bytes);
        Some(receiving)
    }
}

/// What the node can judge of an append before its data is there. A body in chunks may turn out
/// empty, and a close without data is judged otherwise than one with data.
fn announced(receiving: &Receiving) -> Option<(StreamPath, Append)> {
    let Request::Append(request) = receiving.request.get() else { return None };
    let append = request.announced();
    let has_data = receiving.left.is_length_known();
    (has_data || !append.close).then(|| (request.path.clone(), append))
}
