//! Devices that are promoted by themselves: leader deadlines, and keepers on a real etcd.

mod campaign;
mod clients;
mod deadline;
mod demo;
mod disks;
mod failures;
mod functions;
mod hostile;
mod members;
mod page;
mod program;
mod verbs;
