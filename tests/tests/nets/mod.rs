//! Logs on machines of their own (network namespaces), joined by a relay that loses, delays, repeats and cuts packets
//! by seed: what replicas acknowledged is there after whatever happens, and a deposed primary acknowledges nothing.

mod campaign;
mod cases;
mod follow;
mod history;
mod judges;
mod links;
mod porcupine;
mod roles;
mod stops;
mod storage;
mod table;
mod tally;
mod workload;
