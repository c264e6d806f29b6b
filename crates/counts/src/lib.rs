//! What the programs of this crate share: requests as bytes, and clients of a loop in their own thread.

pub mod loopback;
pub mod requests;
