//! Says what the shared library is called by programs that are linked with it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtidewater.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
