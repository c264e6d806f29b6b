//! A node that was away for so long that nobody has entries for it gets a snapshot.

use crate::trio::{Trio, group_of, is_appended, with_text};
use cluster::{Section, TransferSays};
use log::LogOptions;
use model::StreamKey;
use stream::Outcome;
use thalweg_node::testing::{append, create, options, path};
use thalweg_node::{Event, Failure, PEER_TICK_MS, PeerEvent, Reply, Request, TransferCounts};

/// Bytes of one append.
const APPEND_BYTES: usize = 4_000;

/// Logs that hold little.
fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        wal_bytes_max: 256 << 10,
        seal_bytes: 64 << 10,
        batch_bytes_max: 64 << 10,
        checkpoint_bytes: 64 << 10,
        lineage: Some(7),
        ..options()
    }
}

/// Time passes for all, with what shards do by themselves.
fn pass(trio: &mut Trio) {
    trio.tick();
    for node in trio.nodes.iter_mut().flatten() {
        node.handle(0, Event::Tick);
    }
    trio.settle();
}

/// A node that does not lead the group of a stream.
fn follower(leader: usize) -> usize {
    (leader + 1) % 3
}

fn fill(trio: &mut Trio, leader: usize, name: &str, count: usize) {
    for number in 0..count {
        let data = [b'a' + (number % 26) as u8; APPEND_BYTES];
        let reply = trio.ask(leader, append(&path(name), &data));
        assert!(is_appended(&reply), "{reply:?}");
        pass(trio);
    }
}

fn counts(trio: &mut Trio, node: usize) -> TransferCounts {
    trio.node(node).shards[0].transfer_counts()
}

fn applied(trio: &mut Trio, node: usize, name: &str) -> u64 {
    trio.copy(node, group_of(name)).applied.get()
}

/// Whether a node has as much as the leader.
fn has_all(trio: &mut Trio, (node, leader): (usize, usize), name: &str) -> bool {
    applied(trio, node, name) == applied(trio, leader, name)
}

fn catch_up(trio: &mut Trio, (node, leader): (usize, usize), name: &str) {
    for _ in 0..400 {
        if has_all(trio, (node, leader), name) {
            return;
        }
        pass(trio);
    }
    let copies = trio.node(node).shards[0].copies();
    panic!("it does not catch up: {copies:?}");
}

fn check_equal(trio: &mut Trio, name: &str) {
    let group = group_of(name);
    let state = |node: usize, trio: &mut Trio| trio.node(node).shards[0].checkpoint_bytes(group);
    let first = state(0, trio);
    assert!(first.is_some());
    assert!((1..3).all(|node| state(node, trio) == first), "copies are the same");
}

#[test]
fn a_node_that_was_away_fetches_only_what_it_lacks() {
    let mut trio = Trio::with(small());
    let leader = with_text(&mut trio, "a");
    fill(&mut trio, leader, "a", 300);
    let away = follower(leader);
    catch_up(&mut trio, (away, leader), "a");
    trio.cut = vec![away];
    fill(&mut trio, leader, "a", 150);
    assert_eq!(trio.leader(group_of("a")), leader);
    trio.cut.clear();
    catch_up(&mut trio, (away, leader), "a");
    let sent = counts(&mut trio, leader);
    assert_eq!(counts(&mut trio, away).installs, 1, "its log was not enough");
    let written = 150 * APPEND_BYTES as u64;
    assert!(sent.sent_bytes <= written * 6 / 5, "{sent:?} for {written} bytes");
    check_equal(&mut trio, "a");
    let text = trio.text(away, "a");
    assert_eq!(text.len(), 4 + 450 * APPEND_BYTES);
    assert_eq!(text, trio.text(leader, "a"));
    // It continues, also behind a loss of power.
    fill(&mut trio, leader, "a", 3);
    drop(trio.nodes[away].take());
    trio.disks[away].crash(&mut env::SeededRandom::new(5));
    trio.start(away);
    catch_up(&mut trio, (away, leader), "a");
    assert_eq!(trio.text(away, "a").len(), 4 + 453 * APPEND_BYTES);
}

#[test]
fn a_snapshot_continues_where_it_was_when_its_link_is_lost() {
    let mut trio = Trio::with(small());
    let leader = with_text(&mut trio, "a");
    let away = follower(leader);
    trio.cut = vec![away];
    fill(&mut trio, leader, "a", 300);
    trio.cut.clear();
    let mut lost = 0;
    for _ in 0..400 {
        for node in 0..3 {
            trio.node(node).wait_ms(PEER_TICK_MS);
            trio.tell(node, PeerEvent::Tick);
            trio.node(node).handle(0, Event::Tick);
        }
        while trio.settle_one() {
            // Each time that some of it has come, the rest is lost.
            let is_piece = |section: &Section| {
                let Section::Transfer { transfer, .. } = section else { return false };
                let from = (lost + 1) * 200_000;
                matches!(transfer.says, TransferSays::Piece { position, .. } if position > from)
            };
            let mut next = trio.under_way.iter().take(1);
            if lost < 5 && next.any(|(_, to, section)| *to == away && is_piece(section)) {
                lost += 1;
                trio.link(leader, away);
            }
        }
        if has_all(&mut trio, (away, leader), "a") {
            break;
        }
    }
    assert!(has_all(&mut trio, (away, leader), "a"), "it never comes");
    let sent = counts(&mut trio, leader);
    assert_eq!((lost, counts(&mut trio, away).installs), (5, 1));
    assert!(sent.resumed >= 5, "{sent:?}");
    // Each loss costs what was under way, and no more.
    let window = 5 * (4 << 20);
    assert!(sent.sent_bytes < 310 * APPEND_BYTES as u64 + window, "{sent:?}");
    check_equal(&mut trio, "a");
    assert_eq!(trio.text(away, "a").len(), 4 + 300 * APPEND_BYTES);
}

#[test]
fn who_watches_a_stream_learns_where_it_ends_behind_a_snapshot_and_that_another_is_gone() {
    let mut trio = Trio::with(small());
    let leader = with_text(&mut trio, "a");
    let away = follower(leader);
    let gone = (0..).map(|number| format!("gone{number}"));
    let gone = gone.into_iter().find(|name| group_of(name) == group_of("a")).unwrap();
    let made = trio.ask(leader, create(&path(&gone), Some("text/plain"), None, b""));
    let Reply::Outcome(Outcome::Created(info)) = made else { panic!("{made:?}") };
    let gone_key = StreamKey { group: group_of("a"), stream: info.stream };
    catch_up(&mut trio, (away, leader), "a");
    let Reply::Head(key, _) = trio.ask(away, crate::trio::head("a")) else { panic!("no head") };
    for key in [key, gone_key] {
        trio.node(away).offer(Request::Watch { key });
    }
    trio.settle();
    trio.cut = vec![away];
    fill(&mut trio, leader, "a", 150);
    trio.ask(leader, Request::Delete { path: path(&gone) });
    fill(&mut trio, leader, "a", 40);
    trio.node(away).changes.clear();
    trio.cut.clear();
    catch_up(&mut trio, (away, leader), "a");
    assert_eq!(counts(&mut trio, away).installs, 1);
    let changes = std::mem::take(&mut trio.node(away).changes);
    let last = |key| changes.iter().rfind(|(_, change)| change.key == key).map(|(_, it)| it);
    let tail = 4 + 190 * APPEND_BYTES as u64;
    assert_eq!(last(key).map(|it| (it.tail.get(), it.gone)), Some((tail, false)));
    assert!(last(gone_key).is_some_and(|change| change.gone));
}

#[test]
fn nobody_can_tell_of_a_write_that_a_snapshot_may_cover() {
    let mut trio = Trio::with(small());
    let old = with_text(&mut trio, "a");
    trio.cut = vec![old];
    let lost = trio.node(old).offer(append(&path("a"), b"lost,"));
    trio.node(old).settle();
    let new = (0..200).find_map(|_| {
        pass_without_waiting(&mut trio, old);
        trio.serving(group_of("a"))
    });
    let new = new.expect("another one leads");
    for _ in 0..200 {
        let data = [b'x'; APPEND_BYTES];
        let number = trio.node(new).offer(append(&path("a"), &data));
        for _ in 0..20 {
            pass_without_waiting(&mut trio, old);
            if trio.node(new).replies.iter().any(|(of, _)| *of == number) {
                break;
            }
        }
    }
    trio.cut.clear();
    catch_up(&mut trio, (old, new), "a");
    assert!(counts(&mut trio, old).installs > 0);
    let answers = std::mem::take(&mut trio.node(old).replies);
    let answer = answers.iter().find(|(of, _)| *of == lost).map(|(_, reply)| reply);
    assert!(matches!(answer, Some(Reply::Failed(Failure::Unknown))), "{answer:?}");
}

/// Time passes for all but one node.
fn pass_without_waiting(trio: &mut Trio, but: usize) {
    for node in (0..3).filter(|node| *node != but) {
        trio.node(node).wait_ms(PEER_TICK_MS);
        trio.tell(node, PeerEvent::Tick);
        trio.node(node).handle(0, Event::Tick);
    }
    trio.settle();
}
