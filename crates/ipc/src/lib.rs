//! What both ends of a vfio-user socket use: [messages](Message) with their descriptors on a UNIX socket, and [memory](
//! SharedMemory) that two processes share.

mod guard;
mod memory;
mod message;

pub use memory::{Mapping, PAGE, SharedMemory};
pub use message::{
    DESCRIPTORS_MAX, DESCRIPTORS_OFFERED, MESSAGE_MAX, Message, Received, Receiver, SEND_TIME, TRANSFER_MAX, readable,
    send,
};
