//! What the engine writes into the log: commands and frames.
//!
//! # Format
//! All numbers little-endian. Kind 1, create: the name; the entry's index is the stream's id. Kind 2,
//! append: first id (8), offset of the frame (8), number of entries (4), CRC-32C of the frame (4);
//! the data is the frame. Kind 3, trim: first id that is kept (8), offset of its frame (8). Kind 4,
//! cursor: next id (8), name. Kind 5, begin: nothing; a life without a sync per append begins with it.
//!
//! A frame is one atomic append: first id (8), number of entries (4), then for each entry its length
//! (4) and its bytes. It repeats what the command says so that a read needs nothing but the stream.
//!
//! # Invariants
//! - An append contains its own position: a lost one moves no other.

pub(crate) const FRAME_HEADER_BYTES: usize = 12;
pub(crate) const LENGTH_BYTES: usize = 4;

const CREATE: u8 = 1;
const APPEND: u8 = 2;
const TRIM: u8 = 3;
const CURSOR: u8 = 4;
pub(crate) const BEGIN: u8 = 5;

/// An entry's id with the byte of its stream at which its frame starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) id: u64,
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    Create { name: &'a str },
    Append { first: Position, count: u32, crc: u32 },
    Trim { head: Position },
    Cursor { name: &'a str, next: u64 },
}

impl<'a> Command<'a> {
    /// Writes the command behind what `out` holds; its kind.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Create { name } => {
                out.extend_from_slice(name.as_bytes());
                CREATE
            }
            Self::Append { first, count, crc } => {
                put_position(out, *first);
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(&crc.to_le_bytes());
                APPEND
            }
            Self::Trim { head } => {
                put_position(out, *head);
                TRIM
            }
            Self::Cursor { name, next } => {
                out.extend_from_slice(&next.to_le_bytes());
                out.extend_from_slice(name.as_bytes());
                CURSOR
            }
        }
    }

    /// The command, `None` if it is none of ours.
    pub(crate) fn decode(kind: u8, bytes: &'a [u8]) -> Option<Self> {
        match kind {
            CREATE => Some(Self::Create { name: str::from_utf8(bytes).ok()? }),
            APPEND => Some(Self::Append {
                first: position_at(bytes)?,
                count: u32_at(bytes, 16)?,
                crc: u32_at(bytes, 20)?,
            }),
            TRIM => Some(Self::Trim { head: position_at(bytes)? }),
            CURSOR => {
                let name = str::from_utf8(bytes.get(8..)?).ok()?;
                Some(Self::Cursor { name, next: u64_at(bytes, 0)? })
            }
            _ => None,
        }
    }
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    out.extend_from_slice(&position.id.to_le_bytes());
    out.extend_from_slice(&position.offset.to_le_bytes());
}

fn position_at(bytes: &[u8]) -> Option<Position> {
    Some(Position { id: u64_at(bytes, 0)?, offset: u64_at(bytes, 8)? })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// Bytes of the frame of `entries`.
pub(crate) fn frame_bytes(entries: &[&[u8]]) -> u64 {
    let body: u64 = entries.iter().map(|entry| (entry.len() + LENGTH_BYTES) as u64).sum();
    FRAME_HEADER_BYTES as u64 + body
}

/// Writes the frame of `entries`, each at most `BATCH_BYTES_MAX` bytes, into the emptied `out`.
pub(crate) fn put_frame(out: &mut Vec<u8>, first: u64, entries: &[&[u8]]) {
    out.clear();
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        out.extend_from_slice(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back() {
        let first = Position { id: 5, offset: 600 };
        for command in [
            Command::Create { name: "orders" },
            Command::Append { first, count: 3, crc: 9 },
            Command::Trim { head: first },
            Command::Cursor { name: "billing", next: 7 },
        ] {
            let mut bytes = Vec::new();
            let kind = command.encode(&mut bytes);
            assert_eq!(Command::decode(kind, &bytes), Some(command));
        }
        assert_eq!(Command::decode(APPEND, &[0; 23]), None);
        assert_eq!(Command::decode(9, b"x"), None);
    }

    #[test]
    fn the_bytes_of_a_frame_never_change() {
        let mut frame = vec![9];
        put_frame(&mut frame, 258, &[b"ab", b""]);
        assert_eq!(frame, b"\x02\x01\0\0\0\0\0\0\x02\0\0\0\x02\0\0\0ab\0\0\0\0");
        assert_eq!(frame.len() as u64, frame_bytes(&[b"ab", b""]));
    }
}
