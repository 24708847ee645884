//! The benchmarks are in `benches/`: `make bench` runs them.
