//! Tables of the access file, read key by key: what is not read is not known.

use super::{Problem, nearest};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is found wrong, by its place in the text.
pub(super) struct Problems<'t> {
    text: &'t str,
    /// Each with its place, so that they can be shown in order.
    found: Vec<(usize, Problem)>,
}

/// One table, with the keys that were read.
pub(super) struct Table<'t> {
    /// As the file writes it, such as `[[token]]`.
    name: &'static str,
    table: &'t DeTable<'t>,
    span: Range<usize>,
    known: Vec<&'static str>,
}

/// A value and its place.
#[derive(Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

impl<'t> Problems<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    pub(super) fn add(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let start = span.start.min(self.text.len());
        let line = self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
        self.found.push((start, Problem { line, message: message.into() }));
    }

    pub(super) fn into_found(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|(start, _)| *start);
        self.found.into_iter().map(|(_, problem)| problem).collect()
    }
}

impl<'t> Table<'t> {
    pub(super) fn new(name: &'static str, table: &'t DeTable<'t>, span: Range<usize>) -> Self {
        Self { name, table, span, known: Vec::new() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// The value of a key, if it is there.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.table.get(key)
    }

    /// The text of a key, if it is there.
    pub(super) fn text(
        &mut self,
        key: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<At<&'t str>> {
        let value = self.get(key)?;
        let span = value.span();
        match value.get_ref().as_str() {
            Some(text) => Some(At { value: text, span }),
            None => {
                problems.add(&span, format!("`{key}` is a text in quotation marks"));
                None
            }
        }
    }

    /// The text of a key that must be there.
    pub(super) fn needed_text(
        &mut self,
        key: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<At<&'t str>> {
        let is_there = self.table.contains_key(key);
        let text = self.text(key, problems);
        if !is_there {
            problems.add(&self.span.clone(), format!("{} needs `{key}`", self.name));
        }
        text
    }

    /// The texts of a list, or nothing if it is not there.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<Vec<At<&'t str>>> {
        let value = self.get(key)?;
        let Some(list) = value.get_ref().as_array() else {
            problems.add(&value.span(), format!("`{key}` is a list of texts, as in [\"…\"]"));
            return None;
        };
        let mut texts = Vec::new();
        for item in list {
            match item.get_ref().as_str() {
                Some(value) => texts.push(At { value, span: item.span() }),
                None => {
                    problems.add(&item.span(), format!("`{key}` is a list of texts, as in [\"…\"]"))
                }
            }
        }
        Some(texts)
    }

    /// A table inside of this one, or nothing if it is not there.
    pub(super) fn table(
        &mut self,
        (key, name): (&'static str, &'static str),
        problems: &mut Problems<'_>,
    ) -> Option<Table<'t>> {
        let value = self.get(key)?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            problems.add(&value.span(), format!("`{key}` is a table"));
        }
        Some(Table::new(name, table?, value.span()))
    }

    /// All tables of a list, or nothing if it is not there.
    pub(super) fn tables(
        &mut self,
        (key, name): (&'static str, &'static str),
        problems: &mut Problems<'_>,
    ) -> Vec<Table<'t>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let of = |item: &'t Spanned<DeValue<'t>>| {
            let table = item.get_ref().as_table()?;
            Some(Table::new(name, table, item.span()))
        };
        let tables: Option<Vec<_>> =
            value.get_ref().as_array().and_then(|list| list.iter().map(of).collect());
        tables.unwrap_or_else(|| {
            problems.add(&value.span(), format!("`{key}` is written as {name}"));
            Vec::new()
        })
    }

    /// Reports the keys that nobody has read.
    pub(super) fn end(self, problems: &mut Problems<'_>) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            let mut message = format!("{} has no `{name}`", self.name);
            match nearest(name, self.known.iter().copied()) {
                Some(meant) => message += &format!("; did you mean `{meant}`?"),
                None => message += &format!("; it has {}", self.known.join(", ")),
            }
            problems.add(&key.span(), message);
        }
    }
}
