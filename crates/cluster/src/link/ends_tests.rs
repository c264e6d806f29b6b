//! Both ends of a link, over a wire that cuts as it likes, and strangers.

use super::*;
use crate::frame::{FRAME_BYTES_MAX, Section};
use crate::identity::NodeNumber;
use bytes::Bytes;
use model::Timestamp;

const NOW: Timestamp = Timestamp::new(5);

fn hello(number: u16) -> Hello {
    Hello {
        versions: (VERSION_MIN, VERSION_MAX),
        cluster: 0xc1,
        store: u64::from(number),
        number: Some(NodeNumber::new(number)),
        shard: (0, 1),
        group_count: 64,
        epoch: 5,
        features: 0,
        nonce: [number as u8; 16],
        class: Class::Raft,
    }
}

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn ends() -> (Outbound, Inbound) {
    (Outbound::new(hello(1), secret()), Inbound::new(hello(2), secret()))
}

fn send_all(from: &mut Outbound) -> Vec<u8> {
    let mut sent = Vec::new();
    loop {
        let bytes = from.unsent(NOW).to_vec();
        if bytes.is_empty() {
            return sent;
        }
        from.sent(bytes.len());
        sent.extend(bytes);
    }
}

/// Moves everything from one end to the other, `step` bytes at a time.
fn exchange(from: &mut Outbound, to: &mut Inbound, step: usize) -> Vec<Section> {
    let mut sections = Vec::new();
    loop {
        let bytes = send_all(from);
        if bytes.is_empty() {
            return sections;
        }
        for piece in bytes.chunks(step) {
            let heard = to.handle(piece, &|_| Ok(()));
            assert_eq!(heard.end, None);
            sections.extend(heard.sections);
            for piece in heard.send.chunks(step) {
                let _ = from.handle(piece, &|_| Ok(())).unwrap();
            }
        }
    }
}

fn answer(bytes: usize) -> Section {
    Section::Answer { request: bytes as u64, payload: Bytes::from(vec![bytes as u8; bytes]) }
}

#[test]
fn sections_come_out_as_they_went_in_however_the_wire_cuts() {
    for step in [1, 7, 96, 1000, usize::MAX] {
        let (mut from, mut to) = ends();
        assert_eq!(exchange(&mut from, &mut to, step), []);
        assert_eq!(from.peer().map(|hello| hello.store), Some(2));
        assert_eq!(to.peer().map(|hello| hello.store), Some(1));
        let sections = [answer(3), answer(FRAME_BYTES_MAX * 3), answer(0)];
        for section in &sections {
            from.push(section.clone()).unwrap();
        }
        let mut received = exchange(&mut from, &mut to, step);
        received.sort_by_key(|section| match section {
            Section::Answer { request, .. } => sections.iter().position(
                |other| matches!(other, Section::Answer { request: of, .. } if of == request),
            ),
            _ => None,
        });
        assert_eq!(received, sections, "{step}");
        assert_eq!((to.held_bytes(), from.has_unsent()), (0, false));
    }
}

#[test]
fn an_idle_link_says_that_it_is_there_and_nothing_else() {
    let (mut from, mut to) = ends();
    from.keep_alive(NOW);
    assert_eq!(exchange(&mut from, &mut to, 100), [], "nothing is kept alive before it is up");
    from.keep_alive(NOW);
    let bytes = send_all(&mut from);
    assert_eq!(bytes.len(), crate::frame::FRAME_HEADER_BYTES);
    let heard = to.handle(&bytes, &|_| Ok(()));
    assert_eq!((heard.sections, heard.end), (Vec::new(), None));
    from.push(answer(1)).unwrap();
    from.keep_alive(NOW);
    assert_eq!(exchange(&mut from, &mut to, 100), [answer(1)]);
}

#[test]
fn a_peer_that_takes_nothing_loses_its_link_and_not_our_memory() {
    let (mut from, mut to) = ends();
    exchange(&mut from, &mut to, 100);
    let piece = OUTBOX_BYTES_MAX / 64;
    let taken = (0..1000).take_while(|_| from.push(answer(piece)).is_ok()).count();
    assert!((64..=66).contains(&taken), "{taken}");
}

#[test]
fn garbage_silence_and_endless_bytes_hold_little_and_get_no_words() {
    let garbage: Vec<u8> = (0..100_000_u32).map(|at| (at * 7) as u8).collect();
    let (_, mut to) = ends();
    let heard = to.handle(&garbage, &|_| Ok(()));
    assert_eq!(heard.end, Some(LinkError::Refused(Refusal::NotANode)));
    assert!(heard.send.is_empty() && heard.up.is_none());

    let (mut from, mut to) = ends();
    exchange(&mut from, &mut to, 100);
    // Behind the welcome a peer may be out of its mind: a frame that never ends is refused by its length.
    let heard = to.handle(&[0xff; 64], &|_| Ok(()));
    assert!(matches!(heard.end, Some(LinkError::Frame(_))), "{:?}", heard.end);
    assert!(from.handle(b"x", &|_| Ok(())).is_err(), "an acceptor says nothing more");
}

#[test]
fn what_was_recorded_is_worth_nothing_later() {
    let (mut from, mut to) = ends();
    let first = send_all(&mut from);
    let heard = to.handle(&first, &|_| Ok(()));
    let _ = from.handle(&heard.send, &|_| Ok(())).unwrap();
    let proof = send_all(&mut from);
    assert!(to.handle(&proof, &|_| Ok(())).up.is_some());
    // The same bytes to another link of the same node, whose random bytes are others.
    let mut later = Inbound::new(Hello { nonce: [9; 16], ..hello(2) }, secret());
    let heard = later.handle(&[first, proof].concat(), &|_| Ok(()));
    assert_eq!(heard.end, Some(LinkError::Refused(Refusal::Secret)));
    assert!(heard.up.is_none() && later.peer().is_none());
}

#[test]
fn a_node_proves_nothing_to_another_one_than_it_has_dialled() {
    let (mut from, mut to) = ends();
    let heard = to.handle(&send_all(&mut from), &|_| Ok(()));
    let (found, wanted) = (NodeNumber::new(2), NodeNumber::new(3));
    let refusal = Refusal::OtherNode { found, wanted };
    let said = from.handle(&heard.send, &|_| Err(refusal));
    assert_eq!(said, Err(LinkError::Refused(refusal)));
    assert!(send_all(&mut from).is_empty() && from.peer().is_none());
}

#[test]
fn a_node_that_the_cluster_does_not_want_learns_why() {
    let (mut from, mut to) = ends();
    let number = NodeNumber::new(1);
    let removed = Refusal::Removed { number };
    let mut step = |bytes: &[u8]| to.handle(bytes, &|_| Err(removed));
    let heard = step(&send_all(&mut from));
    let _ = from.handle(&heard.send, &|_| Ok(())).unwrap();
    let heard = step(&send_all(&mut from));
    assert_eq!(heard.end, Some(LinkError::Refused(removed)));
    assert_eq!(from.handle(&heard.send, &|_| Ok(())), Err(LinkError::Refused(removed)));
}

#[test]
fn who_has_not_proved_that_it_knows_the_secret_removes_nobody() {
    let (mut from, _) = ends();
    let removed = Refusal::Removed { number: NodeNumber::new(1) };
    let said = from.handle(&removed.encode(), &|_| Ok(()));
    assert_eq!(said, Err(LinkError::Refused(Refusal::NotANode)));
    // Nor does a stranger that has passed on what a member has said.
    let (mut from, mut to) = ends();
    let heard = to.handle(&send_all(&mut from), &|_| Ok(()));
    let _ = from.handle(&heard.send, &|_| Ok(())).unwrap();
    let said = from.handle(&removed.encode(), &|_| Ok(()));
    assert_eq!(said, Err(LinkError::Refused(Refusal::NotANode)));
}
