//! TLS: certificates from files, and connections over sockets. The only module that names rustls.
//!
//! # Code map
//! - [`config`]: what the settings and their files say, checked as a whole; [`certificates`]: one chain and its key;
//!   [`names`]: which chain a client gets; [`self_signed`]: one that the server makes for itself.
//! - [`stream`]: one connection, between its socket and its session.
//!
//! # Choices
//! - The buffered interface of rustls. The other one costs the same, takes twice the code, and changes more.
//! - The provider is aws-lc-rs. Its handshakes are quicker than ring's, with RSA by half, and it has post-quantum
//!   key exchange.
//! - Session tickets live in memory alone, with keys that change every six hours. After a restart each client pays one
//!   full handshake. That is cheaper than a secret on disk.
//! - No early data: it can be replayed.

mod certificates;
mod config;
mod names;
mod problem;
mod self_signed;
mod stream;

pub use certificates::Certificate;
pub(crate) use config::FILES_MAX;
pub use config::{Tls, load};
pub use problem::TlsProblem;
pub(crate) use stream::{Handshake, Step, TlsStream};
