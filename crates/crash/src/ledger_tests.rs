//! The checks notice each kind of loss. One stream of text, written to by one writer.

use super::*;
use crate::record::append;

const SEED: u64 = 5;

/// A stream with appends 0, 1 and 2 acknowledged, and its bytes cut into these appends.
fn three() -> (Ledger, Stream, Vec<Vec<u8>>) {
    let mut stream = Stream::new(0, "/a".to_owned(), Kind::Text, Style::Producer);
    stream.created = Fate::Done;
    let mut end = 0;
    let mut pieces = Vec::new();
    for number in 0..3 {
        end += send(&mut stream, number, &mut pieces);
        stream.stored(stream.append_id(0, number), end).unwrap();
    }
    (Ledger::new(SEED), stream, pieces)
}

fn send(stream: &mut Stream, number: u64, pieces: &mut Vec<Vec<u8>>) -> u64 {
    let id = stream.append_id(0, number);
    let append = append(Kind::Text, id, SEED);
    stream.begin(id, &append, false);
    pieces.push(append.body);
    append.stored_bytes
}

fn check(ledger: &Ledger, stream: &mut Stream, pieces: &[&Vec<u8>]) -> Result<Checked, String> {
    let content: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    stream.check(ledger, held(&content, false))
}

fn held(content: &[u8], is_closed: bool) -> Held<'_> {
    Held { content, is_closed, is_final: true }
}

#[test]
fn what_was_acknowledged_and_is_there_is_counted() {
    let (ledger, mut stream, pieces) = three();
    let checked = check(&ledger, &mut stream, &pieces.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!((checked.appends, checked.settled), (3, 0));
}

#[test]
fn a_loss_is_noticed_wherever_it_is() {
    for missing in 0..3 {
        let (ledger, mut stream, mut pieces) = three();
        pieces.remove(missing);
        assert!(check(&ledger, &mut stream, &pieces.iter().collect::<Vec<_>>()).is_err());
    }
}

#[test]
fn a_second_copy_and_another_order_are_noticed() {
    let (ledger, mut stream, pieces) = three();
    let [a, b, c] = &pieces[..] else { panic!("three pieces") };
    let twice = check(&ledger, &mut stream, &[a, b, c, c]).unwrap_err();
    assert!(twice.contains("TWICE"), "{twice}");
    assert!(check(&ledger, &mut stream, &[b, a, c]).is_err());
}

#[test]
fn only_an_append_without_an_answer_may_come_late_and_only_once() {
    let late = |is_answered: bool, order: [usize; 4]| {
        let (ledger, mut stream, mut pieces) = three();
        stream.style = Style::Plain;
        let id = stream.append_id(0, 3);
        send(&mut stream, 3, &mut pieces);
        send(&mut stream, 4, &mut pieces);
        if !is_answered {
            stream.unanswered(Some(id));
        }
        let order = order.map(|piece| &pieces[piece]);
        let all = [&pieces[0], &pieces[1], &pieces[2], order[0], order[1], order[2]];
        let count = if order[2] == order[3] { 5 } else { 6 };
        check(&ledger, &mut stream, &all[..count]).map(|_| stream.may_change)
    };
    assert_eq!(late(false, [4, 3, 0, 0]), Ok(false));
    assert!(late(true, [4, 3, 0, 0]).unwrap_err().contains("comes after"));
    assert!(late(false, [4, 3, 3, 0]).unwrap_err().contains("TWICE"));
}

#[test]
fn an_unknown_append_is_settled_once_and_for_ever() {
    let (ledger, mut stream, mut pieces) = three();
    send(&mut stream, 3, &mut pieces);
    let all: Vec<&Vec<u8>> = pieces.iter().collect();
    let (mut there, mut absent) = (stream, three().1);
    send(&mut absent, 3, &mut Vec::new());

    assert_eq!(check(&ledger, &mut there, &all).unwrap().settled, 1);
    assert!(check(&ledger, &mut there, &all[..3]).unwrap_err().contains("LOST"));

    assert_eq!(check(&ledger, &mut absent, &all[..3]).unwrap().settled, 1);
    assert!(check(&ledger, &mut absent, &all).unwrap_err().contains("gone, and is there"));
}

#[test]
fn a_repeat_that_is_taken_as_new_is_noticed() {
    let (_, mut stream, mut pieces) = three();
    send(&mut stream, 2, &mut pieces);
    assert!(stream.stored(stream.append_id(0, 2), 9_999).unwrap_err().contains("taken as new"));
}

#[test]
fn what_a_reader_saw_must_stay() {
    let (ledger, mut stream, mut pieces) = three();
    let tail = stream.tail_known;
    send(&mut stream, 3, &mut pieces);
    stream.saw(tail, &pieces[3]);
    let all: Vec<&Vec<u8>> = pieces.iter().collect();
    assert!(check(&ledger, &mut stream, &all[..3]).unwrap_err().contains("a reader saw"));
}

#[test]
fn a_close_stays_and_comes_from_somebody() {
    let (ledger, mut stream, pieces) = three();
    let content = pieces.concat();
    assert!(stream.check(&ledger, held(&content, true)).unwrap_err().contains("nobody closed it"));
    stream.closed = Fate::Done;
    assert!(stream.check(&ledger, held(&content, false)).unwrap_err().contains("is open"));
    assert!(stream.check(&ledger, held(&content, true)).is_ok());
}

#[test]
fn inherited_bytes_are_those_of_the_source() {
    let (ledger, source, pieces) = three();
    let at = pieces[0].len() as u64 + pieces[1].len() as u64;
    ledger.add(|_| source);
    let mut fork = Stream::new(1, "/b".to_owned(), Kind::Text, Style::Plain);
    fork.created = Fate::Done;
    fork.fork = Some(Fork { source: 0, at, depth: 1 });
    assert!(check(&ledger, &mut fork, &[&pieces[0], &pieces[1]]).is_ok());
    assert!(check(&ledger, &mut fork, &[&pieces[0]]).unwrap_err().contains("inherited bytes end"));
    assert!(check(&ledger, &mut fork, &[&pieces[1], &pieces[0]]).is_err());
    assert!(check(&ledger, &mut fork, &[&pieces[0], &pieces[1], &pieces[2]]).is_err());
}

#[test]
fn the_refusal_of_a_repeat_says_nothing_of_the_first() {
    let (ledger, mut stream, mut pieces) = three();
    send(&mut stream, 3, &mut pieces);
    send(&mut stream, 3, &mut Vec::new());
    stream.refused(stream.append_id(0, 3));
    assert!(check(&ledger, &mut stream, &pieces.iter().collect::<Vec<_>>()).is_ok());

    let (ledger, mut stream, mut pieces) = three();
    send(&mut stream, 3, &mut pieces);
    stream.refused(stream.append_id(0, 3));
    assert!(check(&ledger, &mut stream, &pieces.iter().collect::<Vec<_>>()).is_err());
}
