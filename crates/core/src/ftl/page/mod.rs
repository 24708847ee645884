//! Page mapping: every logical page has a map entry of its own.
//!
//! Host data fills one *row* at a time (see [`Layout`](crate::layout::Layout)), row after row over the dies; every die
//! has a superblock open for host data and one for collected data. Collection works within a die, in steps of a row.

mod collect;
mod host;
mod log;
pub(super) mod map_cache;
mod past;
mod placement;
mod slc;
mod state;
mod victim;

pub(super) use placement::reserve_per_die;
pub(super) use slc::Slc;
pub use slc::{SlcFill, slc_reserve, slc_rows};
pub(super) use state::PageMapping;
