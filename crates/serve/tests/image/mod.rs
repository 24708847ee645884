//! The backing store under a running drive: every byte that comes back is checked, and every way of losing the process
//! or the machine is tried.
mod crash;
mod end_to_end;
mod faults;
mod hostile;
mod kill;
mod log;
mod model;
mod purge;
mod recording;
mod rig;
mod window;
