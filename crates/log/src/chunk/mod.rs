//! Chunks: immutable files that hold one group's sealed data, sorted by stream.
//!
//! # Why
//! In the WAL the bytes of a stream lie scattered between those of all others. A chunk puts them
//! next to each other in wire format, so that a range of a long history is one `sendfile`.
//!
//! # Map
//! - `format`: headers and rows. `append_table`: where appends begin inside a run.
//! - `writer`: makes a chunk file. `file`: opens and reads one. `copy`: seals and merges into one.
//! - `set`: the chunks of a group, what is dead in them, and which to merge.
//!
//! # Invariants
//! - A chunk's name appears only after its bytes are synced; it never changes afterwards.
//! - Chunks describe themselves: there is no manifest to disagree with.
//! - A chunk replaces every chunk with a lower number whose entry range lies within its own, so a
//!   crash between writing a merged chunk and removing its sources is harmless.
//!
//! # Format
//! `docs/format/chunk.md`.

pub(crate) mod append_table;
pub(crate) mod copy;
pub(crate) mod file;
pub(crate) mod format;
pub(crate) mod served;
pub(crate) mod set;
pub(crate) mod writer;
