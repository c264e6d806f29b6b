//! Faces: what requests ask of streams and what answers say, one module per protocol.
//!
//! A face knows paths, fields, statuses and error texts. It reads a [`crate::RequestHead`] and
//! writes to a [`crate::HeadSink`]. Of the wire below it knows nothing else but its errors.

pub mod durable;
