use super::*;
use crate::link::{Class, VERSION_MAX, VERSION_MIN};

fn number(number: u16) -> NodeNumber {
    NodeNumber::new(number)
}

fn node(store: u64) -> Member {
    Member {
        store,
        peer_address: format!("n{store}:4439"),
        client_address: String::new(),
        state: MemberState::Active,
        version: 1,
        epoch: 4,
    }
}

/// A cluster of three.
fn cluster() -> Meta {
    let mut meta = Meta::new(0xc1, 64);
    for store in [11, 12, 13] {
        meta.apply(&MetaCommand::Join(node(store)));
    }
    meta
}

pub(crate) fn hello(store: u64, number: Option<u16>, epoch: u64) -> Hello {
    Hello {
        versions: (VERSION_MIN, VERSION_MAX),
        cluster: 0xc1,
        store,
        number: number.map(NodeNumber::new),
        shard: (0, 1),
        group_count: 64,
        epoch,
        features: 0,
        nonce: [0; 16],
        class: Class::Raft,
    }
}

fn remove(meta: &mut Meta, of: u16) -> MetaOutcome {
    meta.apply(&MetaCommand::SetState { number: number(of), state: MemberState::Removed })
}

#[test]
fn numbers_come_in_the_order_of_joining_and_never_again() {
    let mut meta = cluster();
    assert_eq!(meta.apply(&MetaCommand::Join(node(12))), MetaOutcome::Joined(number(2)));
    assert_eq!(remove(&mut meta, 3), MetaOutcome::Done);
    assert_eq!(meta.apply(&MetaCommand::Join(node(14))), MetaOutcome::Joined(number(4)));
    let refused = MetaOutcome::Refused(MetaRefusal::WasRemoved(number(3)));
    assert_eq!(meta.apply(&MetaCommand::Join(node(13))), refused);
    assert_eq!(remove(&mut meta, 3), MetaOutcome::Refused(MetaRefusal::NoMember(number(3))));
}

#[test]
fn hellos_are_judged_by_what_is_known_of_the_node() {
    let mut meta = cluster();
    assert_eq!(meta.check_hello(&hello(11, Some(1), 4)), Ok(()));
    assert_eq!(meta.check_hello(&hello(99, None, 1)), Ok(()));
    let old = Refusal::OldDisk { theirs: 3, known: 4 };
    assert_eq!(meta.check_hello(&hello(11, Some(1), 3)), Err(old));
    let other = Refusal::OtherStore { number: number(2) };
    assert_eq!(meta.check_hello(&hello(11, Some(2), 4)), Err(other));
    let unknown = Refusal::Unknown { number: number(9) };
    assert_eq!(meta.check_hello(&hello(11, Some(9), 4)), Err(unknown));
    remove(&mut meta, 1);
    let removed = Refusal::Removed { number: number(1) };
    assert_eq!(meta.check_hello(&hello(11, Some(1), 4)), Err(removed));
    assert_eq!(meta.check_hello(&hello(11, None, 4)), Err(removed));
}

#[test]
fn an_announced_epoch_never_falls_and_the_state_stays() {
    let mut meta = cluster();
    meta.apply(&MetaCommand::SetState { number: number(1), state: MemberState::Draining });
    let member = Member { epoch: 7, peer_address: "moved:1".into(), ..node(11) };
    let announce = MetaCommand::Announce { number: number(1), member };
    assert_eq!(meta.apply(&announce), MetaOutcome::Done);
    let known = meta.member(number(1)).unwrap();
    assert_eq!((known.epoch, known.state), (7, MemberState::Draining));
    let old = MetaCommand::Announce { number: number(1), member: node(11) };
    assert_eq!(meta.apply(&old), MetaOutcome::Refused(MetaRefusal::OldDisk));
    let other = MetaCommand::Announce { number: number(2), member: node(11) };
    assert_eq!(meta.apply(&other), MetaOutcome::Refused(MetaRefusal::OtherStore(number(2))));
}

#[test]
fn a_replica_that_lost_something_gets_one_new_id_however_often_that_is_said() {
    let mut meta = cluster();
    let group = GroupId::new(7);
    let first = meta.replica(group, number(2));
    let mut renew =
        |replica: ReplicaId, epoch| meta.apply(&MetaCommand::Renew { group, replica, epoch });
    let second = first.successor();
    for _ in 0..2 {
        assert_eq!(renew(first, 4), MetaOutcome::Renewed(second), "repeated, it is the same");
    }
    let third = second.successor();
    assert_eq!(renew(second, 4), MetaOutcome::Renewed(third), "that one was lost, too");
    // A later opening does not know what an earlier one has used.
    assert_eq!(renew(first, 5), MetaOutcome::Renewed(third.successor()));
    assert_eq!(renew(first, 5), MetaOutcome::Renewed(third.successor()));
    let impossible = MetaOutcome::Refused(MetaRefusal::Impossible);
    assert_eq!(renew(third.successor(), 4), impossible, "it comes from an opening that is over");
    assert_eq!(meta.replica(group, number(2)), third.successor());
    assert_eq!(meta.renewed(group, number(2), 5), Some(third.successor()));
    assert_eq!(meta.renewed(group, number(2), 6), None, "this opening has not asked");
    assert_eq!(meta.replica(GroupId::new(8), number(2)), first);
}

#[test]
fn groups_are_placed_on_members_only() {
    let mut meta = cluster();
    let place = |group, nodes: &[u16]| MetaCommand::Place {
        group: GroupId::new(group),
        nodes: nodes.iter().map(|node| number(*node)).collect(),
    };
    assert_eq!(meta.apply(&place(5, &[3, 1])), MetaOutcome::Done);
    assert_eq!(meta.target(GroupId::new(5)), [number(1), number(3)]);
    assert_eq!(meta.apply(&place(64, &[1])), MetaOutcome::Done);
    let impossible = MetaOutcome::Refused(MetaRefusal::Impossible);
    assert_eq!(meta.apply(&place(65, &[1])), impossible);
    assert_eq!(meta.apply(&place(5, &[1, 1])), impossible);
    assert_eq!(meta.apply(&place(5, &[])), impossible);
    let nobody = MetaOutcome::Refused(MetaRefusal::NoMember(number(9)));
    assert_eq!(meta.apply(&place(5, &[9])), nobody);
    assert_eq!(meta.apply(&MetaCommand::SetReplication(5)), MetaOutcome::Done);
    assert_eq!(meta.apply(&MetaCommand::SetReplication(2)), impossible);
}

#[test]
fn a_node_is_free_when_every_group_has_said_that_it_is_elsewhere() {
    let mut meta = Meta::new(0xc1, 1);
    for store in [11, 12, 13] {
        meta.apply(&MetaCommand::Join(node(store)));
    }
    let nodes = vec![number(1), number(2)];
    let revision = 1;
    for group in (0..=1).map(GroupId::new) {
        assert!(!meta.is_free(number(3)));
        meta.apply(&MetaCommand::Place { group, nodes: nodes.clone() });
        assert!(!meta.is_free(number(3)), "nobody has said that it is so");
        let placed = |revision| MetaCommand::Placed { group, nodes: nodes.clone(), revision };
        meta.apply(&placed(0));
        assert!(!meta.is_free(number(3)), "its next leader may know an older target");
        meta.apply(&placed(revision));
    }
    assert!(meta.is_free(number(3)) && !meta.is_free(number(2)));
    assert_eq!(meta.listeners(), [number(3)], "it may lead other groups");
    let state = MemberState::Leaving;
    meta.apply(&MetaCommand::SetState { number: number(3), state });
    assert_eq!(meta.listeners(), []);
    let group = GroupId::new(0);
    meta.apply(&MetaCommand::Placed { group, nodes: vec![number(1), number(3)], revision });
    assert!(!meta.is_free(number(3)), "it is on the way");
    assert_eq!(meta.listeners(), [number(3)], "it may lead what is still on it");
}

#[test]
fn each_target_of_a_group_has_a_revision_and_older_reports_change_nothing() {
    let mut meta = cluster();
    let (group, other) = (GroupId::new(4), GroupId::new(5));
    assert_eq!((meta.revision(group), meta.placed_revision(group)), (0, 0));
    for revision in 1..=3 {
        meta.apply(&MetaCommand::Place { group, nodes: vec![number(1), number(2)] });
        assert_eq!((meta.revision(group), meta.revision(other)), (revision, 0));
    }
    meta.apply(&MetaCommand::Place { group, nodes: vec![number(9)] });
    assert_eq!(meta.revision(group), 3, "that one is none");
    let mut placed = |node, revision| {
        meta.apply(&MetaCommand::Placed { group, nodes: vec![number(node)], revision })
    };
    placed(1, 2);
    placed(2, 3);
    placed(3, 2);
    assert_eq!((meta.placed(group), meta.placed_revision(group)), (&[number(2)][..], 3));
}

#[test]
fn the_version_is_the_oldest_of_those_present() {
    let mut meta = cluster();
    meta.apply(&MetaCommand::Join(Member { version: 3, ..node(14) }));
    assert_eq!(meta.version(), 1);
    for of in 1..=3 {
        remove(&mut meta, of);
    }
    assert_eq!(meta.version(), 3);
}

#[test]
fn the_state_comes_back_from_its_bytes() {
    let mut meta = cluster();
    remove(&mut meta, 2);
    let group = GroupId::new(9);
    meta.apply(&MetaCommand::Place { group, nodes: vec![number(1), number(3)] });
    let replica = meta.replica(group, number(3));
    meta.apply(&MetaCommand::Renew { group, replica, epoch: 6 });
    meta.apply(&MetaCommand::Placed { group, nodes: vec![number(1)], revision: 8 });
    assert_eq!(meta.apply(&MetaCommand::Check), MetaOutcome::Checking(1));
    assert_eq!((meta.apply(&MetaCommand::Check), meta.checks()), (MetaOutcome::Checking(2), 2));
    let mut out = Vec::new();
    meta.encode(&mut out);
    assert_eq!(Meta::decode(&out), Ok(meta));
    for length in 0..out.len() {
        assert!(Meta::decode(&out[..length]).is_err(), "{length} bytes are no state");
    }
}

#[test]
fn commands_have_golden_bytes() {
    let goldens: [(MetaCommand, &[u8]); 8] = [
        (MetaCommand::Join(node(1)), b"\x01\x01\x07n1:4439\x00\x00\x01\x04"),
        (
            MetaCommand::Announce { number: number(2), member: node(1) },
            b"\x02\x02\x01\x07n1:4439\x00\x00\x01\x04",
        ),
        (MetaCommand::SetState { number: number(3), state: MemberState::Leaving }, b"\x03\x03\x02"),
        (
            MetaCommand::Place { group: GroupId::new(200), nodes: vec![number(1), number(3)] },
            b"\x04\xc8\x01\x02\x01\x03",
        ),
        (
            MetaCommand::Renew {
                group: GroupId::new(7),
                replica: ReplicaId::new(number(1), 1),
                epoch: 9,
            },
            b"\x05\x07\x81\x80\x80\x80\x80\x80\x40\x09",
        ),
        (MetaCommand::SetReplication(5), b"\x06\x05"),
        (
            MetaCommand::Placed {
                group: GroupId::new(3),
                nodes: vec![number(1), number(2)],
                revision: 300,
            },
            b"\x07\x03\x02\x01\x02\xac\x02",
        ),
        (MetaCommand::Check, b"\x08"),
    ];
    for (command, golden) in goldens {
        assert_eq!(command.encode(), golden, "{command:?}");
        assert_eq!(MetaCommand::decode(golden), Ok(command));
    }
    assert!(MetaCommand::decode(&[9]).is_err());
    assert!(MetaCommand::decode(b"\x06\x05\x00").is_err());
}
