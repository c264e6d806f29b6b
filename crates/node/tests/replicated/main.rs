//! Three nodes with copies of the same groups: what one of them acknowledges, a majority has.

mod checks;
mod forks;
mod forwards;
mod growth;
mod order;
mod renewal;
mod reports;
mod room;
mod snapshots;
mod trio;

use cluster::{Body, Confirmation, Section};
use env::{Disk, MemoryDisk, SeededRandom};
use log::{LogOptions, OpenError};
use std::path::Path;
use std::sync::Arc;
use stream::{Outcome, Refusal};
use thalweg_node::testing::{Process, append, options, path};
use thalweg_node::{CopyState, Event, Failure, PeerEvent, Reply, Request, open_member};
use trio::{
    SHARDS, Trio, group_of, head, is_appended, membership, missing_beside, number, with_text,
};

#[test]
fn what_was_acknowledged_survives_its_leader() {
    let mut trio = Trio::new();
    let first = with_text(&mut trio, "a");
    trio.kill(first);
    let second = trio.leader(group_of("a"));
    assert_ne!(first, second);
    assert_eq!(trio.text(second, "a"), b"one,");
    assert!(is_appended(&trio.ask(second, append(&path("a"), b"two,"))));
    trio.start(first);
    for _ in 0..10 {
        trio.tick();
    }
    let mut states: Vec<_> = (0..3)
        .map(|node| {
            let shard = &mut trio.node(node).shards[0];
            (
                shard.copies()[usize::from(group_of("a").get())].applied,
                shard.checkpoint_bytes(group_of("a")),
            )
        })
        .collect();
    states.dedup();
    assert_eq!(states.len(), 1, "copies at the same index are the same");
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_of_all() {
    let mut trio = Trio::new();
    with_text(&mut trio, "a");
    for node in 0..3 {
        drop(trio.nodes[node].take());
        trio.disks[node].crash(&mut SeededRandom::new(node as u64));
        trio.start(node);
    }
    let leader = trio.leader(group_of("a"));
    assert_eq!(trio.text(leader, "a"), b"one,");
}

#[test]
fn a_leader_that_is_cut_off_acknowledges_nothing_and_answers_nothing() {
    let mut trio = Trio::new();
    let old = with_text(&mut trio, "a");
    trio.cut = vec![old];
    let lost = trio.node(old).offer(append(&path("a"), b"lost,"));
    let stale = trio.node(old).offer(head("a"));
    let new = trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(new, append(&path("a"), b"two,"))));
    for _ in 0..20 {
        trio.tick();
    }
    let answers = std::mem::take(&mut trio.node(old).replies);
    let of = |number| answers.iter().find(|(of, _)| *of == number).map(|(_, reply)| reply);
    assert!(of(stale).is_none(), "a read waits for who leads: {:?}", of(stale));
    assert!(of(lost).is_none(), "nobody can tell yet: {:?}", of(lost));
    trio.cut.clear();
    for _ in 0..20 {
        trio.tick();
    }
    let answers = std::mem::take(&mut trio.node(old).replies);
    let lost = answers.iter().find(|(of, _)| *of == lost);
    assert!(matches!(lost, Some((_, Reply::Failed(Failure::NoLeader)))), "{lost:?}");
    let stale = answers.iter().find(|(of, _)| *of == stale);
    let Some((_, Reply::Head(_, info))) = stale else { panic!("{stale:?}") };
    assert_eq!(info.tail.get(), 8, "the state is the one that the new leader has acknowledged");
    assert_eq!(trio.text(new, "a"), b"one,two,");
}

/// Whether a node says something of this kind.
fn says(trio: &mut Trio, node: usize, is_it: fn(&Section) -> bool) -> bool {
    trio.node(node).settle();
    trio.node(node).said.iter().any(|said| is_it(&said.section))
}

#[test]
fn any_node_answers_reads_behind_the_word_of_the_leader() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    for follower in [(leader + 1) % 3, (leader + 2) % 3] {
        let asked = trio.node(follower).offer(head("a"));
        assert!(says(&mut trio, follower, |said| matches!(said, Section::Barrier { .. })));
        assert!(trio.node(follower).replies.is_empty(), "it waits for the leader");
        trio.settle();
        let (number, reply) = trio.node(follower).replies.pop().expect("the leader has answered");
        let Reply::Head(_, info) = reply else { panic!("{reply:?}") };
        assert_eq!((number, info.tail.get()), (asked, 4));
        assert_eq!(trio.text(follower, "a"), b"one,");
    }
    let reply = trio.ask((leader + 1) % 3, head(&missing_beside("a")));
    assert!(matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound))), "{reply:?}");
}

#[test]
fn a_read_waits_until_what_was_acknowledged_is_applied_where_it_came() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let follower = (leader + 1) % 3;
    trio.tick();
    // It has the entry, and its disk has not.
    trio.node(follower).held.syncs = Some(Vec::new());
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"two,"))));
    let asked = trio.node(follower).offer(head("a"));
    trio.settle();
    assert!(trio.node(follower).replies.is_empty(), "its state is older than the answer");
    trio.node(follower).sync_held();
    trio.settle();
    trio.tick();
    let (number, reply) = trio.node(follower).replies.pop().expect("all is applied");
    let Reply::Head(_, info) = reply else { panic!("{reply:?}") };
    assert_eq!((number, info.tail.get()), (asked, 8));
}

#[test]
fn a_window_of_a_stream_that_is_not_here_yet_waits_for_it() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let follower = (leader + 1) % 3;
    trio.tick();
    let Reply::Head(key, _) = trio.ask(leader, head("a")) else { panic!("it is there") };
    trio.node(follower).held.syncs = Some(Vec::new());
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"two,"))));
    let at = model::ByteOffset::new;
    let window = |from, to| Request::Window { key, from: at(from), to: at(to) };
    assert!(matches!(trio.ask(follower, window(0, 4)), Reply::Window(_)), "it has that");
    let asked = trio.node(follower).offer(window(4, 8));
    trio.settle();
    assert!(trio.node(follower).replies.is_empty(), "what was seen elsewhere is not here yet");
    trio.node(follower).held.syncs.take().into_iter().flatten().for_each(|(shard, job)| {
        trio.node(follower).handle(shard, Event::Synced(job.run()));
    });
    trio.settle();
    trio.tick();
    let (number, reply) = trio.node(follower).replies.pop().expect("it is here now");
    let Reply::Window(slice) = reply else { panic!("{reply:?}") };
    assert_eq!((number, &slice.to_bytes().unwrap()[..]), (asked, &b"two,"[..]));
}

#[test]
fn a_question_whose_answer_is_lost_is_asked_again_and_not_for_ever() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let follower = (leader + 1) % 3;
    let asked = trio.node(follower).offer(head("a"));
    trio.node(follower).settle();
    trio.node(follower).said.clear();
    for _ in 0..12 {
        trio.tick();
    }
    let answered = trio.node(follower).replies.pop();
    assert!(matches!(answered, Some((number, Reply::Head(..))) if number == asked), "{answered:?}");
    trio.cut = vec![follower];
    let asked = trio.node(follower).offer(head("a"));
    for _ in 0..101 {
        trio.tick();
    }
    let refused = trio.node(follower).replies.pop();
    let is_refused = |reply: &Reply| matches!(reply, Reply::Failed(Failure::NoLeader));
    assert!(matches!(&refused, Some((number, reply)) if *number == asked && is_refused(reply)));
}

#[test]
fn a_question_to_one_who_leads_no_more_has_no_index_for_an_answer() {
    let mut trio = Trio::new();
    let old = with_text(&mut trio, "a");
    trio.cut = vec![old];
    let new = trio.leader(group_of("a"));
    assert!(is_appended(&trio.ask(new, append(&path("a"), b"two,"))));
    // The old leader does not know it yet: no majority confirms it.
    let group = group_of("a");
    let from = number(new);
    let section = Section::Barrier { group, number: 77 };
    trio.node(old).handle(0, Event::Peer(Box::new(PeerEvent::Section { from, section })));
    let confirms = |said: &Section| {
        let at = |it| matches!(it, Confirmation::At(_));
        matches!(said, Section::Confirmed { confirmation, .. } if at(*confirmation))
    };
    for _ in 0..110 {
        assert!(!says(&mut trio, old, confirms));
        trio.tick();
    }
}

#[test]
fn a_missing_stream_is_refused_with_the_word_of_a_majority() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    let asked = trio.node(leader).offer(head(&missing_beside("a")));
    trio.node(leader).settle();
    assert!(trio.node(leader).replies.is_empty(), "it waits for the others");
    trio.settle();
    let reply = trio.node(leader).replies.pop();
    let (number, reply) = reply.expect("they have answered");
    assert_eq!(number, asked);
    let is_missing = matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::NotFound)));
    assert!(is_missing, "{reply:?}");
}

#[test]
fn entries_go_before_the_sync_of_the_leader_and_acknowledgements_after_their_own() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    for node in 0..3 {
        trio.node(node).held.syncs = Some(Vec::new());
    }
    trio.node(leader).offer(append(&path("a"), b"two,"));
    trio.node(leader).settle();
    let carries = |section: &Section| {
        let Section::Message { message, .. } = section else { return false };
        matches!(&message.body, Body::Append { entries, .. } if !entries.is_empty())
    };
    let sent = trio.node(leader).said.iter().filter(|said| carries(&said.section)).count();
    assert_eq!(sent, 2, "both followers get it while the leader's disk works");
    let is_acknowledged = |trio: &mut Trio| {
        trio.settle();
        trio.node(leader).replies.iter().any(|(_, reply)| is_appended(reply))
    };
    assert!(!is_acknowledged(&mut trio), "no disk has it");
    let follower = (leader + 1) % 3;
    trio.node(follower).sync_held();
    assert!(!is_acknowledged(&mut trio), "one of three disks has it");
    trio.node(leader).sync_held();
    assert!(is_acknowledged(&mut trio), "two of three disks have it");
}

#[test]
fn a_node_alone_and_a_member_do_not_take_each_others_directories() {
    let alone = MemoryDisk::new();
    let mut process = Process::open(&alone, SHARDS);
    process.with_text(&path("a"), b"alone,");
    let alone = process.kill();
    // Damage does not make copies of them.
    for is_damaged in [false, true] {
        if is_damaged {
            let (file, bit) = bit_of(&alone, b"alone,");
            alone.flip_bit(&file, bit);
        }
        let refused = Process::open_member(&alone, (options(), SHARDS), &membership(0));
        assert!(matches!(refused, Err(OpenError::Replicas { found: false, .. })));
    }
    let mut trio = Trio::new();
    with_text(&mut trio, "a");
    trio.kill(0);
    let refused = Process::try_open(&trio.disks[0], SHARDS, options());
    assert!(matches!(refused, Err(OpenError::Replicas { found: true, .. })));
}

#[test]
fn a_member_that_is_killed_before_it_has_written_anything_knows_that_it_was_opened() {
    let disk = MemoryDisk::new();
    for opening in 1..=3 {
        let (port, random) = (Arc::new(disk.clone()), &mut SeededRandom::new(opening));
        let (dir, with) = (Path::new("/data"), (options(), SHARDS));
        let opened = open_member((port, random), dir, with, &membership(0)).unwrap();
        assert_eq!(opened.report.epoch, opening, "others take a lower one for an old copy");
    }
}

/// The states of a node's copies.
fn states(trio: &mut Trio, node: usize) -> Vec<CopyState> {
    let shards = trio.node(node).shards.iter();
    shards.flat_map(|shard| shard.copies()).map(|copy| copy.state).collect()
}

/// A bit of `text`, where a node's write-ahead log has it.
pub(crate) fn bit_of(disk: &MemoryDisk, text: &[u8]) -> (std::path::PathBuf, u64) {
    let is_wal = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "wal");
    let found = disk.paths().into_iter().filter(is_wal).find_map(|path| {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text)?;
        Some((path, at as u64 * 8))
    });
    found.expect("it is in the log")
}

#[test]
fn a_copy_that_was_damaged_stays_out_though_nothing_shows_it_any_more() {
    let mut trio = Trio::new();
    let leader = with_text(&mut trio, "a");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"damaged,"))));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"behind,"))));
    trio.tick();
    let follower = (leader + 1) % 3;
    trio.kill(follower);
    let (file, bit) = bit_of(&trio.disks[follower], b"damaged,");
    trio.disks[follower].flip_bit(&file, bit);
    trio.start(follower);
    trio.settle();
    assert!(states(&mut trio, follower).contains(&CopyState::Halted));
    trio.kill(follower);
    trio.disks[follower].flip_bit(&file, bit);
    trio.start(follower);
    trio.settle();
    assert!(states(&mut trio, follower).contains(&CopyState::Halted), "it may have promised more");
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"without it,"))));
    // Its node finds who leads by asking.
    assert!(is_appended(&trio.ask(follower, append(&path("a"), b"through it,"))));
}

#[test]
fn a_copy_whose_only_checkpoint_is_lost_stays_out() {
    let mut trio = Trio::with(LogOptions { seal_bytes: 1, checkpoint_bytes: 1, ..options() });
    let leader = with_text(&mut trio, "a");
    let follower = (leader + 1) % 3;
    // More than the write-ahead log keeps.
    for _ in 0..100 {
        assert!(is_appended(&trio.ask(leader, append(&path("a"), &vec![b'x'; 64 << 10]))));
    }
    trio.tick();
    trio.kill(follower);
    let disk = &trio.disks[follower];
    let is_checkpoint = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "ckpt");
    let checkpoints: Vec<_> = disk.paths().into_iter().filter(is_checkpoint).collect();
    assert!(!checkpoints.is_empty());
    checkpoints.iter().for_each(|path| disk.make_unreadable(path, 0));
    trio.start(follower);
    trio.settle();
    assert!(states(&mut trio, follower).contains(&CopyState::Halted));
    assert!(is_appended(&trio.ask(leader, append(&path("a"), b"without it,"))));
}
