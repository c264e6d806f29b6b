//! The access file.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::access::rules(data));
