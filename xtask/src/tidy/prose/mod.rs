//! Plain words: short sentences, and the field's terms instead of a dialect.
//!
//! A page is one Markdown file, or all comments of one crate. Its sentences have at most
//! [`MEAN_WORDS_MAX`] words on average, none has more than [`WORDS_MAX`], and none uses a phrase of
//! [`PHRASES`]. `xtask/prose-allowance.txt` counts what older pages still break; its numbers may
//! only fall.

mod allowance;
mod sentences;

use super::{Finding, Sources, TextFile};
use sentences::Sentence;
use std::collections::BTreeMap;

/// The most words of a sentence on average over a page.
const MEAN_WORDS_MAX: usize = 15;
/// The most words of a single sentence.
const WORDS_MAX: usize = 30;

/// What is not said, where it is fine all the same, and what to say instead.
struct Phrase {
    is: &'static str,
    but: &'static [&'static str],
    better: &'static str,
}

const fn phrase(is: &'static str, better: &'static str) -> Phrase {
    Phrase { is, but: &[], better }
}

const PHRASES: &[Phrase] = &[
    Phrase {
        is: "told",
        but: &["told to", "told apart"],
        better: "reported, acknowledged, learns",
    },
    Phrase { is: "stands", but: &["stands for"], better: "is, lies, is written" },
    Phrase { is: "stand", but: &["stand for"], better: "are, lie, are written" },
    phrase("goes on", "continues"),
    phrase("go on", "continue"),
    phrase("went on", "continued"),
    phrase("anew", "again"),
    phrase("for ever", "forever"),
    phrase("whoever", "the client, the caller, the sender"),
    phrase("those who", "clients that, callers that"),
    phrase("without a word", "silently"),
    phrase("is said", "is reported, is printed"),
    phrase("who waits", "queued readers, waiting writes"),
    phrase("is it well", "health and metrics"),
    phrase("as the disk answers", "any error of the underlying disk"),
    phrase("what only", "checks whose tools are missing"),
    phrase("lane", "shard's WAL"),
    phrase("lanes", "WALs of the shards"),
    phrase("parked", "deferred, queued"),
    phrase("parking", "the write queue"),
];

/// Names that the code has left behind, wherever they are written.
const OLD_NAMES: &[(&str, &str)] = &[
    ("CommitJob", "SyncJob"),
    ("CommitResult", "SyncDone"),
    ("CommittedBatch", "DurableBatch"),
    ("poll_commit", "poll_sync"),
    ("handle_commit", "handle_synced"),
    ("Parking", "WriteQueue"),
    ("Gather", "BatchDelay"),
    ("carry_out", "execute"),
    ("goes_on", "is_running"),
    ("pump", "continue_body"),
    ("run_shares", "run_turn"),
    ("PeerMessage", "ShardMessage"),
    ("PeerCall", "ShardCall"),
    ("Variant", "Cohort, Encoding"),
    ("NO_LIFE", "Option<Life>"),
    ("LaneSegment", "WalSegment"),
    ("ScannedLane", "ScannedWal"),
    ("lane_dir", "wal_dir"),
];

/// What is wrong on each page, and not allowed to be.
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    allowance::check(sources.text(allowance::FILE), &findings(sources))
}

/// All findings, by page; also those that are allowed.
pub(super) fn findings(sources: &Sources) -> BTreeMap<String, Vec<Finding>> {
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    for file in &sources.texts {
        if let Some((name, sentences)) = read(file) {
            pages.entry(name).or_default().add(file, &sentences);
        }
    }
    pages.into_iter().map(|(name, page)| (name.clone(), page.findings(&name))).collect()
}

/// The page that a file belongs to, and the file's sentences.
fn read(file: &TextFile) -> Option<(String, Vec<Sentence>)> {
    if file.path.ends_with(".md") {
        return Some((file.path.clone(), sentences::of_markdown(&file.text)));
    }
    let mut parts = file.path.split('/');
    let first = parts.next().filter(|_| file.is_rust())?;
    let page = match (first, parts.next()) {
        ("crates", Some(name)) => format!("crates/{name}"),
        _ => first.to_owned(),
    };
    Some((page, sentences::of_comments(&file.text)))
}

#[derive(Default)]
struct Page {
    sentences: usize,
    words: usize,
    findings: Vec<Finding>,
}

impl Page {
    fn add(&mut self, file: &TextFile, sentences: &[Sentence]) {
        for sentence in sentences {
            self.sentences += 1;
            self.words += sentence.words.len();
            self.findings.extend(long(&file.path, sentence));
            self.findings.extend(dialect(&file.path, sentence));
        }
        if !file.path.starts_with("xtask/src/tidy/prose") {
            self.findings.extend(old_names(file));
        }
    }

    fn findings(mut self, name: &str) -> Vec<Finding> {
        if self.words > MEAN_WORDS_MAX * self.sentences {
            let tenths = self.words * 10 / self.sentences;
            let (whole, tenth) = (tenths / 10, tenths % 10);
            let what = format!("{whole}.{tenth} words to a sentence on average");
            let advice = format!("at most {MEAN_WORDS_MAX}: say less in one, or make two of it");
            self.findings.push(Finding::new(name, 0, what, advice));
        }
        self.findings
    }
}

fn long(path: &str, sentence: &Sentence) -> Option<Finding> {
    let count = sentence.words.len();
    let start = sentence.words[..count.min(6)].join(" ");
    let what = format!("{count} words in one sentence: {start} …");
    let advice = format!("at most {WORDS_MAX}: subject first, then the verb, and one thought");
    (count > WORDS_MAX).then(|| Finding::new(path, sentence.line, what, advice))
}

fn dialect(path: &str, sentence: &Sentence) -> Vec<Finding> {
    let words: Vec<String> = sentence.words.iter().map(|word| bare(word)).collect();
    let text = format!(" {} ", words.join(" "));
    let mut found = Vec::new();
    for Phrase { is, but, better } in PHRASES {
        let count = |phrase: &str| text.matches(&format!(" {phrase} ")).count();
        let (uses, fine) = (count(is), but.iter().map(|fine| count(fine)).sum());
        if uses > fine {
            let (what, advice) = (format!("\"{is}\""), format!("say: {better}"));
            found.push(Finding::new(path, sentence.line, what, advice));
        }
    }
    if words.first().is_some_and(|first| first == "who") && !sentence.asks {
        let advice = "name the subject: the client, the reader, the caller";
        found.push(Finding::new(path, sentence.line, "\"Who\" begins a statement", advice));
    }
    found
}

/// A word in small letters without the marks around it. No phrase reaches over code or over a mark
/// at the end of a word.
fn bare(word: &str) -> String {
    if word.contains(sentences::CODE) {
        return sentences::CODE.to_owned();
    }
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    if word.ends_with(char::is_alphanumeric) { bare } else { bare + " ," }
}

fn old_names(file: &TextFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_');
        for (old, new) in OLD_NAMES {
            if words().any(|word| word == *old) {
                let (what, advice) = (format!("`{old}` is an old name"), format!("it is `{new}`"));
                found.push(Finding::new(&file.path, number, what, advice));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Vec<Finding> {
        check(&Sources::of(&[(path, text)]))
    }

    fn words(count: usize) -> String {
        format!("{}.", vec!["word"; count].join(" "))
    }

    #[test]
    fn a_sentence_has_at_most_thirty_words() {
        let fits = format!("{} A b. A b. A b.", words(30));
        assert_eq!(of("docs/a.md", &fits), []);
        let long = format!("A b. A b. A b.\n{}", words(31));
        let found = of("docs/a.md", &long);
        assert_eq!((found.len(), found[0].line), (1, 2));
    }

    #[test]
    fn a_page_has_at_most_fifteen_words_a_sentence() {
        assert_eq!(of("docs/a.md", &format!("{} {}", words(14), words(16))), []);
        let found = of("docs/a.md", &format!("{} {}", words(15), words(16)));
        assert!(found[0].what.starts_with("15.5 words"), "{}", found[0]);
    }

    #[test]
    fn the_comments_of_a_crate_are_one_page() {
        let long = format!("// {}", words(20));
        let files = [("crates/log/src/a.rs", long.as_str()), ("crates/log/src/b.rs", "// Short.")];
        assert_eq!(check(&Sources::of(&files)), []);
        let apart = [("crates/log/src/a.rs", long.as_str()), ("crates/env/b.rs", "// Short.")];
        assert_eq!(check(&Sources::of(&apart))[0].path, "crates/log");
    }

    #[test]
    fn phrases_of_the_dialect_are_refused() {
        for Phrase { is, .. } in PHRASES {
            assert!(!of("docs/a.md", &format!("First. The server, {is}.")).is_empty(), "{is}");
            assert_eq!(of("docs/a.md", &format!("The `{is}` and x{is}x.")), [], "{is}");
        }
    }

    #[test]
    fn the_same_words_are_fine_where_they_are_english() {
        assert_eq!(of("docs/a.md", "It was told to stop. Zero stands for all."), []);
        assert_eq!(of("docs/a.md", "The two can be told apart, and told to stop.").len(), 0);
        assert_eq!(of("docs/a.md", "Told to stop, it is told why.").len(), 1);
        assert_eq!(of("docs/a.md", "It encodes all in one go, on the loop."), []);
    }

    #[test]
    fn a_question_may_begin_with_who() {
        assert_eq!(of("docs/a.md", "Who waits here?").len(), 1, "but not with every verb");
        assert_eq!(of("docs/a.md", "Who is it?"), []);
        assert_eq!(of("docs/a.md", "Who reads this is right.").len(), 1);
    }

    #[test]
    fn old_names_are_refused_in_code_too() {
        for (old, _) in OLD_NAMES {
            assert_eq!(of("docs/a.md", &format!("The `{old}` does it.")).len(), 1, "{old}");
            assert_eq!(of("crates/a/src/b.rs", &format!("fn {old}() {{}}")).len(), 1, "{old}");
        }
        assert_eq!(of("docs/a.md", "`CommitJobs` is another name."), []);
    }
}
