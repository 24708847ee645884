//! A TUN interface in the network namespace of the calling thread: packets that the kernel sends there are read from
//! its descriptor, and what is written to it the kernel receives.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::libc;

/// The name of the interface.
pub const NAME: &str = "net0";

/// `struct ifreq` of `<net/if.h>`: a name, and flags at the begin of its union.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

nix::ioctl_write_ptr_bad!(set_interface, libc::TUNSETIFF, Request);

/// Makes the interface [`NAME`], which goes with the last descriptor of it. Reads and writes do not block.
///
/// # Errors
/// There is no `/dev/net/tun`, or the caller may not make interfaces.
pub fn open() -> io::Result<File> {
    let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut name = [0; libc::IFNAMSIZ];
    name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let request = Request { name, flags, rest: [0; 22] };
    // SAFETY: the descriptor is open, and the kernel reads a whole `struct ifreq` behind the pointer.
    unsafe { set_interface(file.as_raw_fd(), &request) }?;
    Ok(file)
}
