//! Records, and the pages made of them: one module for each subject.

mod experiments;
mod logs;
mod pages;
mod probes;
mod schema;
mod support;

#[path = "../examples/sample/record.rs"]
mod sample;
