//! The side that accepts.

use super::dialler::WELCOME;
use super::hello::{HELLO_BYTES, Hello, PROOF_BYTES, Secret, Side};
use super::refusal::{PROOF_PLACE, Refusal};
use super::{Progress, Step};

#[derive(Debug)]
enum State {
    /// Waits for the dialler's hello.
    New,
    /// Has proved itself, and waits for the dialler's proof.
    Proved(Box<Hello>),
}

/// The side that accepts a link, and receives on it.
#[derive(Debug)]
pub struct Acceptor {
    hello: Hello,
    secret: Secret,
    state: State,
}

impl Acceptor {
    /// Begins; `hello` is what it will say of itself.
    #[must_use]
    pub fn new(hello: Hello, secret: Secret) -> Self {
        Self { hello, secret, state: State::New }
    }

    /// Takes all bytes that have arrived and were not used. `check` says whether the cluster knows that node
    /// and lets it in; it is asked only of a node that has proved that it knows the secret.
    pub fn handle(
        &mut self,
        bytes: &[u8],
        check: impl FnOnce(&Hello) -> Result<(), Refusal>,
    ) -> Step {
        match &self.state {
            State::New => self.handle_hello(bytes),
            State::Proved(dialler) => {
                let Some(proof) = bytes.first_chunk::<PROOF_BYTES>() else { return Step::more() };
                let is_proved = self.secret.verify(Side::Dialler, (dialler, &self.hello), proof);
                let checked = if is_proved { check(dialler) } else { Err(Refusal::Secret) };
                if let Err(refusal) = checked {
                    let mut bytes = refusal.encode();
                    if matches!(refusal, Refusal::Removed { .. }) {
                        let proof = self.secret.prove(Side::Remover, dialler, &self.hello);
                        bytes[PROOF_PLACE].copy_from_slice(&proof);
                    }
                    return Step::refused(PROOF_BYTES, bytes.to_vec(), refusal);
                }
                let progress = Progress::Up(dialler.clone());
                Step { used: PROOF_BYTES, send: WELCOME.to_vec(), progress }
            }
        }
    }

    fn handle_hello(&mut self, bytes: &[u8]) -> Step {
        let Some(bytes) = bytes.first_chunk::<HELLO_BYTES>() else { return Step::more() };
        let Some(dialler) = Hello::decode(bytes) else {
            // No words for strangers: they may speak anything.
            return Step::refused(0, Vec::new(), Refusal::NotANode);
        };
        if let Err(refusal) = self.check_alike(&dialler) {
            return Step::refused(HELLO_BYTES, refusal.encode().to_vec(), refusal);
        }
        let mut send = self.hello.encode().to_vec();
        send.extend(self.secret.prove(Side::Acceptor, &dialler, &self.hello));
        self.state = State::Proved(Box::new(dialler));
        Step { used: HELLO_BYTES, send, progress: Progress::More }
    }

    /// What may be said without a secret, and without the state of the cluster.
    fn check_alike(&self, dialler: &Hello) -> Result<(), Refusal> {
        if self.hello.common_version(dialler).is_none() {
            return Err(Refusal::Version { theirs: dialler.versions });
        }
        if dialler.cluster != self.hello.cluster {
            let (theirs, ours) = (dialler.cluster, self.hello.cluster);
            return Err(Refusal::OtherCluster { theirs, ours });
        }
        if dialler.store == self.hello.store {
            return Err(Refusal::Itself);
        }
        // A node that joins takes the cluster's number of groups from its hello.
        let groups_differ = dialler.group_count != self.hello.group_count;
        if groups_differ && dialler.number.is_some() {
            let (theirs, ours) = (dialler.group_count, self.hello.group_count);
            return Err(Refusal::GroupCount { theirs, ours });
        }
        Ok(())
    }
}
