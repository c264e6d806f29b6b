//! HTTP/2 from a client's bytes to the node.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::http2::run(data));
