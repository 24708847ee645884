//! Programs whose files are kept by a log: `tidewater run`, the C library, the layers.

mod calls;
mod capi;
mod deferred;
mod layers;
mod markers;
mod run;
mod window_log;
