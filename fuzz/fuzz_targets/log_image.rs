//! A chunk in memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::log_files::image(data));
