//! The tidewater command.
fn main() {}
