//! `nvme_tcp` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewater_fuzz::nvme_tcp(data));
