//! How a node becomes a member: one question and one answer, on a link of their own.
//!
//! # What
//! A joiner has a token: the cluster, its secret, and the address of a member. It dials that member with a hello without a
//! number, both prove that they know the secret, and then it asks ([`JoinQuestion`]). The member has the command carried out where
//! the cluster's own group is led, and answers on the same link ([`JoinAnswer`]). Then the link is closed.
//!
//! # Driving it
//! The joiner: [`Joiner::new`] gives the first bytes to send, [`Joiner::handle`] takes what arrives. The member's hello says how many
//! groups there are. With that the joiner makes its data directory, whose lineage is the cluster, and only then it asks
//! ([`Joiner::ask`]). [`JoinAnswer::membership`] is its file `CLUSTER`. It may ask again after any failure, of any member: a directory
//! that has joined already gets the same number.
//!
//! The member: [`crate::Heard::question`] of [`crate::Inbound`], then [`crate::MetaCommand::Join`]. Its own file `CLUSTER` must have
//! the joiner, durably, before [`JoinAnswer::encode`] goes out.
//!
//! # Bounds
//! A question has at most 1 KiB, an answer at most [`crate::MEMBERSHIP_BYTES_MAX`].
//!
//! # Format
//! `docs/format/cluster.md`.

use crate::codec::{DecodeError, Reader, Writer};
use crate::identity::NodeNumber;
use crate::link::{Dialler, Hello, Progress, Refusal, Secret};
use crate::meta::{
    MEMBERSHIP_BYTES_MAX, Member, Membership, MetaRefusal, read_member, read_members, read_number,
    read_refusal, write_member, write_members, write_refusal,
};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes before a question or an answer: its length and its checksum.
const HEAD_BYTES: usize = 8;

/// Largest question: two addresses and some numbers.
pub(crate) const QUESTION_BYTES_MAX: usize = 1 << 10;

/// What a joiner asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinQuestion {
    /// What the cluster is to know of it.
    pub member: Member,
}

/// What a member answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinAnswer {
    /// It is one of the cluster.
    Joined {
        /// Its number.
        number: NodeNumber,
        /// Groups of the cluster.
        group_count: u16,
        /// All members that are known, itself too.
        members: BTreeMap<NodeNumber, Member>,
    },
    /// The cluster refuses it.
    Refused(MetaRefusal),
    /// Nobody could be asked: the cluster has no leader at the moment, or groups of its first node are no copies yet. Ask again.
    NotNow,
}

/// Why a node does not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinError {
    /// Its data directory has streams.
    NotEmpty {
        /// How many.
        streams: u64,
    },
    /// Its settings say another number of groups than the cluster has.
    GroupCount {
        /// What they say.
        asked: u16,
        /// The cluster's.
        cluster: u16,
    },
    /// The member that it asked does not talk to it.
    Link(Refusal),
    /// The cluster refuses it.
    Refused(MetaRefusal),
    /// The cluster has no leader at the moment, or its first node has not begun.
    NotNow,
    /// What came is no answer.
    NoAnswer,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmpty { streams } => {
                write!(f, "the data directory holds {streams} streams; a node joins empty")
            }
            Self::GroupCount { asked, cluster } => write!(
                f,
                "the cluster has {cluster} groups, and the setting groups says {asked}; leave it out, or set it to \
                 {cluster}"
            ),
            Self::Link(refusal) => refusal.fmt(f),
            Self::Refused(MetaRefusal::WasRemoved(number)) => write!(
                f,
                "the data directory was node {number}, which was removed from the cluster; join with an empty one"
            ),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NotNow => {
                f.write_str("the cluster has no leader at the moment, or groups of its first node have none; it is asked again")
            }
            Self::NoAnswer => f.write_str("the member gave an answer that makes no sense"),
        }
    }
}

impl std::error::Error for JoinError {}

impl JoinError {
    /// Whether the same question may get another answer soon.
    #[must_use]
    pub fn is_for_now(&self) -> bool {
        matches!(self, Self::NotNow)
    }
}

impl JoinQuestion {
    /// The bytes on the link.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        framed(|writer| write_member(writer, &self.member))
    }

    /// The question at the beginning of `bytes`, and its length; `None` if it is not whole yet.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((payload, used)) = unframed(bytes, QUESTION_BYTES_MAX)? else { return Ok(None) };
        let mut reader = Reader::new(payload);
        let member = read_member(&mut reader)?;
        reader.end()?;
        Ok(Some((Self { member }, used)))
    }
}

impl JoinAnswer {
    /// The bytes on the link.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        framed(|writer| match self {
            Self::Joined { number, group_count, members } => {
                writer.byte(1);
                writer.number(number.get().into());
                writer.number((*group_count).into());
                write_members(writer, members);
            }
            Self::Refused(refusal) => {
                writer.byte(2);
                write_refusal(writer, *refusal);
            }
            Self::NotNow => writer.byte(3),
        })
    }

    /// The answer at the beginning of `bytes`, and its length; `None` if it is not whole yet.
    ///
    /// # Errors
    /// [`DecodeError`], also if the joiner is not among the members.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((payload, used)) = unframed(bytes, MEMBERSHIP_BYTES_MAX)? else { return Ok(None) };
        let mut reader = Reader::new(payload);
        let answer = match reader.byte()? {
            1 => {
                let (number, group_count) = (read_number(&mut reader)?, reader.short()?);
                let members = read_members(&mut reader)?;
                if !members.contains_key(&number) || group_count == 0 {
                    return reader.error();
                }
                Self::Joined { number, group_count, members }
            }
            2 => Self::Refused(read_refusal(&mut reader)?),
            3 => Self::NotNow,
            _ => return reader.error(),
        };
        reader.end()?;
        Ok(Some((answer, used)))
    }

    /// What the joiner writes into its new data directory: that is of `cluster`, and was not opened yet.
    ///
    /// # Errors
    /// Why it is no member.
    pub fn membership(
        self,
        cluster: u64,
        asked_groups: Option<u16>,
    ) -> Result<Membership, JoinError> {
        let (number, group_count, members) = match self {
            Self::Joined { number, group_count, members } => (number, group_count, members),
            Self::Refused(refusal) => return Err(JoinError::Refused(refusal)),
            Self::NotNow => return Err(JoinError::NotNow),
        };
        if let Some(asked) = asked_groups.filter(|asked| *asked != group_count) {
            return Err(JoinError::GroupCount { asked, cluster: group_count });
        }
        let store = members.get(&number).ok_or(JoinError::NoAnswer)?.store;
        let (incarnation, epoch, revision) = (1, 0, 0);
        Ok(Membership {
            cluster,
            store,
            group_count,
            number,
            incarnation,
            epoch,
            revision,
            members,
        })
    }
}

fn framed(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut payload = Vec::new();
    write(&mut Writer(&mut payload));
    let length = u32::try_from(payload.len()).expect("it is bounded far below 4 GiB");
    let mut out = length.to_le_bytes().to_vec();
    out.extend(crc32c::crc32c(&payload).to_le_bytes());
    out.extend(payload);
    out
}

fn unframed(bytes: &[u8], max: usize) -> Result<Option<(&[u8], usize)>, DecodeError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let length = word(0) as usize;
    if length > max {
        return Err(DecodeError { position: 0 });
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    if crc32c::crc32c(payload) != word(4) {
        return Err(DecodeError { position: 4 });
    }
    Ok(Some((payload, HEAD_BYTES + length)))
}

/// The joiner's side.
#[derive(Debug)]
pub struct Joiner {
    dialler: Dialler,
    is_up: bool,
    received: Vec<u8>,
}

/// What to do after bytes have arrived.
#[derive(Debug, Default)]
pub struct Joining {
    /// Bytes to send.
    pub send: Vec<u8>,
    /// The member has proved who it is just now: [`Joiner::ask`] it.
    pub up: Option<Hello>,
    /// What came of it: close the link.
    pub end: Option<Result<JoinAnswer, JoinError>>,
}

impl Joiner {
    /// Begins, with the bytes to send first. `hello` has no number.
    ///
    /// # Panics
    /// If it has one.
    #[must_use]
    pub fn new(hello: Hello, secret: Secret) -> (Self, Vec<u8>) {
        assert!(hello.number.is_none(), "who has a number is a member");
        let (dialler, first) = Dialler::new(hello, secret);
        (Self { dialler, is_up: false, received: Vec::new() }, first)
    }

    /// The bytes of the question, whose directory is that of the hello.
    ///
    /// # Panics
    /// If the member has not proved who it is.
    #[must_use]
    pub fn ask(&self, question: &JoinQuestion) -> Vec<u8> {
        assert!(self.is_up, "only a member that has proved who it is may know");
        question.encode()
    }

    /// Takes bytes as they come.
    pub fn handle(&mut self, bytes: &[u8]) -> Joining {
        self.received.extend_from_slice(bytes);
        let mut joining = Joining::default();
        while joining.end.is_none() && !self.is_up {
            let step = self.dialler.handle(&self.received, |_| Ok(()));
            self.received.drain(..step.used);
            joining.send.extend(step.send);
            match step.progress {
                Progress::Refused(refusal) => joining.end = Some(Err(JoinError::Link(refusal))),
                Progress::Up(hello) => {
                    self.is_up = true;
                    joining.up = Some(*hello);
                }
                Progress::More if step.used == 0 => return joining,
                Progress::More => {}
            }
        }
        if joining.end.is_none() {
            joining.end = match JoinAnswer::decode(&self.received) {
                Ok(answer) => answer.map(|(answer, _)| Ok(answer)),
                Err(_) => Some(Err(JoinError::NoAnswer)),
            };
        }
        joining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Inbound;
    use crate::meta::MemberState;

    const SECRET: Secret = Secret::new([7; 32]);

    fn member(store: u64) -> Member {
        Member {
            store,
            peer_address: format!("n{store}:4439"),
            client_address: "http://n".to_owned(),
            state: MemberState::Active,
            version: 1,
            epoch: 0,
        }
    }

    fn hello(store: u64, number: Option<u16>) -> Hello {
        Hello {
            group_count: if number.is_some() { 64 } else { 0 },
            nonce: [store as u8; 16],
            ..crate::meta::tests::hello(store, number, 0)
        }
    }

    fn joined() -> JoinAnswer {
        let members =
            [(1, 9), (2, 5)].map(|(number, store)| (NodeNumber::new(number), member(store)));
        JoinAnswer::Joined { number: NodeNumber::new(2), group_count: 64, members: members.into() }
    }

    fn answers() -> [JoinAnswer; 3] {
        [
            joined(),
            JoinAnswer::Refused(MetaRefusal::WasRemoved(NodeNumber::new(3))),
            JoinAnswer::NotNow,
        ]
    }

    /// What a joiner hears of a member that knows `secret`, if bytes come one by one.
    fn exchange(secret: Secret, answer: &JoinAnswer) -> Result<JoinAnswer, JoinError> {
        let question = JoinQuestion { member: member(5) };
        let (mut joiner, mut to_member) = Joiner::new(hello(5, None), SECRET);
        let mut door = Inbound::new(hello(9, Some(1)), secret);
        for _ in 0..10 {
            let mut to_joiner = Vec::new();
            for byte in std::mem::take(&mut to_member) {
                let heard = door.handle(&[byte], &|_| Ok(()));
                to_joiner.extend(heard.send);
                if let Some(asked) = heard.question {
                    assert_eq!(asked, question);
                    to_joiner.extend(answer.encode());
                }
            }
            for byte in to_joiner {
                let joining = joiner.handle(&[byte]);
                to_member.extend(joining.send);
                if let Some(member) = joining.up {
                    assert_eq!((member.number, member.group_count), (Some(NodeNumber::new(1)), 64));
                    to_member.extend(joiner.ask(&question));
                }
                if let Some(end) = joining.end {
                    return end;
                }
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn a_joiner_gets_the_answer_of_the_cluster() {
        for answer in answers() {
            assert_eq!(exchange(SECRET, &answer), Ok(answer));
        }
    }

    #[test]
    fn who_does_not_know_the_secret_is_asked_nothing() {
        let refused = exchange(Secret::new([8; 32]), &joined());
        assert_eq!(refused, Err(JoinError::Link(Refusal::Secret)));
    }

    #[test]
    fn the_answer_is_what_a_new_directory_begins_with() {
        let membership = joined().membership(0xc1, None).unwrap();
        assert_eq!(
            (membership.store, membership.number.get(), membership.members.len()),
            (5, 2, 2)
        );
        assert_eq!(Membership::decode(&membership.encode()), Ok(membership));
        let other = joined().membership(0xc1, Some(8)).unwrap_err();
        assert!(other.to_string().starts_with("the cluster has 64 groups"), "{other}");
        let removed = answers()[1].clone().membership(0xc1, None).unwrap_err();
        assert!(removed.to_string().contains("was removed"), "{removed}");
        assert!(JoinAnswer::NotNow.membership(0xc1, None).unwrap_err().is_for_now());
    }

    #[test]
    fn a_flipped_bit_is_no_answer_and_a_beginning_is_none_yet() {
        for answer in answers() {
            let bytes = answer.encode();
            assert_eq!(JoinAnswer::decode(&bytes), Ok(Some((answer.clone(), bytes.len()))));
            for length in 0..bytes.len() {
                assert_eq!(JoinAnswer::decode(&bytes[..length]), Ok(None), "{length} bytes");
            }
            for bit in 32..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(JoinAnswer::decode(&damaged).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn questions_have_golden_bytes() {
        let bytes = JoinQuestion { member: member(5) }.encode();
        let golden = b"\x15\0\0\0\xb8\xf7\xf3\x04\x05\x07n5:4439\x08http://n\x00\x01\x00";
        assert_eq!(bytes[8..], golden[8..]);
        assert_eq!(bytes[..4], golden[..4]);
    }
}
