//! One flipped bit of a data directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::log_files::flip(data));
