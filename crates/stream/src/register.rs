//! The numbers of tags and of parts of a checkpoint's header, which never change. Those of commands are in
//! [`crate::CommandKind`].
//!
//! `docs/format/commands.md` has the register, with the numbers that are taken for what comes later. A test
//! holds both together.

/// Tags of a stream's row, and of the same fields in a creation.
pub(crate) mod row_tag {
    pub(crate) const STREAM_SEQ: u64 = 1;
    pub(crate) const PRODUCERS: u64 = 2;
    pub(crate) const FORK: u64 = 3;
    pub(crate) const PINS: u64 = 4;
    pub(crate) const LOGGED_USE: u64 = 5;
    pub(crate) const RETENTION: u64 = 6;
    pub(crate) const RECORD_TIMES: u64 = 7;
    pub(crate) const HEAD_RECORD: u64 = 8;
}

/// Tags of an append.
pub(crate) mod append_tag {
    pub(crate) const MATCH_RECORD: u64 = 1;
    pub(crate) const RECORD_TIME: u64 = 5;
    pub(crate) const MATCH_STATES: u64 = 10;
}

/// Tags of the header of a group's state.
pub(crate) mod group_tag {
    pub(crate) const HISTORY: u64 = 1;
    pub(crate) const PRODUCERS_MAX: u64 = 2;
    pub(crate) const PENDING_UNPINS: u64 = 3;
    pub(crate) const LOSSES: u64 = 4;
}

#[cfg(test)]
mod tests {
    use super::{append_tag, group_tag, row_tag};
    use crate::CommandKind;
    use std::collections::BTreeMap;

    const PAGE: &str = include_str!("../../../docs/format/commands.md");

    /// The rows of the register under a heading: numbers and what they are for. A range stands for all in it.
    fn register(heading: &str) -> BTreeMap<u64, String> {
        let section = PAGE.split("\n### ").find(|section| section.starts_with(heading));
        let rows = section.expect(heading).lines().filter_map(|line| line.strip_prefix("| "));
        let mut numbers = BTreeMap::new();
        for row in rows {
            let mut cells = row.split(" | ");
            let (range, what) = (cells.next().unwrap(), cells.next().unwrap_or_default());
            let (first, last) = range.split_once('–').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
                continue;
            };
            for number in first..=last {
                let before = numbers.insert(number, what.trim_end_matches(" |").to_owned());
                assert_eq!(before, None, "{heading}: {number} is given twice");
            }
        }
        numbers
    }

    fn is_registered(heading: &str, used: &[(u64, &str)]) {
        let register = register(heading);
        for (number, what) in used {
            assert_eq!(
                register.get(number).map(String::as_str),
                Some(*what),
                "{heading}: {number}"
            );
        }
    }

    #[test]
    fn the_register_has_every_number_once_and_for_what_it_is_used() {
        use CommandKind as K;
        let kinds = [
            (K::Create, "create"),
            (K::Append, "append"),
            (K::Delete, "delete"),
            (K::Expire, "expire"),
            (K::Touch, "touch"),
            (K::Trim, "trim"),
            (K::Change, "change"),
            (K::Pin, "pin"),
            (K::Unpin, "unpin"),
            (K::UnpinDone, "unpin done"),
            (K::KeepProducers, "keep producers"),
        ];
        is_registered("Kinds of commands", &kinds.map(|(kind, what)| (kind as u64, what)));
        let rows = [
            (row_tag::STREAM_SEQ, "`Stream-Seq`"),
            (row_tag::PRODUCERS, "producers"),
            (row_tag::FORK, "fork"),
            (row_tag::PINS, "pins"),
            (row_tag::LOGGED_USE, "logged use"),
            (row_tag::RETENTION, "retention"),
            (row_tag::RECORD_TIMES, "record times"),
            (row_tag::HEAD_RECORD, "record at the head"),
        ];
        is_registered("Tags of stream rows", &rows);
        let groups = [
            (group_tag::HISTORY, "history"),
            (group_tag::PRODUCERS_MAX, "producers remembered"),
            (group_tag::PENDING_UNPINS, "pending unpins"),
            (group_tag::LOSSES, "losses"),
        ];
        is_registered("Tags of a group's state", &groups);
        let appends = [
            (append_tag::MATCH_RECORD, "match record"),
            (append_tag::RECORD_TIME, "record time"),
            (append_tag::MATCH_STATES, "match states"),
        ];
        is_registered("Tags of appends", &appends);
        register("Parts of a checkpoint's header");
        register("Layouts of streams");
    }
}
