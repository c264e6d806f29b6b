//! What two nodes say before they know each other.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::cluster::link(data));
