//! Bodies in chunks.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::http1::chunked(data));
