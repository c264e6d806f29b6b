//! The Thalweg server: sockets, settings and the `thalweg` command.
//!
//! This crate is the only one with sockets and an async runtime. It reads the settings and starts one
//! event loop per shard. The admin server has a thread of its own. `session`, `protocol`, `stream` and
//! `node` decide what a request means.

pub mod access;
pub mod admin;
pub mod cli;
pub mod cluster;
pub mod descriptors;
pub mod journal;
pub mod logging;
pub mod meters;
pub mod metrics;
pub mod plane;
pub mod preflight;
pub mod reload;
pub mod repair;
pub mod serve;
pub mod settings;
pub mod tls;
pub mod token;
