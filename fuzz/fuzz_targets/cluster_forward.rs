//! A forwarded request or its answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::forward::run(data));
