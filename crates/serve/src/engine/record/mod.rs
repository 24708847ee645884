//! What is written down of a run.

pub(crate) mod commands;
