//! The firmware through its front doors.

mod fast_side;
mod window;
