//! NBD: a drive's namespaces as network block devices, for kernels, QEMU and programs that know no NVMe.
//!
//! All connections are queues of one NVMe controller, which is the last of the device: what a client asks for becomes
//! commands of that controller, which are logged, counted and fail like those of other hosts. The server has no thread
//! of its own: the engine's thread polls it, and it never blocks. [`Border`] is what it wants of the engine.
//!
//! Each namespace is an export, named by its identifier; without a name a client gets the first. Requests are whole
//! blocks: smaller ones would have to be read, changed and written by the server, and be torn by a power cut where the
//! drive tears nothing. Requests beyond what a command moves become several.
//!
//! | what a client does | answer |
//! |---|---|
//! | flags that were not offered, a wrong magic, an option of more than 8 KiB | the connection is closed |
//! | an option that is not known; malformed; an export that is not there | ERR_UNSUP; ERR_INVALID; ERR_UNKNOWN |
//! | a request that is not known, empty, no whole blocks, with more than 32 MiB of data | EINVAL |
//! | a read or a trim beyond the end | EINVAL |
//! | a write beyond the end | ENOSPC |
//! | a write to what is write-protected | EPERM |
//! | whatever else the drive refuses or fails | EINVAL for an invalid command, else EIO |
//! | no export chosen in 10 s; half a message, or replies that are not taken, for 30 s | the connection is closed |
//! | a namespace that is formatted or deleted; a controller that fails; a power cut | the connection is closed |
//!
//! Nothing is encrypted and no client is authenticated: it listens on loopback, or on a socket for its own user.

mod connection;
#[cfg(test)]
mod connection_tests;
mod server;

pub use connection::Connection;
pub use server::{Address, BindError, Border, Server};
