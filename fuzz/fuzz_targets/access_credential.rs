//! What clients show of themselves.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::access::credential(data));
