//! What each fuzz target checks.
//!
//! # What
//! One function per decoder or parser. It takes any bytes, and panics if a promise is broken. Most
//! compare two ways to the same answer: whole input with input in pieces, our parser with another
//! one, a value with what comes back of its encoding.
//!
//! # Driving it
//! `cargo xtask fuzz`. A file in `fuzz_targets` joins each function to libFuzzer and does nothing
//! else, so every function also runs in an ordinary test, see `tests/corpus.rs`.
//!
//! # Inputs
//! Where a target needs choices beside the bytes under test (where to cut, which file to damage)
//! they come first, one byte each, see [`input::Input`]. [`TARGETS`] has the first inputs of
//! each, made from real encodings; `cargo xtask fuzz --write-corpus` writes them to `corpus`.

pub mod access;
pub mod client;
pub mod cluster;
pub mod fields;
pub mod forward;
pub mod forwarded;
pub mod http1;
pub mod http2;
pub mod input;
pub mod json;
pub mod log_files;
pub mod log_snapshot;
pub mod settings;
pub mod sse;
pub mod stream_model;

use std::path::{Path, PathBuf};

/// The directory of the fuzzer's programs and of its committed inputs.
#[must_use]
pub fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// One fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its file in `fuzz_targets` and of its directory in `corpus`.
    pub name: &'static str,
    /// Checks one input.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "access_credential", run: access::credential, seeds: access::credential_seeds },
    Target { name: "access_rules", run: access::rules, seeds: access::rules_seeds },
    Target { name: "client", run: client::run, seeds: client::seeds },
    Target { name: "cluster_forward", run: forward::run, seeds: forward::seeds },
    Target { name: "cluster_link", run: cluster::link, seeds: cluster::link_seeds },
    Target { name: "cluster_section", run: cluster::section, seeds: cluster::section_seeds },
    Target { name: "cluster_state", run: cluster::state, seeds: cluster::state_seeds },
    Target { name: "cluster_step", run: cluster::step, seeds: cluster::step_seeds },
    Target { name: "fields", run: fields::run, seeds: fields::seeds },
    Target { name: "forwarded", run: forwarded::run, seeds: forwarded::seeds },
    Target { name: "http1_chunked", run: http1::chunked, seeds: http1::chunked_seeds },
    Target { name: "http1_head", run: http1::head, seeds: http1::head_seeds },
    Target { name: "http1_request", run: http1::request, seeds: http1::request_seeds },
    Target { name: "http2_session", run: http2::run, seeds: http2::seeds },
    Target { name: "json", run: json::run, seeds: json::seeds },
    Target { name: "log_checkpoint", run: log_files::checkpoint, seeds: log_files::edit_seeds },
    Target { name: "log_chunk", run: log_files::chunk, seeds: log_files::edit_seeds },
    Target { name: "log_flip", run: log_files::flip, seeds: log_files::flip_seeds },
    Target { name: "log_format", run: log_files::format, seeds: log_files::format_seeds },
    Target { name: "log_image", run: log_files::image, seeds: log_files::image_seeds },
    Target { name: "log_snapshot", run: log_snapshot::run, seeds: log_snapshot::seeds },
    Target { name: "log_wal", run: log_files::wal, seeds: log_files::edit_seeds },
    Target { name: "settings", run: settings::run, seeds: settings::seeds },
    Target { name: "sse", run: sse::run, seeds: sse::seeds },
    Target {
        name: "stream_checkpoint",
        run: stream_model::checkpoint,
        seeds: stream_model::checkpoint_seeds,
    },
    Target {
        name: "stream_command",
        run: stream_model::command,
        seeds: stream_model::command_seeds,
    },
    Target { name: "stream_state", run: stream_model::state, seeds: stream_model::state_seeds },
];
