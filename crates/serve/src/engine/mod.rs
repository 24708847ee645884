//! Runs a subsystem under the wall clock: moves payload, keeps time, and lets front ends in.
