//! Sentences of Markdown and of Rust comments.
//!
//! Left out is what nobody reads as a sentence: code blocks, tables, headings, images and URLs. A
//! code span is one word. Every list item ends the sentence before it. Comments are read as
//! Markdown too, one run of lines with the same marker at a time.

/// One sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tidy) struct Sentence {
    /// The line of its first word, counted from 1.
    pub(in crate::tidy) line: usize,
    /// Its words, without markup. A code span is [`CODE`].
    pub(in crate::tidy) words: Vec<String>,
    /// Whether it ends with a question mark.
    pub(in crate::tidy) asks: bool,
}

/// Takes the place of a code span.
pub(in crate::tidy) const CODE: &str = "CODE";

/// Words that end with a full stop in the middle of a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "cf.", "vs.", "approx.", "…", "..."];

/// The sentences of a Markdown page.
pub(super) fn of_markdown(text: &str) -> Vec<Sentence> {
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        reader.line(at + 1, line);
    }
    reader.finish()
}

/// The sentences of the comments of a Rust file that have lines of their own.
pub(super) fn of_comments(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut run: Option<(&str, Reader)> = None;
    for (at, line) in text.lines().enumerate() {
        let comment = comment(line);
        if run.as_ref().map(|(marker, _)| *marker) != comment.map(|(marker, _)| marker) {
            sentences.extend(run.take().map(|(_, reader)| reader.finish()).unwrap_or_default());
        }
        if let Some((marker, line)) = comment {
            let (_, reader) = run.get_or_insert_with(|| (marker, Reader::default()));
            reader.line(at + 1, line);
        }
    }
    sentences.extend(run.map(|(_, reader)| reader.finish()).unwrap_or_default());
    sentences
}

/// Marker and text of a line that is a comment.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let marker = ["//!", "///", "//"].into_iter().find(|marker| line.starts_with(marker))?;
    let text = &line[marker.len()..];
    Some((marker, text.strip_prefix(' ').unwrap_or(text)))
}

/// Collects the lines of one block and splits it when it ends.
#[derive(Default)]
struct Reader {
    sentences: Vec<Sentence>,
    /// Lines of the block under way, without list markers.
    block: Vec<(usize, String)>,
    /// Inside a fenced code block.
    fenced: bool,
    /// Inside a list, where an indented line is no code.
    in_list: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) {
        let text = line.trim();
        if text.starts_with("```") {
            self.fenced = !self.fenced;
            self.end_block();
        } else if self.fenced || is_no_prose(text) {
            self.end_block();
        } else if let Some(item) = list_item(text) {
            self.end_block();
            self.in_list = true;
            self.block.push((number, item.to_owned()));
        } else {
            let indented = line.starts_with("    ");
            self.in_list &= !self.block.is_empty() || line.starts_with(' ');
            if self.in_list || !indented || !self.block.is_empty() {
                self.block.push((number, text.trim_start_matches(['>', ' ']).to_owned()));
            }
        }
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        let Some((first, _)) = block.first() else { return };
        let lines: Vec<&str> = block.iter().map(|(_, line)| line.as_str()).collect();
        split(*first, &plain(&lines.join("\n")), &mut self.sentences);
    }

    fn finish(mut self) -> Vec<Sentence> {
        self.end_block();
        self.sentences
    }
}

/// An empty line, a heading, a row of a table, an image, markup, or the target of a link.
fn is_no_prose(text: &str) -> bool {
    let target = text.starts_with('[') && text.contains("]: ");
    text.is_empty() || target || ["#", "|", "![", "<"].iter().any(|mark| text.starts_with(mark))
}

/// What follows the marker of a list item.
fn list_item(text: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "].iter().find_map(|marker| text.strip_prefix(marker));
    let number = || text.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(". ");
    let numbered = || number().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    bullet.or_else(numbered)
}

/// `text` without markup; line breaks stay where they are.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '`' => code_span(rest, &mut out),
            ']' if rest.starts_with("](") => rest.find(')').map_or(1, |end| end + 1),
            '[' | ']' | '*' => 1,
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

/// Writes [`CODE`] for the span at the start of `text`; the span's length.
fn code_span(text: &str, out: &mut String) -> usize {
    let ticks = text.len() - text.trim_start_matches('`').len();
    let Some(inside) = text[ticks..].find(&text[..ticks]) else { return ticks };
    out.push_str(CODE);
    out.extend(text[ticks..ticks + inside].chars().filter(|c| *c == '\n'));
    inside + 2 * ticks
}

/// Splits a block that begins at line `first`.
fn split(first: usize, text: &str, sentences: &mut Vec<Sentence>) {
    let mut words = Vec::new();
    let mut start = first;
    for (at, line) in text.split('\n').enumerate() {
        for word in line.split_whitespace() {
            if words.is_empty() {
                start = first + at;
            }
            if word.contains(char::is_alphanumeric) && !word.contains("://") {
                words.push(word.to_owned());
            }
            if let Some(mark) = end_mark(word) {
                put(start, &mut words, mark == '?', sentences);
            }
        }
    }
    put(start, &mut words, false, sentences);
}

fn put(line: usize, words: &mut Vec<String>, asks: bool, sentences: &mut Vec<Sentence>) {
    if !words.is_empty() {
        sentences.push(Sentence { line, words: std::mem::take(words), asks });
    }
}

/// The mark with which `word` ends a sentence.
fn end_mark(word: &str) -> Option<char> {
    let bare = word.trim_start_matches(['(', '"', '“']).trim_end_matches([')', '"', '”', '\'']);
    let last = bare.chars().last()?;
    let ends = matches!(last, '.' | '!' | '?') && !ABBREVIATIONS.contains(&bare);
    ends.then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sentences: &[Sentence]) -> Vec<(usize, String)> {
        sentences.iter().map(|one| (one.line, one.words.join(" "))).collect()
    }

    fn markdown(text: &str) -> Vec<(usize, String)> {
        shown(&of_markdown(text))
    }

    #[test]
    fn sentences_end_at_marks_and_at_the_ends_of_blocks() {
        let text = "# A heading. Not prose\n\nOne. Is this\ntwo? (Three.) And e.g. four\n\nfive";
        let expected = [(3, "One."), (3, "Is this two?"), (4, "(Three.)"), (4, "And e.g. four")];
        let found = markdown(text);
        assert_eq!(found[..4], expected.map(|(line, text)| (line, text.to_owned())));
        assert_eq!(found[4], (6, "five".to_owned()));
        assert!(of_markdown(text)[1].asks);
    }

    #[test]
    fn code_tables_images_and_urls_do_not_count() {
        let text = "```sh\nrun it\n```\n| a | b |\n![alt text](a.svg)\n\n    indented code\n\n\
                    See [the page](b.md) at https://example.com/x or `a b\nc` *here*.";
        assert_eq!(markdown(text), [(9, "See the page at or CODE here.".to_owned())]);
    }

    #[test]
    fn every_list_item_is_a_sentence_of_its_own() {
        let found = markdown("Before:\n- one\n  goes over lines\n\n  and paragraphs\n2. two\nlazy");
        let expected =
            [(1, "Before:"), (2, "one goes over lines"), (5, "and paragraphs"), (6, "two lazy")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn a_number_with_a_point_ends_nothing() {
        assert_eq!(markdown("It takes 1.5 ms. Or 2.").len(), 2);
    }

    #[test]
    fn comments_are_read_by_runs_and_code_is_not() {
        let text = "//! The module\n//! it is.\n\n/// A `fn`.\n//\nfn a() {\n    // Why so\n    b();\n    // and so.\n}\nlet url = \"a // b\";";
        let found = shown(&of_comments(text));
        let expected = [(1, "The module it is."), (4, "A CODE."), (7, "Why so"), (9, "and so.")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn examples_in_comments_are_code() {
        let text = "/// Use it:\n///\n/// ```\n/// let long = 1;\n/// ```\nfn a() {}";
        assert_eq!(shown(&of_comments(text)), [(1, "Use it:".to_owned())]);
    }
}
