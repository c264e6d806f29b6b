//! What a leader sends: a head and the files of an export, as one row of bytes.

use bytes::Bytes;
use log::Export;
use std::io;

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Source {
    head: Bytes,
    export: Export,
}

impl Source {
    pub(crate) fn new(head: Bytes, export: Export) -> Self {
        Self { head, export }
    }

    pub(super) fn head_bytes(&self) -> u64 {
        self.head.len() as u64
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.head_bytes() + self.export.head.file_bytes()
    }

    /// Some bytes from `position` on, of the head or of one file.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    ///
    /// # Panics
    /// If nothing is there.
    pub(crate) fn read(&self, position: u64) -> io::Result<Bytes> {
        let Some(mut at) = position.checked_sub(self.head_bytes()) else {
            let from = usize::try_from(position).expect("the head is in memory");
            return Ok(self.head.slice(from..self.head.len().min(from + READ_BYTES as usize)));
        };
        for file in self.export.files() {
            if at < file.bytes() {
                let length = (file.bytes() - at).min(READ_BYTES);
                let mut bytes = vec![0; usize::try_from(length).expect("a megabyte")];
                file.read_at(&mut bytes, at)?;
                return Ok(bytes.into());
            }
            at -= file.bytes();
        }
        panic!("nothing is at {position} of {}", self.bytes());
    }
}
