//! Many writers that want the same state of a stream, over connections of their own: one is accepted.

mod harness;

use harness::client::request;
use harness::{Answer, Client, JSON, SMALL_LOG, Start, TEXT, new_dir};

const WRITERS: usize = 64;
const ROUNDS: usize = 30;

/// A condition of an append: its field, and its value for the state that the stream is in.
type Condition = fn(&Answer) -> (&'static str, String);

fn by_tag(head: &Answer) -> (&'static str, String) {
    ("If-Match", head.field("ETag").expect("HEAD sends a tag").to_owned())
}

fn by_record(head: &Answer) -> (&'static str, String) {
    ("Stream-Record-Match", head.field("Stream-Record-Next").expect("a number").to_owned())
}

/// Every writer appends on the same condition, all at once; the number of the one that was accepted.
fn contend(
    writers: &mut [Client],
    (path, kind): (&str, &str),
    condition: (&str, &str),
    first: usize,
) -> usize {
    let asked = |number: usize| {
        let body = format!("{}", 1_000 + number);
        request("POST", path, &[("Content-Type", kind), condition], body.as_bytes())
    };
    // All but the last byte first: what remains to be sent is short.
    for (number, writer) in writers.iter_mut().enumerate() {
        let bytes = asked(number);
        writer.send(&bytes[..bytes.len() - 1]);
    }
    for number in (first..first + WRITERS).map(|number| number % WRITERS) {
        writers[number].send(asked(number).last_chunk::<1>().expect("a request has bytes"));
    }
    let answers: Vec<Answer> = writers.iter_mut().map(Client::answer).collect();
    let accepted: Vec<usize> = (0..WRITERS).filter(|&n| answers[n].status == 204).collect();
    let code = if condition.0 == "If-Match" { "precondition-failed" } else { "record-mismatch" };
    for (number, answer) in answers.into_iter().enumerate() {
        if !accepted.contains(&number) {
            answer.fails(412, code);
        }
    }
    assert_eq!(accepted.len(), 1, "writers {accepted:?} are accepted");
    accepted[0]
}

fn one_wins(path: &str, kind: &str, condition: Condition) {
    let dir = new_dir();
    let flags = [&SMALL_LOG[..], &["--shards", "2"]].concat();
    let mut server = Start::with(&flags).serve(dir.path());
    server.connect().put(path, kind).is(201);
    let mut winners = Vec::new();
    for round in 0..ROUNDS {
        if round == ROUNDS / 2 {
            server.kill();
            server = Start::with(&flags).serve(dir.path());
        }
        let mut writers: Vec<Client> = (0..WRITERS).map(|_| server.connect()).collect();
        let head = server.connect().call("HEAD", path, &[], b"").is(200);
        let (field, value) = condition(&head);
        // The first to send is another one each time.
        let winner = contend(&mut writers, (path, kind), (field, &value), round * 7);
        winners.push(1_000 + winner);
    }
    let stored = server.connect().get(path).is(200).text();
    let expected: Vec<String> = winners.iter().map(ToString::to_string).collect();
    let stored = stored.trim_matches(['[', ']']).replace(',', "");
    assert_eq!(stored, expected.concat(), "the stream holds those that were accepted, in order");
}

#[test]
fn one_of_64_writers_on_one_tag_is_accepted() {
    one_wins("/text", TEXT, by_tag);
    one_wins("/json", JSON, by_tag);
}

#[test]
fn one_of_64_writers_on_one_record_is_accepted() {
    one_wins("/text", TEXT, by_record);
    one_wins("/json", JSON, by_record);
}
