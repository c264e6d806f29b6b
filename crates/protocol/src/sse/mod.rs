//! Server-sent events as bytes. Source: WHATWG HTML §9.2.
//!
//! # Format
//! ```text
//! event: data
//! data:first line
//! data:  a line that begins with one blank
//! id:where a reader that got this event goes on
//!
//! ```
//! `data:` is followed by a blank only when the line itself begins with one, because parsers eat
//! exactly one. Which events there are, and what is in them, is decided by a [face](crate::face).
//!
//! # Invariant
//! A data line holds no CR and begins with `data:`; no byte of its text can begin another line.

mod event;
#[cfg(test)]
pub(crate) mod parser;

pub(crate) use event::{DATA, EventName, EventWriter, event_name};

/// Asks a browser to come back a second after the end of the answer. It is no event.
pub const RETRY: &[u8] = b"retry: 1000\n\n";

/// A comment that keeps a quiet connection alive and means nothing. Only between events.
pub const HEARTBEAT: &[u8] = b":\n\n";
