//! Programs whose files are kept by a log: `tidewater run`, the C library, the layers. Programs whose power is cut.

mod calls;
mod capi;
mod crash_languages;
mod crash_proof;
mod crash_test;
mod deferred;
mod layers;
mod markers;
mod run;
mod window_log;
