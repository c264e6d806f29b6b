//! Faces: what requests ask of streams and what answers say, one module per protocol.
//!
//! A face knows paths, fields, statuses and error texts. It reads a [`crate::RequestHead`] and
//! writes to a [`crate::HeadSink`]; of the wire below it knows nothing else.

pub mod durable;
