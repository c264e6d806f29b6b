//! A node alone gets its second and its third one, while it runs.

use crate::trio::{SHARDS, Trio, group_of, head, is_appended, number};
use cluster::{
    Member, MemberState, MetaCommand, MetaOutcome, NodeNumber, ReplicaId, Section, targets,
};
use log::LogOptions;
use model::GroupId;
use thalweg_node::testing::{GROUPS, Process, append, create, options, path};
use thalweg_node::{
    CopyState, Event, Membership, MetaStart, PEER_TICK_MS, PeerEvent, Reply, Request,
};

/// A member that is away for so long is replaced.
const AWAY_MS: u64 = 4_000;

fn member(node: usize) -> Member {
    Member {
        store: 100 + node as u64,
        peer_address: format!("n{node}:4439"),
        client_address: String::new(),
        state: MemberState::Active,
        version: 1,
        epoch: 1,
    }
}

/// A member of a cluster that began as node 0. `is_alone`: nobody has joined it yet.
fn membership_of(node: usize, is_alone: bool) -> Membership {
    let voters = vec![ReplicaId::new(number(0), 1)];
    let meta =
        Some(MetaStart { cluster: 7, own: member(node), is_alone, replace_after_ms: AWAY_MS });
    Membership { node: number(node), voters, opening: 1, seed: 11, meta }
}

/// The first node, which nobody has joined.
pub(crate) fn alone() -> Trio {
    // A joiner makes its directory with the lineage of its cluster.
    let options = LogOptions { lineage: Some(7), ..options() };
    let mut trio = Trio::of(options, |node| membership_of(node, node == 0));
    trio.start(0);
    trio
}

/// Somebody wants to join.
fn begin(trio: &mut Trio) {
    let now = trio.node(0).now;
    for shard in &mut trio.node(0).shards {
        shard.begin_membership(now, membership_of(0, true));
    }
}

pub(crate) fn change(trio: &mut Trio, node: usize, command: MetaCommand) -> MetaOutcome {
    match trio.ask(node, Request::Meta(Box::new(command))) {
        Reply::Meta(outcome) => outcome,
        reply => panic!("a change of the cluster was answered by {reply:?}"),
    }
}

pub(crate) fn join(trio: &mut Trio, through: usize, node: usize) {
    await_begun(trio, through);
    let joined = change(trio, through, MetaCommand::Join(member(node)));
    assert_eq!(joined, MetaOutcome::Joined(number(node)));
    trio.membership = |node| membership_of(node, false);
    trio.start(node);
}

/// Each group of the first node is a copy, and the cluster knows.
fn await_begun(trio: &mut Trio, through: usize) {
    tick_until(trio, |trio| {
        let meta = trio.node(through).shards[0].known_meta();
        meta.is_some_and(|meta| meta.is_joinable())
    });
}

/// Makes the stream `a` through a node, with its first data.
pub(crate) fn make_stream(trio: &mut Trio, through: usize, data: &'static [u8]) {
    let made = trio.ask(through, create(&path("a"), Some("text/plain"), None, data));
    assert!(matches!(made, Reply::Outcome(stream::Outcome::Created(_))), "{made:?}");
}

/// Three nodes of which each group has three voters.
pub(crate) fn grown() -> Trio {
    let mut trio = alone();
    grow(&mut trio);
    trio
}

/// Two more nodes join the first one.
pub(crate) fn grow(trio: &mut Trio) {
    begin(trio);
    join(trio, 0, 1);
    join(trio, 1, 2);
    tick_until(trio, |trio| voters(trio).iter().all(|count| *count == 3));
}

pub(crate) fn tick_until(trio: &mut Trio, is_it: impl Fn(&mut Trio) -> bool) {
    for _ in 0..400 {
        if is_it(trio) {
            return;
        }
        trio.tick();
    }
    let copies = trio.nodes.iter().flatten().map(|node| node.shards[0].copies());
    panic!("it does not come: {:#?}", copies.collect::<Vec<_>>());
}

/// The number of voters of each group, as its leader has it.
fn voters(trio: &mut Trio) -> Vec<usize> {
    (0..=GROUPS)
        .map(|group| {
            let copies = trio.nodes.iter().flatten().flat_map(|node| node.shards[0].copies());
            let mut led = copies.filter(|copy| copy.state == CopyState::Serves);
            let led = led.find(|copy| copy.group == GroupId::new(group));
            led.map_or(0, |copy| {
                if copy.configuration.is_joint() { 0 } else { copy.configuration.voters.len() }
            })
        })
        .collect()
}

fn leaders(trio: &mut Trio) -> Vec<usize> {
    (0..=GROUPS).map(|group| trio.leader(GroupId::new(group))).collect()
}

#[test]
fn groups_become_copies_where_they_are_and_no_write_is_refused() {
    let mut trio = alone();
    trio.node(0).with_text(&path("a"), b"one,");
    trio.node(0).held.syncs = Some(Vec::new());
    let before = trio.node(0).offer(append(&path("a"), b"two,"));
    trio.node(0).settle();
    begin(&mut trio);
    let meanwhile = trio.node(0).offer(append(&path("a"), b"three,"));
    trio.node(0).settle();
    assert!(trio.node(0).replies.is_empty(), "no disk has them");
    trio.node(0).sync_held();
    trio.node(0).held.syncs = None;
    trio.settle();
    let answered: Vec<u32> = trio
        .node(0)
        .replies
        .drain(..)
        .map(|(of, reply)| {
            assert!(is_appended(&reply), "{reply:?}");
            of
        })
        .collect();
    assert_eq!(answered, [before, meanwhile]);
    assert_eq!(trio.text(0, "a"), b"one,two,three,");
    assert_eq!(trio.node(0).shards[0].copies().len(), usize::from(GROUPS) + 1);
}

#[test]
fn a_start_finds_the_copies_and_what_they_hold() {
    for does_lose_power in [false, true] {
        let mut trio = alone();
        trio.node(0).with_text(&path("a"), b"one,");
        begin(&mut trio);
        trio.settle();
        assert!(is_appended(&trio.ask(0, append(&path("a"), b"two,"))));
        trio.kill(0);
        if does_lose_power {
            trio.disks[0].crash(&mut env::SeededRandom::new(5));
        }
        trio.start(0);
        assert_eq!(trio.text(0, "a"), b"one,two,");
        assert!(is_appended(&trio.ask(0, append(&path("a"), b"three,"))));
        assert_eq!(trio.text(0, "a"), b"one,two,three,");
    }
}

#[test]
fn a_crash_at_any_sync_of_the_beginning_leaves_what_was_acknowledged() {
    for syncs in 0..4 {
        let mut trio = alone();
        trio.node(0).with_text(&path("a"), b"one,");
        trio.node(0).held.syncs = Some(Vec::new());
        begin(&mut trio);
        for _ in 0..syncs {
            trio.node(0).settle();
            let held = trio.node(0).held.syncs.as_mut().and_then(Vec::pop);
            let Some((shard, job)) = held else { break };
            trio.node(0).handle(shard, Event::Synced(job.run()));
        }
        drop(trio.nodes[0].take());
        trio.disks[0].crash(&mut env::SeededRandom::new(syncs));
        trio.start(0);
        begin(&mut trio);
        assert_eq!(trio.text(0, "a"), b"one,");
        assert!(is_appended(&trio.ask(0, append(&path("a"), b"two,"))));
        assert_eq!(trio.text(0, "a"), b"one,two,");
    }
}

#[test]
fn a_node_whose_sync_has_failed_begins_nothing() {
    let mut trio = alone();
    trio.node(0).with_text(&path("a"), b"one,");
    trio.node(0).offer(append(&path("a"), b"lost,"));
    trio.disks[0].fail_next_sync(1);
    begin(&mut trio);
    let waits = trio.node(0).offer(append(&path("a"), b"two,"));
    trio.settle();
    trio.tick();
    let replies = std::mem::take(&mut trio.node(0).replies);
    let failed = |(of, reply): &(u32, Reply)| *of == waits && matches!(reply, Reply::Failed(_));
    assert!(replies.iter().any(failed), "{replies:?}");
    trio.kill(0);
    trio.start(0);
    begin(&mut trio);
    assert!(trio.text(0, "a").starts_with(b"one,"));
}

#[test]
fn a_node_that_nobody_has_joined_runs_no_consensus() {
    let mut trio = alone();
    trio.node(0).with_text(&path("a"), b"one,");
    assert!(trio.node(0).shards[0].copies().is_empty());
    let disk = trio.nodes[0].take().unwrap().kill();
    // It is a directory of a node alone.
    let mut process = Process::open(&disk, SHARDS);
    assert_eq!(process.bytes(&path("a")), b"one,");
}

#[test]
fn two_nodes_have_one_voter_and_three_have_three() {
    let mut trio = alone();
    begin(&mut trio);
    join(&mut trio, 0, 1);
    (0..60).for_each(|_| trio.tick());
    assert_eq!(voters(&mut trio), [1, 1, 1], "a second one would only add a way to stop");
    join(&mut trio, 1, 2);
    tick_until(&mut trio, |trio| voters(trio).iter().all(|count| *count == 3));
}

#[test]
fn what_was_acknowledged_survives_the_first_node() {
    let mut trio = grown();
    make_stream(&mut trio, 1, b"");
    assert!(is_appended(&trio.ask(2, append(&path("a"), b"one,"))));
    trio.kill(0);
    let leader = trio.leader(group_of("a"));
    assert_ne!(leader, 0);
    assert_eq!(trio.text(leader, "a"), b"one,");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"two,"))));
    // Those that are left know who they are.
    for node in [1, 2] {
        trio.kill(node);
        trio.start(node);
    }
    let leader = trio.leader(group_of("a"));
    assert_eq!(trio.text(leader, "a"), b"one,two,");
    trio.start(0);
    assert!(is_appended(&trio.ask(0, append(&path("a"), b"three,"))));
}

#[test]
fn what_a_node_alone_had_survives_it_once_it_has_grown() {
    let mut trio = alone();
    trio.node(0).with_text(&path("a"), b"one,");
    assert!(is_appended(&trio.node(0).ask(append(&path("a"), b"two,"))));
    begin(&mut trio);
    join(&mut trio, 0, 1);
    join(&mut trio, 1, 2);
    tick_until(&mut trio, |trio| voters(trio).iter().all(|count| *count == 3));
    trio.kill(0);
    let leader = trio.leader(group_of("a"));
    assert_eq!(trio.text(leader, "a"), b"one,two,");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"three,"))));
}

#[test]
fn leaders_spread_and_a_node_that_drains_leads_nothing() {
    let mut trio = grown();
    tick_until(&mut trio, |trio| {
        let mut leaders = leaders(trio);
        leaders.sort_unstable();
        leaders == [0, 1, 2]
    });
    let command = MetaCommand::SetState { number: number(0), state: MemberState::Draining };
    assert_eq!(change(&mut trio, 1, command), MetaOutcome::Done);
    tick_until(&mut trio, |trio| !leaders(trio).contains(&0));
    assert_eq!(voters(&mut trio), [3, 3, 3], "it keeps its copies");
    let command = MetaCommand::SetState { number: number(0), state: MemberState::Active };
    assert_eq!(change(&mut trio, 0, command), MetaOutcome::Done);
    tick_until(&mut trio, |trio| leaders(trio).contains(&0));
}

#[test]
fn a_node_that_ends_gives_its_groups_away_at_once() {
    let mut trio = grown();
    tick_until(&mut trio, |trio| leaders(trio).contains(&0));
    trio.node(0).shards[0].begin_end();
    assert!(!trio.node(0).shards[0].may_end(), "the others have not taken over yet");
    trio.settle();
    tick_until(&mut trio, |trio| trio.node(0).shards[0].may_end());
    assert!(!leaders(&mut trio).contains(&0));
    let mut alone = alone();
    begin(&mut alone);
    alone.settle();
    alone.node(0).shards[0].begin_end();
    assert!(alone.node(0).shards[0].may_end(), "nobody else votes");
}

#[test]
fn a_node_whose_log_has_failed_ends_at_once() {
    let mut trio = grown();
    tick_until(&mut trio, |trio| leaders(trio).contains(&0));
    trio.disks[0].fail_next_sync(1);
    tick_until(&mut trio, |trio| {
        trio.node(0).offer(create(&path("a"), Some("text/plain"), None, b""));
        trio.node(0).shards[0].poison().is_some()
    });
    trio.node(0).shards[0].begin_end();
    assert!(trio.node(0).shards[0].may_end());
}

#[test]
fn nobody_has_to_guess_what_became_of_a_write_at_a_node_that_ends() {
    let mut trio = grown();
    make_stream(&mut trio, 1, b"");
    for round in 1..7 {
        let leader = trio.leader(group_of("a"));
        let other = (leader + 1 + round % 2) % 3;
        trio.node(leader).shards[0].begin_end();
        let mut asked = Vec::new();
        // It is killed as soon as it may end: whatever is under way then is lost.
        while !trio.node(leader).shards[0].may_end() {
            let has_arrived = trio.settle_one();
            if !has_arrived {
                trio.pass_time();
            }
            if !has_arrived || asked.len() < 20 {
                asked.push(trio.node(other).offer(append(&path("a"), b"x,")));
            }
        }
        trio.kill(leader);
        trio.start(leader);
        tick_until(&mut trio, |trio| trio.node(other).replies.len() == asked.len());
        let replies = std::mem::take(&mut trio.node(other).replies);
        let failed: Vec<_> = replies.iter().filter(|(_, reply)| !is_appended(reply)).collect();
        assert!(asked.len() > 3 && failed.is_empty(), "round {round}: {failed:?} of {asked:?}");
    }
}

#[test]
fn a_write_that_comes_while_the_leader_hands_over_waits_for_the_next_one() {
    let mut trio = grown();
    make_stream(&mut trio, 1, b"");
    let group = group_of("a");
    for does_answer in [true, false] {
        (0..20).for_each(|_| trio.tick());
        let leader = trio.leader(group);
        // The others take part, and hear of the change of hands only later.
        let command =
            MetaCommand::SetState { number: number(leader), state: MemberState::Draining };
        assert_eq!(change(&mut trio, leader, command), MetaOutcome::Done);
        trio.node(leader).wait_ms(thalweg_node::PEER_TICK_MS);
        trio.tell(leader, PeerEvent::Tick);
        trio.node(leader).settle();
        let number_of = trio.node(leader).offer(append(&path("a"), b"x,"));
        trio.node(leader).settle();
        if !does_answer {
            trio.node(leader).said.clear();
        }
        for _ in 0..60 {
            trio.tick();
        }
        let answered = std::mem::take(&mut trio.node(leader).replies);
        let is_it = |(of, reply): &(u32, Reply)| *of == number_of && is_appended(reply);
        assert!(answered.iter().any(is_it), "{answered:?}");
        let command = MetaCommand::SetState { number: number(leader), state: MemberState::Active };
        assert_eq!(change(&mut trio, leader, command), MetaOutcome::Done);
    }
    let leader = trio.leader(group);
    assert_eq!(trio.text(leader, "a"), b"x,x,");
}

#[test]
fn a_write_that_is_let_in_while_the_leader_hands_over_is_made_by_the_next_one() {
    let mut moved_count = 0;
    for steps in 0..60 {
        let mut trio = grown();
        make_stream(&mut trio, 1, b"");
        (0..20).for_each(|_| trio.tick());
        let leader = trio.leader(group_of("a"));
        let command =
            MetaCommand::SetState { number: number(leader), state: MemberState::Draining };
        assert_eq!(change(&mut trio, leader, command), MetaOutcome::Done);
        // It waits for the word of a majority.
        let number_of = trio.node(leader).offer(Request::Delete { path: path("a") });
        trio.node(leader).wait_ms(thalweg_node::PEER_TICK_MS);
        (0..steps).for_each(|_| _ = trio.settle_one());
        trio.tell(leader, PeerEvent::Tick);
        (0..60).for_each(|_| trio.tick());
        let answered = std::mem::take(&mut trio.node(leader).replies);
        let (_, reply) = answered.iter().find(|(of, _)| *of == number_of).expect("an answer");
        let is_deleted = matches!(reply, Reply::Outcome(stream::Outcome::Deleted));
        assert!(is_deleted, "after {steps} steps: {reply:?}");
        moved_count += usize::from(trio.leader(group_of("a")) != leader);
    }
    assert!(moved_count > 0, "another node led the group");
}

#[test]
fn each_member_knows_the_others() {
    let mut trio = grown();
    (0..4).for_each(|_| trio.tick());
    let known = |trio: &mut Trio, node: usize| {
        let meta = trio.node(node).shards[0].poll_meta().expect("it has heard of all");
        meta.members().map(|(number, member)| (number.get(), member.store)).collect::<Vec<_>>()
    };
    for node in 0..3 {
        assert_eq!(known(&mut trio, node), [(1, 100), (2, 101), (3, 102)]);
        assert!(trio.node(node).shards[0].poll_meta().is_none(), "it is told once");
        trio.kill(node);
        trio.start(node);
        assert_eq!(known(&mut trio, node), [(1, 100), (2, 101), (3, 102)]);
    }
}

#[test]
fn a_node_that_is_somewhere_else_after_a_start_says_so() {
    let mut trio = grown();
    trio.kill(1);
    trio.membership = |node| {
        let mut membership = membership_of(node, false);
        let own = &mut membership.meta.as_mut().unwrap().own;
        own.peer_address = "elsewhere:4439".to_owned();
        membership
    };
    trio.start(1);
    tick_until(&mut trio, |trio| {
        let meta = trio.nodes[0].as_ref().unwrap().shards[0].known_meta().expect("it has heard");
        let known = meta.member(number(1)).expect("it is a member");
        known.peer_address == "elsewhere:4439" && known.epoch > 1
    });
}

#[test]
fn nobody_joins_before_each_group_of_the_first_node_is_a_copy() {
    let mut trio = alone();
    begin(&mut trio);
    let join = || Request::Meta(Box::new(MetaCommand::Join(member(1))));
    let early = trio.ask(0, join());
    assert!(matches!(early, Reply::Failed(thalweg_node::Failure::NoLeader)), "{early:?}");
    await_begun(&mut trio, 0);
    let joined = trio.ask(0, join());
    assert!(matches!(joined, Reply::Meta(MetaOutcome::Joined(_))), "{joined:?}");
}

#[test]
fn a_copy_that_begins_has_nobody_to_ask_and_says_so() {
    let mut trio = alone();
    begin(&mut trio);
    await_begun(&mut trio, 0);
    let joined = change(&mut trio, 0, MetaCommand::Join(member(1)));
    assert_eq!(joined, MetaOutcome::Joined(number(1)));
    trio.membership = |node| membership_of(node, false);
    trio.cut = vec![1];
    trio.start(1);
    let reply = trio.ask(1, head("a"));
    assert!(matches!(reply, Reply::Failed(thalweg_node::Failure::NoLeader)), "{reply:?}");
    trio.cut.clear();
    trio.link(0, 1);
    trio.tell(0, PeerEvent::Tick);
    let reply = trio.ask(1, head("a"));
    assert!(matches!(reply, Reply::Outcome(_)), "{reply:?}");
}

/// Where the groups are, by the numbers of nodes, as the cluster knows.
pub(crate) fn placed(trio: &mut Trio, at: usize) -> Vec<Vec<u16>> {
    let meta = trio.node(at).shards[0].known_meta().expect("it has heard of the cluster");
    let of = |group| meta.placed(GroupId::new(group)).iter().map(|node| node.get()).collect();
    (0..=GROUPS).map(of).collect()
}

fn state(trio: &mut Trio, at: usize, node: usize) -> Option<MemberState> {
    let meta = trio.node(at).shards[0].known_meta()?;
    meta.member(number(node)).map(|member| member.state)
}

#[test]
fn a_node_that_leaves_gives_its_copies_away_and_is_removed() {
    let mut trio = grown();
    join(&mut trio, 0, 3);
    let command = MetaCommand::SetState { number: number(0), state: MemberState::Leaving };
    assert_eq!(change(&mut trio, 1, command), MetaOutcome::Done);
    tick_until(&mut trio, |trio| state(trio, 1, 0) == Some(MemberState::Removed));
    assert_eq!(placed(&mut trio, 1), [[2, 3, 4], [2, 3, 4], [2, 3, 4]]);
    trio.kill(0);
    make_stream(&mut trio, 3, b"");
    assert!(is_appended(&trio.ask(2, append(&path("a"), b"one,"))));
    assert_eq!(trio.text(1, "a"), b"one,");
}

#[test]
fn a_lost_node_is_removed_and_a_new_one_takes_its_place() {
    let mut trio = grown();
    make_stream(&mut trio, 1, b"one,");
    trio.kill(2);
    let command = MetaCommand::SetState { number: number(2), state: MemberState::Removed };
    assert_eq!(change(&mut trio, 0, command), MetaOutcome::Done);
    join(&mut trio, 0, 3);
    tick_until(&mut trio, |trio| placed(trio, 1) == [[1, 2, 4], [1, 2, 4], [1, 2, 4]]);
    trio.kill(0);
    assert_eq!(trio.text(3, "a"), b"one,");
    assert!(is_appended(&trio.ask(1, append(&path("a"), b"two,"))));
}

/// The nodes that vote in each group, as its leader has it; none while that changes.
fn voting(trio: &mut Trio) -> Vec<Vec<u16>> {
    let leaders = (0..=GROUPS).map(|group| trio.leader(GroupId::new(group)));
    let copies = leaders.collect::<Vec<_>>().into_iter().zip(0..);
    let of = |(leader, group): (usize, usize)| {
        let copy = trio.node(leader).shards[0].copies().swap_remove(group);
        let is_settled = copy.is_settled && !copy.configuration.is_joint();
        let voters = copy.configuration.voters.iter().filter(|_| is_settled);
        voters.map(|id| id.node().get()).collect()
    };
    copies.map(of).collect()
}

#[test]
fn a_node_that_is_away_for_long_is_replaced_and_gets_its_places_back() {
    let mut trio = grown();
    make_stream(&mut trio, 1, b"one,");
    trio.kill(2);
    for _ in 0..2 * AWAY_MS / PEER_TICK_MS {
        trio.tick();
    }
    assert_eq!(voting(&mut trio), [[1, 2, 3], [1, 2, 3], [1, 2, 3]], "two are too few");
    join(&mut trio, 0, 3);
    tick_until(&mut trio, |trio| voting(trio) == [[1, 2, 4], [1, 2, 4], [1, 2, 4]]);
    assert_eq!(state(&mut trio, 1, 2), Some(MemberState::Active), "it may come back");
    trio.kill(0);
    assert_eq!(trio.text(3, "a"), b"one,");
    assert!(is_appended(&trio.ask(1, append(&path("a"), b"two,"))));
    trio.start(0);
    trio.start(2);
    let all: Vec<Vec<u16>> = targets(GROUPS, &[1, 2, 3, 4].map(NodeNumber::new), 3)
        .into_values()
        .map(|nodes| nodes.into_iter().map(NodeNumber::get).collect())
        .collect();
    tick_until(&mut trio, |trio| voting(trio) == all);
    assert_eq!(trio.text(2, "a"), b"one,two,");
}

const FIRST: GroupId = GroupId::new(0);

/// Whether a node votes in the first group.
fn votes(trio: &mut Trio, node: usize) -> bool {
    voting(trio)[0].contains(&number(node).get())
}

/// Four nodes: one has a place in the first group only while another one, which has none, is away.
fn with_a_substitute() -> (Trio, usize, usize) {
    let mut trio = grown();
    join(&mut trio, 0, 3);
    let all = targets(GROUPS, &[1, 2, 3, 4].map(NodeNumber::new), 3);
    let holders = all[&FIRST].clone();
    let holds = |node: usize| holders.contains(&number(node));
    tick_until(&mut trio, |trio| (0..4).all(|node| votes(trio, node) == holds(node)));
    let substitute = (0..4).find(|node| !holds(*node)).unwrap();
    let led = trio.leader(FIRST);
    let away = (0..4).find(|node| holds(*node) && *node != led).unwrap();
    (trio, substitute, away)
}

fn has_second_id(trio: &mut Trio, node: usize) -> bool {
    trio.copy(node, FIRST).id > ReplicaId::new(number(node), 1)
}

/// The substitute has got its place for the second time, under its second id, and loses it.
fn with_a_second_id() -> (Trio, usize, usize) {
    let (mut trio, substitute, away) = with_a_substitute();
    for _ in 0..2 {
        trio.kill(away);
        tick_until(&mut trio, |trio| votes(trio, substitute));
        trio.start(away);
        if !has_second_id(&mut trio, substitute) {
            let is_bare = |trio: &mut Trio| {
                let has = trio.node(substitute).shards[0].log().first_index(FIRST).is_some();
                !has && trio.copy(substitute, FIRST).state == CopyState::Removed
            };
            tick_until(&mut trio, is_bare);
        }
    }
    assert!(has_second_id(&mut trio, substitute));
    (trio, substitute, away)
}

#[test]
fn a_copy_that_loses_its_place_and_gets_it_back_keeps_its_id_over_a_start() {
    // A start may come before the entry that takes the place is committed, or after that.
    for is_committed in [false, true] {
        let (mut trio, substitute, away) = with_a_second_id();
        let before = trio.copy(substitute, FIRST);
        let is_it = |trio: &mut Trio| {
            let copy = trio.copy(substitute, FIRST);
            let is_given_up = !copy.configuration.contains(copy.id);
            let is_joint = copy.configuration.is_joint() && copy.last > copy.committed;
            if is_committed { is_given_up } else { is_joint || is_given_up }
        };
        for _ in 0..100_000 {
            if is_it(&mut trio) {
                break;
            }
            if !trio.settle_one() {
                trio.pass_time();
            }
        }
        assert!(is_it(&mut trio), "{before:?}");
        trio.kill(substitute);
        trio.kill(away);
        trio.start(substitute);
        // Before the leader can say that it is not wanted, it is.
        let asks = |section: &Section| matches!(section, Section::Forward { .. });
        trio.loses = Some(Box::new(move |from, _, section| from == substitute && asks(section)));
        let is_wanted = |trio: &mut Trio| {
            let meta = trio.node(substitute).shards[0].known_meta();
            meta.is_some_and(|meta| meta.target(FIRST).contains(&number(substitute)))
        };
        tick_until(&mut trio, is_wanted);
        trio.loses = None;
        tick_until(&mut trio, |trio| votes(trio, substitute));
        assert!(has_second_id(&mut trio, substitute));
    }
}

#[test]
fn a_new_leader_does_not_give_places_back_to_who_is_away() {
    let mut trio = grown();
    join(&mut trio, 0, 3);
    let own = GroupId::new(GROUPS);
    let led = trio.leader(own);
    let away = (0..4).find(|node| led != *node).unwrap();
    trio.kill(away);
    let gone = u16::try_from(away + 1).unwrap();
    let is_out = |nodes: &Vec<u16>| nodes.len() == 3 && !nodes.contains(&gone);
    tick_until(&mut trio, |trio| voting(trio).iter().all(is_out));
    let led = trio.leader(own);
    trio.cut.push(led);
    let next = trio.leader(own);
    assert_ne!(next, led);
    trio.cut.clear();
    (0..4).filter(|node| *node != led && *node != away).for_each(|node| trio.link(led, node));
    for _ in 0..AWAY_MS / PEER_TICK_MS / 2 {
        trio.tick();
        let meta = trio.node(next).shards[0].known_meta().expect("it has heard of the cluster");
        let holds = |group| meta.target(GroupId::new(group)).contains(&NodeNumber::new(gone));
        assert!(!(0..=GROUPS).any(holds), "{meta:?}");
    }
}
