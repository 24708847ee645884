//! `mount_images` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidewater_fuzz::mount_images(data));
