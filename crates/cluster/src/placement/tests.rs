use super::*;

fn node(number: u16) -> NodeNumber {
    NodeNumber::new(number)
}

fn id(number: u16) -> ReplicaId {
    ReplicaId::new(node(number), 1)
}

fn ids(numbers: &[u16]) -> Vec<ReplicaId> {
    numbers.iter().map(|number| id(*number)).collect()
}

fn enter(parts: Vec<(ReplicaId, Part)>) -> Change {
    Change::Enter { revision: 0, parts }
}

/// Applies a change as the library does.
fn changed(configuration: &Configuration, change: &Change) -> Configuration {
    let mut next = configuration.clone();
    match change {
        Change::Leave => {
            next.learners.append(&mut next.learners_next);
            next.learners.sort_unstable();
            next.outgoing.clear();
        }
        Change::Enter { revision, parts } => {
            next.revision = *revision;
            next.outgoing = configuration.voters.clone();
            for (id, part) in parts {
                let was_voter = configuration.voters.contains(id);
                next.voters.retain(|voter| voter != id);
                next.learners.retain(|learner| learner != id);
                match part {
                    Part::Voter => next.voters.push(*id),
                    Part::Learner if was_voter => next.learners_next.push(*id),
                    Part::Learner => next.learners.push(*id),
                    Part::Gone => {}
                }
            }
            next.voters.sort_unstable();
            next.learners.sort_unstable();
        }
    }
    let mut bytes = Vec::new();
    next.encode(&mut bytes);
    assert_eq!(
        Configuration::decode(&bytes).as_ref(),
        Ok(&next),
        "{change:?} of {configuration:?}"
    );
    next
}

/// Lets the leader take steps until there is none, with followers that are heard and have caught up.
fn settle(from: &Configuration, leader: u16, target: &[u16]) -> (Configuration, u16, usize) {
    let (mut configuration, mut leader) = (from.clone(), id(leader));
    let (target, mut is_settled) = (ids(target), true);
    for steps in 0..20 {
        let followers: Vec<Follower> =
            configuration.replicas().into_iter().filter(|id| *id != leader).map(up).collect();
        let last = EntryIndex::new(100);
        let view = GroupView {
            leader,
            first: EntryIndex::new(1),
            last,
            configuration: &configuration,
            is_settled,
            followers: &followers,
            target: &target,
            revision: 0,
            is_revision_awaited: false,
            listeners: &[],
            drained: &[],
        };
        match next_step(&view, 3) {
            None => return (configuration, leader.node().get(), steps),
            Some(PlacementStep::HandOver(to)) => leader = to[0],
            Some(PlacementStep::Settle) => is_settled = true,
            Some(PlacementStep::Change(change)) => {
                assert!(is_settled || change == Change::Leave, "the change before is not settled");
                is_settled = false;
                assert!(!change.unseats(leader), "the leader unseats itself");
                configuration = changed(&configuration, &change);
            }
        }
    }
    panic!("the group never settles: {configuration:?}");
}

fn up(id: ReplicaId) -> Follower {
    Follower { id, matched: EntryIndex::new(100), is_heard: true, is_installing: false }
}

#[test]
fn one_voter_grows_to_three_in_one_joint_change() {
    let one = Configuration::of(&ids(&[1]));
    let (two, ..) = settle(&one, 1, &[1, 2]);
    assert_eq!((&two.voters, &two.learners), (&ids(&[1]), &ids(&[2])));
    let (three, _, steps) = settle(&two, 1, &[1, 2, 3]);
    assert_eq!(three, Configuration::of(&ids(&[1, 2, 3])));
    // Learner, left, settled; voters, left, settled.
    assert_eq!(steps, 6);
}

#[test]
fn a_replica_is_exchanged_for_another_even_if_it_leads() {
    let three = Configuration::of(&ids(&[1, 2, 3]));
    let (moved, leader, _) = settle(&three, 1, &[2, 3, 4]);
    assert_eq!(moved, Configuration::of(&ids(&[2, 3, 4])));
    assert_ne!(leader, 1);
}

#[test]
fn a_replica_with_a_new_id_takes_the_place_of_the_old_one() {
    let three = Configuration::of(&ids(&[1, 2, 3]));
    let new = id(3).successor();
    let target = [id(1), id(2), new];
    let followers = [up(id(2)), up(new)];
    let last = EntryIndex::new(100);
    let view = |configuration, followers| {
        let (leader, is_settled) = (id(1), true);
        let view = GroupView {
            leader,
            first: EntryIndex::new(1),
            last,
            configuration,
            is_settled,
            followers,
            target: &target,
            revision: 0,
            is_revision_awaited: false,
            listeners: &[],
            drained: &[],
        };
        next_step(&view, 3)
    };
    let learns = enter(vec![(new, Part::Learner)]);
    assert_eq!(view(&three, &followers), Some(PlacementStep::Change(learns.clone())));
    let learning = changed(&changed(&three, &learns), &Change::Leave);
    let exchange = enter(vec![(new, Part::Voter), (id(3), Part::Gone)]);
    assert_eq!(view(&learning, &followers), Some(PlacementStep::Change(exchange)));
    // It was lost once more before it had anything.
    let older = Configuration { learners: vec![new], ..three.clone() };
    let newer = [id(1), id(2), new.successor()];
    let view = GroupView {
        leader: id(1),
        first: EntryIndex::new(1),
        last,
        configuration: &older,
        is_settled: true,
        followers: &followers,
        target: &newer,
        revision: 0,
        is_revision_awaited: false,
        listeners: &[],
        drained: &[],
    };
    let learns = enter(vec![(new.successor(), Part::Learner), (new, Part::Gone)]);
    assert_eq!(next_step(&view, 3), Some(PlacementStep::Change(learns)));
}

#[test]
fn a_leader_that_leaves_hands_over_to_who_votes_and_not_to_who_learns() {
    let renewed = id(1).successor();
    let followers = [up(id(2)), up(renewed), up(id(4))];
    let step_beside = |voters: &[ReplicaId], learners: &[ReplicaId], drained: &[NodeNumber]| {
        let configuration =
            Configuration { learners: learners.to_vec(), ..Configuration::of(voters) };
        let view = GroupView {
            leader: id(3),
            first: EntryIndex::new(1),
            last: EntryIndex::new(100),
            configuration: &configuration,
            is_settled: true,
            followers: &followers,
            target: &[renewed, id(2), id(4)],
            revision: 0,
            is_revision_awaited: false,
            listeners: &[],
            drained,
        };
        next_step(&view, 3)
    };
    let step = |voters: &[_], learners: &[_]| step_beside(voters, learners, &[]);
    let taken = step(&[id(1), id(3), id(4)], &[renewed, id(2)]);
    assert_eq!(taken, Some(PlacementStep::HandOver(vec![id(4)])));
    // None of those that shall vote does: they come first.
    let mut parts = [renewed, id(2), id(4)].map(|id| (id, Part::Voter)).to_vec();
    parts.push((id(1), Part::Gone));
    let taken = step(&[id(1), id(3)], &[renewed, id(2), id(4)]);
    assert_eq!(taken, Some(PlacementStep::Change(enter(parts))));
    // One of them does, but shall not lead. The lost voter is replaced all the same.
    let parts = vec![(renewed, Part::Voter), (id(2), Part::Voter), (id(1), Part::Gone)];
    let (voters, learners) = ([id(1), id(3), id(4)], [renewed, id(2)]);
    let taken = step_beside(&voters, &learners, &[node(4)]);
    assert_eq!(taken, Some(PlacementStep::Change(enter(parts))));
    let with_leader = [renewed, id(2), id(3), id(4)];
    let taken = step_beside(&with_leader, &[], &[node(4)]);
    assert_eq!(taken, Some(PlacementStep::HandOver(vec![renewed, id(2)])));
    // Nobody may take over: the leader stays.
    assert_eq!(step_beside(&with_leader, &[], &[1, 2, 4].map(node)), None);
    // The same where the only one that may is silent: 5 is not among those that are heard.
    let view = GroupView {
        leader: id(3),
        first: EntryIndex::new(1),
        last: EntryIndex::new(100),
        configuration: &Configuration {
            learners: vec![id(2)],
            ..Configuration::of(&ids(&[3, 4, 5]))
        },
        is_settled: true,
        followers: &[up(id(2)), up(id(4)), Follower { is_heard: false, ..up(id(5)) }],
        target: &ids(&[2, 4, 5]),
        revision: 0,
        is_revision_awaited: false,
        listeners: &[],
        drained: &[node(4)],
    };
    let taken = next_step(&view, 3);
    assert_eq!(taken, Some(PlacementStep::Change(enter(vec![(id(2), Part::Voter)]))));
    // The only voter leaves: a learner on a node that may lead takes its place.
    let one = Configuration { learners: ids(&[2, 4]), ..Configuration::of(&ids(&[3])) };
    let view =
        GroupView { configuration: &one, target: &ids(&[2, 4]), drained: &[node(2)], ..view };
    let taken = next_step(&view, 3);
    assert_eq!(taken, Some(PlacementStep::Change(enter(vec![(id(4), Part::Voter)]))));
}

#[test]
fn a_node_that_only_listens_learns_and_never_votes() {
    let three = Configuration::of(&ids(&[1, 2, 3]));
    let followers = [up(id(2)), up(id(3)), up(id(4))];
    let step = |configuration, target: &[ReplicaId], listeners: &[ReplicaId]| {
        let last = EntryIndex::new(100);
        let view = GroupView {
            leader: id(1),
            first: EntryIndex::new(1),
            last,
            configuration,
            is_settled: true,
            followers: &followers,
            target,
            revision: 0,
            is_revision_awaited: false,
            listeners,
            drained: &[],
        };
        next_step(&view, 3)
    };
    let four = enter(vec![(id(4), Part::Learner)]);
    let target = ids(&[1, 2, 3]);
    assert_eq!(step(&three, &target, &[id(4)]), Some(PlacementStep::Change(four.clone())));
    let with_four = changed(&changed(&three, &four), &Change::Leave);
    assert_eq!(step(&with_four, &target, &[id(4)]), None);
    // 3 leaves, and has other groups to bring away.
    let target = ids(&[1, 2, 4]);
    let exchange = enter(vec![(id(4), Part::Voter), (id(3), Part::Learner)]);
    let taken = step(&with_four, &target, &[id(3)]);
    assert_eq!(taken, Some(PlacementStep::Change(exchange.clone())));
    let with_three = changed(&changed(&with_four, &exchange), &Change::Leave);
    assert_eq!(step(&with_three, &target, &[id(3)]), None);
    let gone = enter(vec![(id(3), Part::Gone)]);
    assert_eq!(step(&with_three, &target, &[]), Some(PlacementStep::Change(gone)));
}

#[test]
fn a_leader_that_knows_an_older_target_than_its_group_follows_changes_nothing() {
    let at = |configuration: Configuration, revision, is_revision_awaited| {
        let followers = [up(id(2)), up(id(3)), up(id(4))];
        let view = GroupView {
            leader: id(1),
            first: EntryIndex::new(1),
            last: EntryIndex::new(100),
            configuration: &configuration,
            is_settled: true,
            followers: &followers,
            target: &ids(&[1, 2, 3]),
            revision,
            is_revision_awaited,
            listeners: &[],
            drained: &[],
        };
        next_step(&view, 3)
    };
    let enters = |revision, parts| Some(PlacementStep::Change(Change::Enter { revision, parts }));
    let moved = Configuration { revision: 5, ..Configuration::of(&ids(&[1, 3, 4])) };
    assert_eq!(at(moved.clone(), 4, true), None, "the place of 2 was given away since");
    assert_eq!(at(moved.clone(), 6, false), enters(6, vec![(id(2), Part::Learner)]));
    // What another leader has begun is finished by any.
    let joint = Configuration { outgoing: ids(&[1, 2, 3]), ..moved };
    assert_eq!(at(joint, 4, false), Some(PlacementStep::Change(Change::Leave)));
    // Where the group shall be is where it is.
    let there = Configuration { revision: 5, ..Configuration::of(&ids(&[1, 2, 3])) };
    assert_eq!(at(there.clone(), 6, false), None, "nobody waits for it");
    let confirmed = enters(6, vec![(id(1), Part::Voter)]);
    assert_eq!(at(there.clone(), 6, true), confirmed);
    let Some(PlacementStep::Change(change)) = confirmed else { unreachable!("it is one") };
    let after = there.after(&change).and_then(|joint| joint.after(&Change::Leave)).unwrap();
    assert_eq!(after, Configuration { revision: 6, ..there });
    assert_eq!(at(after, 6, true), None);
    // It is on its way, and one that shall vote has nothing yet: others need not wait for that.
    let learning =
        Configuration { revision: 5, learners: ids(&[2, 4]), ..Configuration::of(&ids(&[1])) };
    let silent = Follower { matched: EntryIndex::new(0), is_heard: false, ..up(id(2)) };
    let view = GroupView {
        leader: id(1),
        first: EntryIndex::new(1),
        last: EntryIndex::new(100),
        configuration: &learning,
        is_settled: true,
        followers: &[silent, up(id(4))],
        target: &ids(&[1, 2, 4]),
        revision: 6,
        is_revision_awaited: true,
        listeners: &[],
        drained: &[],
    };
    assert_eq!(next_step(&view, 3), enters(6, vec![(id(1), Part::Voter)]));
    assert_eq!(next_step(&GroupView { is_revision_awaited: false, ..view }, 3), None);
}

#[test]
fn voters_wait_until_the_coming_ones_have_caught_up() {
    let mut learning = Configuration::of(&ids(&[1]));
    learning.learners = ids(&[2, 3]);
    let target = ids(&[1, 2, 3]);
    let step_in = |follower: Follower, (first, last): (u64, u64)| {
        let last = EntryIndex::new(last);
        let followers = [Follower { matched: last, ..up(id(2)) }, follower];
        let configuration = &learning;
        next_step(
            &GroupView {
                leader: id(1),
                first: EntryIndex::new(first),
                last,
                configuration,
                is_settled: true,
                followers: &followers,
                target: &target,
                revision: 0,
                is_revision_awaited: false,
                listeners: &[],
                drained: &[],
            },
            3,
        )
    };
    let step = |follower| step_in(follower, (1, 5_000));
    let near = Follower { matched: EntryIndex::new(4_000), ..up(id(3)) };
    assert!(step(near).is_some());
    assert_eq!(step(Follower { matched: EntryIndex::new(3_999), ..near }), None);
    assert_eq!(step(Follower { is_heard: false, ..near }), None);
    assert_eq!(step(Follower { is_installing: true, ..near }), None);
    // A short log is no proof of having it.
    let nothing = Follower { matched: EntryIndex::new(0), ..near };
    assert_eq!(step_in(nothing, (1, 12)), None);
    let behind = Follower { matched: EntryIndex::new(4), ..near };
    assert_eq!(step_in(behind, (6, 12)), None, "it needs a snapshot");
    assert!(step_in(behind, (5, 12)).is_some());
}

#[test]
fn a_joint_configuration_is_left_first() {
    let joint = Configuration { outgoing: ids(&[1, 2, 3]), ..Configuration::of(&ids(&[2, 3, 4])) };
    let last = EntryIndex::new(1);
    let view = |configuration, is_settled| {
        let (followers, target) = (&[][..], &[][..]);
        GroupView {
            leader: id(2),
            first: EntryIndex::new(1),
            last,
            configuration,
            is_settled,
            followers,
            target,
            revision: 0,
            is_revision_awaited: false,
            listeners: &[],
            drained: &[],
        }
    };
    let leave = Some(PlacementStep::Change(Change::Leave));
    assert_eq!(next_step(&view(&joint, false), 3), leave);
    assert_eq!(next_step(&view(&joint, true), 3), leave);
    // And then it is settled.
    let left = Configuration::of(&ids(&[2, 3, 4]));
    assert_eq!(next_step(&view(&left, false), 3), Some(PlacementStep::Settle));
    assert_eq!(next_step(&view(&left, true), 3), None);
}

#[test]
fn nothing_moves_without_a_change_of_members_and_a_new_node_takes_its_share() {
    let of = |nodes: &[u16]| {
        let nodes: Vec<NodeNumber> = nodes.iter().map(|number| node(*number)).collect();
        targets(64, &nodes, 3)
    };
    let (three, four) = (of(&[1, 2, 3]), of(&[1, 2, 3, 4]));
    assert_eq!(three.len(), 65);
    assert!(three.values().all(|nodes| *nodes == [node(1), node(2), node(3)]));
    let moved: Vec<_> = four.values().filter(|nodes| nodes.contains(&node(4))).collect();
    assert!(
        (33..=64).contains(&moved.len()),
        "{} of 65 groups have a replica on the fourth",
        moved.len()
    );
    for (group, nodes) in &four {
        let kept = nodes.iter().filter(|node| three[group].contains(node)).count();
        assert!(kept >= 2, "a group moves more than one replica");
    }
    assert_eq!(of(&[1, 2]).values().next().unwrap().len(), 2);
}

#[test]
fn groups_that_a_removal_would_stop_are_named() {
    let three = Configuration::of(&ids(&[1, 2, 3]));
    let one = Configuration::of(&ids(&[2]));
    let groups = [(GroupId::new(5), &three), (GroupId::new(6), &one)];
    let lost = |node_number: u16, dead: u16| {
        groups_lost_without(node(node_number), groups.into_iter(), |other| other != node(dead))
    };
    assert_eq!(lost(1, 9), []);
    assert_eq!(lost(2, 9), [GroupId::new(6)]);
    assert_eq!(lost(1, 3), [GroupId::new(5)]);
}

#[test]
fn groups_that_cannot_give_a_replica_away_are_named() {
    let three = Configuration::of(&ids(&[1, 2, 3]));
    let two = Configuration::of(&ids(&[1, 2]));
    let one = Configuration { learners: ids(&[2]), ..Configuration::of(&ids(&[1])) };
    let groups = [(GroupId::new(5), &three), (GroupId::new(6), &two), (GroupId::new(7), &one)];
    let stopped = |leaves: u16, dead: &[u16]| {
        let alive = |other: NodeNumber| !dead.contains(&other.get());
        let stopped = groups_stopped_by_leaving(node(leaves), groups.into_iter(), alive);
        stopped.into_iter().map(GroupId::get).collect::<Vec<_>>()
    };
    assert_eq!(stopped(1, &[]), [0; 0], "all voters are there, and a learner");
    assert_eq!(stopped(1, &[2]), [5, 6, 7], "nobody is left with a majority");
    assert_eq!(stopped(3, &[3]), [0; 0], "one that is away takes nothing along");
    assert_eq!(stopped(3, &[1]), [5], "of two that are left one is away");
    assert_eq!(stopped(1, &[3]), [5]);
    assert_eq!(stopped(2, &[1]), [5, 6, 7], "the voters now have no majority");
    assert_eq!(stopped(4, &[1, 2]), [0; 0], "it has no replica");
}

#[test]
fn leaders_spread_evenly_and_one_that_may_not_lead_moves_its_own_alone() {
    let nodes = [1, 2, 3].map(node);
    let groups = || (0..10).map(|group| (GroupId::new(group), &nodes[..]));
    let wanted = leaders_wanted(groups(), |_| true);
    let count = |of: u16| wanted.values().filter(|leader| **leader == node(of)).count();
    let mut counts = [1, 2, 3].map(count);
    counts.sort_unstable();
    assert_eq!(counts, [3, 3, 4]);
    let drained = leaders_wanted(groups(), |node| node.get() != 2);
    assert_eq!(drained.len(), 10);
    assert!(drained.values().all(|leader| *leader != node(2)));
    assert!(leaders_wanted(groups(), |_| false).is_empty());
}
