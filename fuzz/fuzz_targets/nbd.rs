//! `nbd` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewater_fuzz::nbd(data));
