//! Checkpoints of a group.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::stream_model::checkpoint(data));
