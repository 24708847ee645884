//! The host side of a two-sided drive, sans-IO: how a database writes its log to the fast side, waits for credit and reads the log back.
//! Simulation and the real client run the same algorithms.
