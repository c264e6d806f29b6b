//! The files of a snapshot, as a receiver writes them: one after the other, from a row of bytes.
//!
//! # Invariants
//! - A file is durable before the next one is begun.

use log::{Install, InstallFile};
use std::collections::VecDeque;
use std::io;

/// See the module.
#[derive(Debug)]
pub(crate) struct Writing {
    install: Install,
    is_prepared: bool,
    /// The file that is being written.
    file: Option<InstallFile>,
    number: usize,
    /// Lengths of this file and of those that follow.
    lengths: VecDeque<u64>,
}

impl Writing {
    pub(crate) fn new(install: Install) -> Self {
        let head = &install.head;
        let lengths =
            std::iter::once(head.checkpoint_bytes).chain(head.chunk_bytes.iter().copied());
        let lengths = lengths.collect();
        Self { install, is_prepared: false, file: None, number: 0, lengths }
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// `InvalidData` if there are more than the head has said, or any error of the underlying disk.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.is_prepared {
            self.install.prepare()?;
            self.is_prepared = true;
        }
        while !bytes.is_empty() {
            let Some(&length) = self.lengths.front() else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(self.install.create(self.number)?),
            };
            let left = usize::try_from(length - file.written()).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(left));
            file.write(now)?;
            bytes = later;
            if file.written() == length {
                self.file.take().expect("it was just written").finish()?;
                self.lengths.pop_front();
                self.number += 1;
            }
        }
        Ok(())
    }

    /// Whether all files are durable.
    pub(super) fn is_whole(&self) -> bool {
        self.lengths.is_empty()
    }

    pub(super) fn into_install(self) -> Install {
        self.install
    }
}
