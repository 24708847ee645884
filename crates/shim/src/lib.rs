//! The library that `tidewater run` preloads into a program (ADR 19): calls on files of the log set become records on a
//! log, ring first and then the file, and syncs of these files become waits for it.
//!
//! - `calls`: the functions of the C library that stand here in its place, and only pass on what is not of the set;
//! - `real`: how they are passed on;
//! - `process`, `descriptors`, `memory`, `paths`, `text`: what a process knows of the run, without memory of the heap
//!   once it has begun.
//!
//! The records and their order are [`tidewater_files`]'s.

mod calls;
mod descriptors;
mod memory;
mod paths;
mod process;
mod real;
mod text;
