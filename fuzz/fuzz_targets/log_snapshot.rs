//! What a receiver of a snapshot has, and what an export is.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::log_snapshot::run(data));
