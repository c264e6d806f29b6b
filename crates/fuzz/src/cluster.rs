//! What nodes of a cluster say to each other: any bytes are refused or come back as they were, and no message of a
//! peer ends the process.

use crate::input::Input;
use ::cluster::{
    Acceptor, Body, Change, CheckReport, Class, Configuration, Dialler, EntryBytes, Frame,
    GroupMessage, GroupReport, Hello, LogPosition, Member, MemberState, Membership, Meta,
    MetaCommand, NodeNumber, Note, Outbox, Part, Parts, Progress, Replica, ReplicaId, Report,
    Secret, Section, SentEntry, SnapshotPoint, Start, StateDigest, Terms, Transfer, TransferEnd,
    TransferSays, VERSION_MAX, VERSION_MIN, entry_of_command,
};
use bytes::Bytes;
use model::{EntryIndex, GroupId, Term, Timestamp};
use std::collections::BTreeMap;

fn id(node: u16) -> ReplicaId {
    ReplicaId::new(NodeNumber::new(node), 1)
}

/// The section in bytes that were received in parts: without a checksum of its own.
fn decoded(bytes: &[u8]) -> Option<Section> {
    let bytes = Bytes::copy_from_slice(bytes);
    let total = bytes.len() as u64;
    let part = Section::Part { number: 1, position: 0, total, bytes };
    Parts::default().take(&part).ok().flatten()
}

/// Input: a section. What is decoded comes back through a frame. So does a report in it.
pub fn section(data: &[u8]) {
    let Some(section) = decoded(data) else { return };
    if let Section::Report { payload } = &section
        && let Ok(report) = Report::decode(payload)
    {
        assert_eq!(report.encode(), payload[..]);
    }
    let mut outbox = Outbox::new();
    outbox.push(section.clone());
    let mut received = Vec::new();
    let mut parts = Parts::default();
    let mut frame = Vec::new();
    while outbox.next_frame(Timestamp::new(1), &mut frame) {
        let bytes = Bytes::from(std::mem::take(&mut frame));
        for section in Frame::decode(&bytes).expect("what is sent is a frame").sections {
            match section {
                Section::Part { .. } => {
                    received.extend(parts.take(&section).expect("parts in order"))
                }
                section => received.push(section),
            }
        }
    }
    assert_eq!(received, [section]);
}

fn encoded(section: &Section) -> Vec<u8> {
    let mut out = Vec::new();
    section.encode(&mut out);
    out
}

fn message(term: u64, body: Body) -> Vec<u8> {
    let message = GroupMessage { from: id(2), to: id(1), term: Term::new(term), body };
    encoded(&Section::Message { group: GroupId::new(3), message })
}

fn append(from: u64, kind: u8, command: &[u8]) -> Body {
    let at = LogPosition::new(from, 2);
    let bytes = entry_of_command(at, Timestamp::new(1), kind, command);
    let is_change = kind == ::cluster::KIND_CHANGE;
    let entries = vec![SentEntry { at, is_change, bytes: EntryBytes::Sent(bytes) }];
    let previous = LogPosition::new(from - 1, 1);
    Body::Append { previous, commit: EntryIndex::new(from), entries }
}

fn messages() -> Vec<Vec<u8>> {
    let at = LogPosition::new(3, 1);
    let index = at.index;
    let three = Configuration::of(&[id(1), id(2), id(3)]);
    let change = Change::Enter { revision: 300, parts: vec![(id(4), Part::Learner)] }.encode();
    let ask = |is_pre, is_transfer| Body::Ask { is_pre, is_transfer, last: at, commit: at };
    vec![
        message(2, ask(true, false)),
        message(2, ask(false, true)),
        message(2, Body::Vote { is_pre: true, is_granted: true, commit: LogPosition::default() }),
        message(2, Body::Vote { is_pre: false, is_granted: false, commit: at }),
        message(2, append(4, 2, b"append")),
        message(2, append(4, ::cluster::KIND_CHANGE, &change)),
        message(2, Body::Appended { index, commit: index }),
        message(2, Body::Rejected { index, hint: at, commit: index }),
        message(2, Body::Heartbeat { commit: index, read: 5 }),
        message(2, Body::Alive { commit: index, read: 5 }),
        message(
            2,
            Body::Snapshot(SnapshotPoint { last: LogPosition::new(9, 2), configuration: three }),
        ),
        message(2, Body::Campaign),
    ]
}

/// Sections of some kinds.
#[must_use]
pub fn section_seeds() -> Vec<Vec<u8>> {
    let (group, payload) = (GroupId::new(3), Bytes::from_static(b"opaque"));
    let mut seeds = messages();
    let forward =
        Section::Forward { group, request: 7, settled_below: 5, payload: payload.clone() };
    seeds.push(encoded(&forward));
    seeds.push(encoded(&Section::Answer { request: 7, payload }));
    seeds.push(encoded(&Section::Barrier { group, number: 8 }));
    seeds.push(encoded(&Section::Leave { opening: 9, is_done: false }));
    seeds.push(encoded(&Section::Removed { number: NodeNumber::new(2) }));
    seeds.push(encoded(&Section::Left { opening: 9, shard: 1, shard_count: 2 }));
    let bytes = Bytes::from_static(b"piece");
    let says = [
        TransferSays::Offer { is_begun: true, position: 9 },
        TransferSays::Piece { position: 9, first_bytes: 88, bytes },
        TransferSays::Got { position: 9, is_asked: true },
        TransferSays::End(TransferEnd::Whole),
    ];
    for says in says {
        let transfer = Transfer { from: id(2), to: id(3), number: 4, says };
        seeds.push(encoded(&Section::Transfer { group, transfer }));
    }
    let three = Configuration::of(&[id(1), id(2), id(3)]);
    let led = GroupReport::new((group, Term::new(5)), true, three, |replica| replica != id(2));
    let mut report = Report { copies: 4, halted: 1, groups: vec![led], ..Report::default() };
    report.note_lag(NodeNumber::new(2), 300);
    let (index, digest) = (EntryIndex::new(300), StateDigest::of_header(b"header"));
    report.checks.push(CheckReport { group, number: 2, index, digest });
    seeds.push(encoded(&Section::Report { payload: report.encode().into() }));
    seeds
}

/// Input: how the replica is to be driven, one byte for each step; behind 1 the length of a message and the message.
pub fn step(data: &[u8]) {
    let mut terms = Terms::new(LogPosition::new(1, 1));
    terms.push(LogPosition::new(2, 1), 60, false);
    terms.push(LogPosition::new(3, 1), 60, false);
    let mut replica: Replica = Replica::new(Start {
        id: id(1),
        seed: 1,
        configuration: Configuration::of(&[id(1), id(2), id(3)]),
        note: Note { term: Term::new(1), vote: None, commit: EntryIndex::new(2) },
        terms,
        applied: EntryIndex::new(2),
        changes: BTreeMap::new(),
    });
    let mut input = Input::new(data);
    let mut batch = 1;
    for _ in 0..64 {
        match input.byte() % 5 {
            0 => replica.tick(),
            1 => {
                if let Some(Section::Message { message, .. }) = decoded(input.piece()) {
                    let _ = replica.step(message);
                }
            }
            2 => _ = replica.propose(100),
            3 => _ = replica.confirm_read(),
            _ => batch += 1,
        }
        while let Some(ready) = replica.take_ready(batch) {
            if ready.install.is_some() {
                replica.installed(batch);
            }
            if let Some(upto) = ready.committed {
                replica.applied(upto.upto());
            }
        }
        let _ = replica.persisted(batch - 1);
    }
}

/// One message each, between ticks.
#[must_use]
pub fn step_seeds() -> Vec<Vec<u8>> {
    let around = |message: Vec<u8>| {
        let mut seed = vec![0, 1, message.len() as u8];
        seed.extend(message);
        seed.extend([4, 4, 2, 0, 3]);
        seed
    };
    let short = messages().into_iter().filter(|message| message.len() < 256);
    short.map(around).collect()
}

fn hello(number: u16) -> Hello {
    Hello {
        versions: (VERSION_MIN, VERSION_MAX),
        cluster: 5,
        store: number.into(),
        number: Some(NodeNumber::new(number)),
        shard: (0, 1),
        group_count: 64,
        epoch: 3,
        features: 0,
        nonce: [number as u8; 16],
        class: Class::Raft,
    }
}

/// Input: what a peer sends. Nobody gets in without the secret.
pub fn link(data: &[u8]) {
    let secret = Secret::new([7; 32]);
    let mut acceptor = Acceptor::new(hello(2), secret.clone());
    let (mut dialler, _) = Dialler::new(hello(1), secret);
    let mut rest = data;
    for _ in 0..4 {
        let step = acceptor.handle(rest, |_| Ok(()));
        assert!(!matches!(step.progress, Progress::Up(_)), "a stranger got in");
        assert!(step.used <= rest.len());
        rest = &rest[step.used..];
    }
    let mut rest = data;
    for _ in 0..4 {
        let step = dialler.handle(rest, |_| Ok(()));
        assert!(!matches!(step.progress, Progress::Up(_)), "a stranger was taken for a node");
        assert!(step.used <= rest.len());
        rest = &rest[step.used..];
    }
}

/// Hellos, with and without a proof.
#[must_use]
pub fn link_seeds() -> Vec<Vec<u8>> {
    let mut with_proof = hello(1).encode().to_vec();
    with_proof.extend([9; 32]);
    let other = Hello { cluster: 6, ..hello(1) };
    vec![hello(1).encode().to_vec(), with_proof, other.encode().to_vec(), b"ThNo".to_vec()]
}

/// Input: one byte that says what, and its bytes. What is decoded encodes to the same bytes.
pub fn state(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let mut out = Vec::new();
    match kind % 5 {
        0 => match Configuration::decode(bytes) {
            Ok(configuration) => configuration.encode(&mut out),
            Err(_) => return,
        },
        1 => match Change::decode(bytes) {
            Ok(change) => out = change.encode(),
            Err(_) => return,
        },
        2 => match MetaCommand::decode(bytes) {
            Ok(command) => {
                out = command.encode();
                let mut meta = Meta::new(1, 64);
                let _ = meta.apply(&command);
                let _ = meta.apply(&command);
            }
            Err(_) => return,
        },
        3 => match Meta::decode(bytes) {
            Ok(meta) => meta.encode(&mut out),
            Err(_) => return,
        },
        _ => match Membership::decode(&sealed(bytes)) {
            Ok(membership) => return assert_eq!(membership.encode(), sealed(bytes)),
            Err(_) => return,
        },
    }
    assert_eq!(out, bytes);
}

/// The bytes with the checksums of a `CLUSTER`, so that its fields may lie.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let Some((header, members)) = bytes.split_at_mut_checked(80) else { return bytes };
    header[64..68].copy_from_slice(&crc32c::crc32c(members).to_le_bytes());
    let crc = crc32c::crc32c(&header[..76]);
    header[76..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// One of each.
#[must_use]
pub fn state_seeds() -> Vec<Vec<u8>> {
    let member = Member {
        store: 7,
        peer_address: "n1:4439".to_owned(),
        client_address: "n1:4437".to_owned(),
        state: MemberState::Active,
        version: 1,
        epoch: 2,
    };
    let mut configuration = vec![0];
    Configuration::of(&[id(1), id(2)]).encode(&mut configuration);
    let parts = vec![(id(3), Part::Voter), (id(1), Part::Gone)];
    let change = [vec![1], Change::Enter { revision: 300, parts }.encode()].concat();
    let membership = [vec![4], Membership::first(7, 64, member.clone()).encode()].concat();
    let join = MetaCommand::Join(member);
    let command = [vec![2], join.encode()].concat();
    let mut meta = Meta::new(5, 64);
    meta.apply(&join);
    let mut state = vec![3];
    meta.encode(&mut state);
    let check = [vec![2], MetaCommand::Check.encode()].concat();
    vec![configuration, change, command, check, state, membership]
}
