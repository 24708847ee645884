//! The block side: what each NVMe command does to logical pages, from the command pipeline to its completion.

mod command;
mod destage;
mod lookup;

pub(crate) use command::{Action, Step, Work};
