//! What proxies say of clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::forwarded::run(data));
