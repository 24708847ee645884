//! Where a program begins to have the shim.
#![allow(unsafe_code)]

extern "C" fn begin() {
    crate::process::begin();
}

// SAFETY: the loader calls what this section holds, once, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
