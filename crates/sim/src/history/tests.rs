use super::*;
use crate::wire::offset_text;

const PATH: &str = "shared/0";

/// A history under construction: requests and answers of one stream of bytes.
#[derive(Default)]
struct Story {
    history: History,
    conns: u32,
    places: BTreeMap<OpNo, u64>,
}

impl Story {
    fn send(&mut self, ask: Ask, op: Option<(OpNo, &str)>) -> u32 {
        self.conns += 1;
        let op = op.map(|(number, bytes)| (number, bytes.as_bytes()));
        self.history.asked(self.conns, &ask, Shape::Binary, op);
        self.conns
    }

    fn append(&mut self, number: OpNo, bytes: &str) -> u32 {
        self.send(Ask::new("POST", PATH), Some((number, bytes)))
    }

    fn numbered(&mut self, number: OpNo, bytes: &str, seq: u64) -> u32 {
        let ask = Ask::new("POST", PATH).field("Producer-Id", "p");
        let ask = ask.field("Producer-Epoch", "0").field("Producer-Seq", seq.to_string());
        self.send(ask, Some((number, bytes)))
    }

    fn close(&mut self) -> u32 {
        self.send(Ask::new("POST", PATH).field("Stream-Closed", "true"), None)
    }

    fn read(&mut self) -> u32 {
        self.send(Ask::new("GET", PATH), None)
    }

    fn head(&mut self) -> u32 {
        self.send(Ask::new("HEAD", PATH), None)
    }

    /// An answer with the tail; fields in `others` are `true`.
    fn answer(&mut self, conn: u32, status: u16, (tail, body): (u64, &str), others: &[&str]) {
        let mut fields = vec![("stream-next-offset".to_owned(), offset_text(tail))];
        fields.extend(others.iter().map(|name| ((*name).to_owned(), "true".to_owned())));
        let answer = Answer { status, fields, body: body.as_bytes().to_vec() };
        self.history.heard(conn, Some(&answer));
    }

    /// A read that finds the stream to be `body` and no more.
    fn finds(&mut self, body: &str) {
        let conn = self.read();
        self.answer(conn, 200, (body.len() as u64, body), &["stream-up-to-date"]);
    }

    fn appends(&mut self, number: OpNo, bytes: &str, tail: u64) {
        let conn = self.append(number, bytes);
        self.answer(conn, 204, (tail, ""), &[]);
    }

    fn lose(&mut self, conn: u32) {
        self.history.heard(conn, None);
    }

    /// The operations, or what could not be explained.
    fn check(mut self) -> Result<usize, String> {
        self.history.check(PATH, |number| self.places.get(&number).copied())
    }
}

#[test]
fn one_operation_after_the_other_is_explained() {
    let mut story = Story::default();
    story.appends(1, "ab", 2);
    story.finds("ab");
    story.appends(2, "cde", 5);
    story.finds("abcde");
    assert_eq!(story.check(), Ok(4));
}

#[test]
fn a_stale_read_after_an_acknowledgement_is_not_explained() {
    let mut story = Story::default();
    story.appends(1, "ab", 2);
    story.appends(2, "cde", 5);
    story.finds("ab");
    assert!(story.check().unwrap_err().contains("read 0..2"));
}

#[test]
fn a_read_beside_an_append_may_find_it_or_not() {
    for found in ["ab", "abcde"] {
        let mut story = Story::default();
        story.appends(1, "ab", 2);
        let conn = story.append(2, "cde");
        story.finds(found);
        story.answer(conn, 204, (5, ""), &[]);
        assert_eq!(story.check(), Ok(3), "{found}");
    }
}

#[test]
fn what_one_read_found_a_later_one_must_find() {
    let mut story = Story::default();
    story.appends(1, "ab", 2);
    let conn = story.append(2, "cde");
    story.finds("abcde");
    story.finds("ab");
    story.answer(conn, 204, (5, ""), &[]);
    assert!(story.check().is_err());
}

#[test]
fn half_an_append_is_never_the_tail() {
    let mut story = Story::default();
    let conn = story.append(1, "abcd");
    story.finds("ab");
    story.answer(conn, 204, (4, ""), &[]);
    assert!(story.check().is_err());
}

#[test]
fn an_append_that_is_there_twice_is_not_explained() {
    let mut story = Story::default();
    story.appends(1, "ab", 2);
    story.finds("abab");
    assert!(story.check().is_err());
}

#[test]
fn appends_in_another_order_than_acknowledged_are_not_explained() {
    let mut story = Story::default();
    story.appends(1, "ab", 2);
    story.appends(2, "cd", 4);
    story.finds("cdab");
    assert!(story.check().is_err());
}

#[test]
fn a_lost_append_may_be_found_later_or_never() {
    for (found, place) in [("ab", None), ("abcde", Some(2))] {
        let mut story = Story::default();
        story.appends(1, "ab", 2);
        let conn = story.append(2, "cde");
        story.lose(conn);
        story.finds("ab");
        story.finds(found);
        story.places.extend(place.map(|place| (2, place)));
        assert!(story.check().is_ok(), "{found}");
    }
}

#[test]
fn a_lost_append_that_was_found_stays() {
    let mut story = Story::default();
    let conn = story.append(1, "ab");
    story.lose(conn);
    story.finds("ab");
    story.finds("");
    story.places.insert(1, 0);
    assert!(story.check().is_err());
}

#[test]
fn a_refused_append_must_not_be_found() {
    let mut story = Story::default();
    let conn = story.append(1, "ab");
    story.answer(conn, 503, (0, ""), &[]);
    story.finds("ab");
    assert!(story.check().is_err());
}

#[test]
fn a_repeat_of_the_last_append_gets_its_own_end() {
    for (told, is_explained) in [(2, true), (5, false), (4, false)] {
        let mut story = Story::default();
        let conn = story.numbered(1, "ab", 0);
        story.lose(conn);
        story.appends(2, "cde", 5);
        let conn = story.numbered(1, "ab", 0);
        story.answer(conn, 204, (told, ""), &[]);
        story.places.insert(1, 0);
        assert_eq!(story.check().is_ok(), is_explained, "{told}");
    }
}

#[test]
fn a_repeat_of_an_older_append_gets_the_tail_of_its_moment() {
    for (told, is_explained) in [(5, true), (2, false), (4, false)] {
        let mut story = Story::default();
        let conn = story.numbered(1, "ab", 0);
        story.lose(conn);
        let conn = story.numbered(2, "cde", 1);
        story.answer(conn, 200, (5, ""), &[]);
        let conn = story.numbered(1, "ab", 0);
        story.answer(conn, 204, (told, ""), &[]);
        story.places.insert(1, 0);
        assert_eq!(story.check().is_ok(), is_explained, "{told}");
    }
}

#[test]
fn a_repeat_of_what_never_was_is_not_explained() {
    let mut story = Story::default();
    let conn = story.numbered(1, "ab", 0);
    story.answer(conn, 204, (0, ""), &[]);
    assert!(story.check().is_err());
}

#[test]
fn a_closed_stream_takes_nothing_more() {
    let mut story = Story::default();
    let conn = story.close();
    story.answer(conn, 204, (0, ""), &["stream-closed"]);
    story.appends(1, "ab", 2);
    assert!(story.check().is_err());
}

#[test]
fn a_lost_close_may_show_later_but_not_go_away() {
    for (is_open_again, is_explained) in [(false, true), (true, false)] {
        let mut story = Story::default();
        let conn = story.close();
        story.lose(conn);
        story.appends(1, "ab", 2);
        let conn = story.head();
        story.answer(conn, 200, (2, ""), &["stream-closed"]);
        let conn = story.head();
        let fields: &[&str] = if is_open_again { &[] } else { &["stream-closed"] };
        story.answer(conn, 200, (2, ""), fields);
        assert_eq!(story.check().is_ok(), is_explained);
    }
}

#[test]
fn a_lower_sequence_is_refused_and_a_higher_one_taken() {
    for (second, is_explained) in [("2", true), ("1", false)] {
        let mut story = Story::default();
        for (number, sequence, tail) in [(1, "1", 2), (2, second, 4)] {
            let ask = Ask::new("POST", PATH).field("Stream-Seq", sequence);
            let conn = story.send(ask, Some((number, "ab")));
            story.answer(conn, 204, (tail, ""), &[]);
        }
        assert_eq!(story.check().is_ok(), is_explained, "{second}");
    }
}

#[test]
fn the_state_is_carried_over_cuts() {
    for (last, is_explained) in [(200, true), (198, false)] {
        let mut story = Story::default();
        for number in 0..100 {
            let tail = 2 * (number as u64 + 1);
            if number % 7 == 3 {
                let conn = story.append(number, "xy");
                story.lose(conn);
                story.places.insert(number, tail - 2);
            } else {
                story.appends(number, "xy", tail);
            }
        }
        let conn = story.head();
        story.answer(conn, 200, (last, ""), &[]);
        assert_eq!(story.check().is_ok(), is_explained, "{last}");
    }
}

#[test]
fn many_lost_tries_of_one_append_are_one_operation() {
    let mut story = Story::default();
    for _ in 0..40 {
        let conn = story.numbered(1, "ab", 0);
        story.lose(conn);
    }
    story.places.insert(1, 0);
    for _ in 0..40 {
        story.finds("ab");
    }
    assert_eq!(story.check(), Ok(41));
}

#[test]
fn a_lost_try_does_not_excuse_an_append_that_was_acknowledged_twice() {
    let mut story = Story::default();
    let conn = story.numbered(1, "ab", 0);
    story.lose(conn);
    let conn = story.numbered(1, "ab", 0);
    story.answer(conn, 200, (2, ""), &[]);
    let conn = story.numbered(1, "ab", 0);
    story.answer(conn, 200, (4, ""), &[]);
    story.places.insert(1, 0);
    assert!(story.check().is_err());
}
