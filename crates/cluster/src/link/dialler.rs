//! The side that dials.

use super::hello::{HELLO_BYTES, Hello, PROOF_BYTES, Secret, Side};
use super::refusal::{self, PROOF_PLACE, Refusal};
use super::{Progress, Step};

/// What an acceptor says when all is well.
pub(super) const WELCOME: &[u8; 4] = b"ThOk";

#[derive(Debug)]
enum State {
    /// Waits for the acceptor's hello and proof.
    Greeted,
    /// Has proved itself, and waits for the welcome.
    Proved(Box<Hello>),
}

/// The side that dials a link, and sends on it.
#[derive(Debug)]
pub struct Dialler {
    hello: Hello,
    secret: Secret,
    state: State,
}

impl Dialler {
    /// Begins, with the bytes to send first.
    #[must_use]
    pub fn new(hello: Hello, secret: Secret) -> (Self, Vec<u8>) {
        let bytes = hello.encode().to_vec();
        (Self { hello, secret, state: State::Greeted }, bytes)
    }

    /// Takes all bytes that have arrived and were not used. `check` says whether this is the node that was dialled, and
    /// whether the cluster knows it; it is asked of a node that has proved that it knows the secret.
    pub fn handle(
        &mut self,
        bytes: &[u8],
        check: impl FnOnce(&Hello) -> Result<(), Refusal>,
    ) -> Step {
        if bytes.starts_with(refusal::MAGIC) {
            let Some(bytes) = bytes.first_chunk() else { return Step::more() };
            let refusal = self.believed(bytes).unwrap_or(Refusal::NotANode);
            return Step::refused(refusal::BYTES, Vec::new(), refusal);
        }
        match &self.state {
            State::Greeted => self.handle_hello(bytes, check),
            State::Proved(acceptor) => match bytes.first_chunk() {
                None => Step::more(),
                Some(WELCOME) => {
                    let progress = Progress::Up(acceptor.clone());
                    Step { used: WELCOME.len(), send: Vec::new(), progress }
                }
                Some(_) => Step::refused(0, Vec::new(), Refusal::NotANode),
            },
        }
    }

    /// A refusal, as far as its sender may say so.
    fn believed(&self, bytes: &[u8; refusal::BYTES]) -> Option<Refusal> {
        let refusal = Refusal::decode(bytes)?;
        if !matches!(refusal, Refusal::Removed { .. }) {
            return Some(refusal);
        }
        let State::Proved(acceptor) = &self.state else { return None };
        let proof = bytes[PROOF_PLACE].try_into().expect("it has the length of a proof");
        let is_proved = self.secret.verify(Side::Remover, (&self.hello, acceptor), proof);
        is_proved.then_some(refusal)
    }

    fn handle_hello(
        &mut self,
        bytes: &[u8],
        check: impl FnOnce(&Hello) -> Result<(), Refusal>,
    ) -> Step {
        let Some(bytes) = bytes.first_chunk::<{ HELLO_BYTES + PROOF_BYTES }>() else {
            return Step::more();
        };
        let (hello, proof) = bytes.split_first_chunk().expect("the lengths add up");
        let proof = proof.try_into().expect("the lengths add up");
        let Some(acceptor) = Hello::decode(hello) else {
            return Step::refused(0, Vec::new(), Refusal::NotANode);
        };
        if acceptor.cluster != self.hello.cluster {
            let (theirs, ours) = (acceptor.cluster, self.hello.cluster);
            return Step::refused(0, Vec::new(), Refusal::OtherCluster { theirs, ours });
        }
        if !self.secret.verify(Side::Acceptor, (&self.hello, &acceptor), proof) {
            return Step::refused(0, Vec::new(), Refusal::Secret);
        }
        // Before its own proof: so a link to the wrong node does not end the one that is there.
        if let Err(refusal) = check(&acceptor) {
            return Step::refused(0, Vec::new(), refusal);
        }
        let send = self.secret.prove(Side::Dialler, &self.hello, &acceptor).to_vec();
        self.state = State::Proved(Box::new(acceptor));
        Step { used: bytes.len(), send, progress: Progress::More }
    }
}
