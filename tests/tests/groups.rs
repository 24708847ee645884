//! Groups of devices: replication, promotion, machines that fail.

mod cluster;
mod keeper;
mod nets;
mod replication;
