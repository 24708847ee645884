//! `vfio_user` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewater_fuzz::vfio_user(data));
