//! The Thalweg server: sockets, settings and the `thalweg` command.
//!
//! This crate is the only one with sockets and an async runtime. It reads the settings, starts one
//! event loop per shard and, on a thread of its own, the admin server; what a request means is
//! decided in `protocol`, `stream` and `node`.

pub mod admin;
pub mod cli;
pub mod descriptors;
pub mod logging;
pub mod metrics;
pub mod plane;
pub mod preflight;
pub mod serve;
pub mod settings;
