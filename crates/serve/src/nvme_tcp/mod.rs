//! NVMe/TCP: a target for remote hosts.
