//! vfio-user: a PCI function for virtual machines and local processes.
//!
//! A [`Server`] serves one function on a UNIX socket, on a thread of its own. What the client sees is a [`Device`]:
//! regions, of which parts may be shared memory that it maps; everything else goes to a [`Function`]. The engine is a
//! [`Mailbox`]'s reader, and a [`Slot`] is the function that fills it. The client's memory is a [`GuestMemory`], which
//! the engine copies from and to on its own thread; [`Interrupts`] are raised from there too.
//!
//! Why this is not the `vfio_user` crate: `docs/adr/0008-own-vfio-user.md`.

mod connection;
mod device;
mod doorbell;
mod guest;
mod interrupts;
mod mailbox;
mod pci;
mod server;
mod session;

pub use connection::Connection;
pub use device::{Device, Function, Region};
pub use doorbell::Doorbell;
pub use guest::{DmaError, GuestMemory, Lent, RANGES_MAX, Reached, Transfers};
pub use interrupts::{Interrupts, VECTORS_MAX};
pub use mailbox::{Bytes, DEPTH, Mailbox, PATIENCE, PciMessage, Registers, Reply, Slot, Waker, mailbox};
pub use pci::{Pci, PciState};
pub use server::{Server, ServerError};
pub use session::DOORBELL_PAGE;
