//! The fast side: log bytes that are persistent in memory, go to flash in order, and go to peers.
pub mod transport;
