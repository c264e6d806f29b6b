//! How the bytes of a stream are made of records.

/// What a stream's records are. It is decided once, when the stream is made, and is part of the disk format.
///
/// Numbers 2 and 3 are taken: `docs/format/commands.md` has the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Layout {
    /// Bytes as they were appended; each append is one record.
    #[default]
    Bytes = 0,
    /// JSON messages, each followed by a comma; each message is one record. PROTOCOL §7.1.
    Json = 1,
}

impl Layout {
    /// Whether records are JSON messages.
    #[must_use]
    pub fn is_json(self) -> bool {
        self == Self::Json
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Bytes, Self::Json].into_iter().find(|layout| *layout as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_of_a_newer_version_is_none() {
        assert_eq!(
            [0, 1, 2, 255].map(Layout::from_number),
            [Some(Layout::Bytes), Some(Layout::Json), None, None]
        );
    }
}
