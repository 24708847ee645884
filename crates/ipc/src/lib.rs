//! Common part of both ends of a vfio-user socket: each [`Message`] on a UNIX socket with its descriptors, and
//! [`SharedMemory`] of two processes; and files that other users may have touched ([`open_trusted`]).

mod guard;
mod memory;
mod message;
mod path;
mod trusted;

pub use memory::{Mapping, PAGE, SharedMemory};
pub use message::{
    DESCRIPTORS_MAX, DESCRIPTORS_OFFERED, MESSAGE_MAX, Message, Received, Receiver, SEND_TIME, TRANSFER_MAX, readable,
    send,
};
pub use path::{SOCKET_PATH_MAX, socket_error};
pub use trusted::{open_trusted, open_unfollowed, trusted_folder, trusted_owner};
