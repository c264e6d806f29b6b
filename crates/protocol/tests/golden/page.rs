//! Pages of answers, and how they are compared.

use crate::other_wire::OtherWire;
use std::fmt::Write as _;
use thalweg_protocol::{
    HeadSink, HttpDate, Viewers,
    http1::{Exchange, HeadWriter, Version},
};

/// A page under construction.
#[derive(Default)]
pub(crate) struct Page(String);

/// The kinds of exchange besides HTTP/1.1 that is kept: version, kept, `HEAD`.
const OTHERS: [(&str, Version, bool, bool); 5] = [
    ("HTTP/1.1, to be closed", Version::Http11, false, false),
    ("HTTP/1.0, kept", Version::Http10, true, false),
    ("HTTP/1.0, to be closed", Version::Http10, false, false),
    ("HEAD, kept", Version::Http11, true, true),
    ("HEAD, to be closed", Version::Http11, false, true),
];

impl Page {
    /// Adds an answer in all kinds of exchange. `write` returns what it says of the body.
    pub(crate) fn answer(&mut self, title: &str, write: impl Fn(&mut dyn HeadSink) -> String) {
        self.answer_to(title, Viewers::All, write);
    }

    /// As [`Self::answer`], for the pages that may see it.
    pub(crate) fn answer_to(
        &mut self,
        title: &str,
        viewers: Viewers<'static>,
        write: impl Fn(&mut dyn HeadSink) -> String,
    ) {
        let shown = |version, keep_alive, is_head| {
            let date = HttpDate::new(model::Timestamp::new(1_700_000_000_000));
            let exchange = Exchange { version, keep_alive, is_head, date: &date, viewers };
            let mut out = vec![];
            let note = write(&mut HeadWriter::new(&mut out, &exchange));
            let mut other = OtherWire::new(is_head, viewers);
            write(&mut other);
            other.assert_says(&out);
            show(&out) + &note
        };
        let first = shown(Version::Http11, true, false);
        self.section(title, &first);
        for (name, version, keep_alive, is_head) in OTHERS {
            let other = shown(version, keep_alive, is_head);
            self.difference(name, &first, &other);
        }
    }

    /// Adds bytes that no exchange shapes.
    pub(crate) fn bytes(&mut self, title: &str, bytes: &[u8]) {
        self.section(title, &show(bytes));
    }

    /// Adds the lines of `other` between those that begin and those that end `first`, too.
    fn difference(&mut self, name: &str, first: &str, other: &str) {
        let first: Vec<&str> = first.lines().collect();
        let other: Vec<&str> = other.lines().collect();
        let shorter = first.len().min(other.len());
        let begun = first.iter().zip(&other).take_while(|(a, b)| a == b).count();
        let ended = first.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
        let ended = ended.min(shorter - begun);
        let _ = writeln!(self.0, "## {name}: {begun} lines as above, these, the last {ended}");
        other[begun..other.len() - ended].iter().for_each(|line| _ = writeln!(self.0, "{line}"));
    }

    fn section(&mut self, title: &str, text: &str) {
        let _ = writeln!(self.0, "# {title}\n{}", text.trim_end_matches('\n'));
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}

fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n\n"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => {
                let _ = write!(text, "\\x{other:02x}");
            }
        }
    }
    text
}

/// Compares two pages and shows the first answer that differs.
pub(crate) fn check(ours: &str, recorded: &str) {
    if ours == recorded {
        return;
    }
    println!("---- the page as it is now\n{ours}---- its end");
    let (ours, recorded) = (sections(ours), sections(recorded));
    for (now, before) in ours.iter().zip(&recorded) {
        assert_eq!(now, before, "an answer is not as recorded");
    }
    panic!("{} answers are recorded, {} are written", recorded.len(), ours.len());
}

fn sections(page: &str) -> Vec<&str> {
    page.split("\n# ").collect()
}
