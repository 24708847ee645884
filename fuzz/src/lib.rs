//! What is fuzzed: one function for each target, which takes any bytes and must neither panic nor hang.
//!
//! `fuzz_targets/` hands them to libFuzzer, and `tests/tests/fuzz.rs` runs the same functions over seeds and mutations
//! of them in plain `cargo test`, which needs no other toolchain.

mod controller;
mod crash;
mod files;
mod memories;
mod nbd;
mod nvme_tcp;
mod reader;
mod vfio_user;
mod wire;

pub use controller::controller;
pub use crash::{crash_failures, mount_images};
pub use files::{images, input_logs, profiles, traces};
pub use nbd::nbd;
pub use nvme_tcp::nvme_tcp;
pub use vfio_user::vfio_user;
pub use wire::wire;

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 11] = [
    ("wire", wire),
    ("controller", controller),
    ("vfio_user", vfio_user),
    ("nvme_tcp", nvme_tcp),
    ("nbd", nbd),
    ("traces", traces),
    ("profiles", profiles),
    ("images", images),
    ("input_logs", input_logs),
    ("mount_images", mount_images),
    ("crash_failures", crash_failures),
];
