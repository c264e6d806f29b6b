//! Chunks: immutable files that hold one group's sealed data, sorted by stream.
//!
//! # Why
//! In the WAL the bytes of a stream lie scattered between those of all others. A chunk puts them
//! next to each other in wire format, so that a range of a long history is one `sendfile`.
//!
//! # Map
//! - `header`, `page`, `row`, `row_page`, `filter`, `pieces`: the parts of a file, as bytes.
//! - `builder` and `pages` make a file's bytes. `lookup` finds rows by pages, `image` checks a whole chunk.
//!   None of these does IO.
//! - `writer` makes a chunk file, `file` reads one, `opening` finds those of a group at the start. `cache` (on `clock`) bounds open files and pages in memory.
//! - `list`: the chunks of a group, and which has a byte. `cold`: the same question on any thread. `search`: which has
//!   a record, or a time.
//! - `floors`: what is dead. `count`: how much of each chunk. `set`: which chunks to merge.
//! - `copy` (with `merge_rows` and `near_reads`): seals and merges into a chunk. `room`: how long it can be. `leftovers`: what a merge could
//!   not remove.
//!
//! # Invariants
//! - A chunk's name appears only after its bytes are synced; it never changes afterwards.
//! - Chunks describe themselves: there is no manifest to disagree with.
//! - A chunk replaces every chunk with a lower number whose entry range lies within its own, so a
//!   crash between writing a merged chunk and removing its sources is harmless.
//!
//! # Format
//! `docs/format/chunk.md`.

mod behind;
pub(crate) mod builder;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod cold;
pub(crate) mod copy;
pub(crate) mod count;
pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod floors;
pub(crate) mod header;
pub(crate) mod held;
pub(crate) mod image;
pub(crate) mod leftovers;
pub(crate) mod list;
pub(crate) mod lookup;
pub(crate) mod loss;
pub(crate) mod merge_plan;
pub(crate) mod merge_rows;
pub(crate) mod near_reads;
pub(crate) mod opening;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod pieces;
pub(crate) mod room;
pub(crate) mod row;
pub(crate) mod row_page;
pub(crate) mod run_pieces;
pub(crate) mod search;
pub(crate) mod served;
pub(crate) mod set;
pub(crate) mod writer;
