//! Messages of peers, right and wrong, to one replica.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::cluster::step(data));
