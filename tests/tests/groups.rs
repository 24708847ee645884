//! Groups of devices: replication, promotion, machines that fail.

mod keeper;
mod nets;
mod replication;
