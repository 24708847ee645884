//! What a run leaves behind, and what is made from it.
//!
//! [`record`] is the run record: one JSON document with every figure of a run and all that reproduces it. The rest
//! reads records and nothing else, so a page can be made from a record years later, on another machine.

pub mod record;

pub use record::Record;
