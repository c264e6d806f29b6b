//! Commands as bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::stream_model::command(data));
