//! The Durable Streams Protocol 1.0.

pub mod client;
pub mod cursor;
pub mod etag;
pub mod events;
pub mod log_line;
pub mod offset;
pub mod problem;
pub mod request;
pub mod response;
