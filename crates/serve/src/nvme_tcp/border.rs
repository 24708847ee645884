//! What a target and the one that runs the subsystem have to say to each other.
//!
//! The target calls a [`Border`] from within [`super::Target::poll`]. The other way round, the engine carries out the
//! outputs of a fabrics controller with [`super::Target::fetch`], [`super::Target::data`], [`super::Target::complete`],
//! [`super::Target::queue_gone`] and [`super::Target::gone`], and then lets the bytes go with [`super::Target::flush`].

use tidewater_core::subsystem::{Input, Slot};

/// A command, as its host named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId {
    /// The controller.
    pub function: u8,
    /// The queue; 0 is the admin queue.
    pub queue: u16,
    /// Command identifier.
    pub cid: u16,
}

/// The engine, as a target sees it.
pub trait Border {
    /// Something has happened: [`Input::Connect`], [`Input::ConnectQueue`], [`Input::DisconnectQueue`],
    /// [`Input::Disconnect`], [`Input::Register`] (Property Set), [`Input::Capsule`], or [`Input::Moved`] for a
    /// [`super::Target::fetch`] that was not answered at once.
    ///
    /// What the subsystem says to it is carried out later, not from within this call.
    fn input(&mut self, input: Input<'_>);

    /// A register of a controller (Property Get): `len` bytes, 4 or 8, at `offset` of BAR0.
    fn register(&mut self, function: u8, offset: u32, len: u8) -> u64;

    /// The controller identifier (CNTLID) that Identify Controller of this function tells: a host compares it with the
    /// response to Connect.
    fn controller_id(&self, function: u8) -> u16;

    /// Bytes of a command's data, for the staging area of its slot: `at` bytes behind its start. In order and without
    /// gaps.
    fn stage(&mut self, slot: Slot, at: u32, bytes: &[u8]);
}
