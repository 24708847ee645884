//! Interrupts: what kinds there are, and where they go.

use crate::layout::layout;

/// Kinds of interrupts of a PCI function (`linux/vfio.h`, VFIO_PCI_*_IRQ_INDEX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqIndex {
    /// A pin.
    IntX,
    /// Message-signalled.
    Msi,
    /// Message-signalled, with a table.
    MsiX,
    /// Of errors (AER).
    Error,
    /// The device asks to be given back.
    Request,
}

impl IrqIndex {
    /// How many kinds there are.
    pub const COUNT: u32 = 5;

    /// The kind of a number.
    pub fn from_number(number: u32) -> Option<IrqIndex> {
        match number {
            0 => Some(IrqIndex::IntX),
            1 => Some(IrqIndex::Msi),
            2 => Some(IrqIndex::MsiX),
            3 => Some(IrqIndex::Error),
            4 => Some(IrqIndex::Request),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            IrqIndex::IntX => 0,
            IrqIndex::Msi => 1,
            IrqIndex::MsiX => 2,
            IrqIndex::Error => 3,
            IrqIndex::Request => 4,
        }
    }
}

/// Flags of a kind of interrupt.
pub mod irq_info_flag {
    /// It goes to event descriptors.
    pub const EVENTFD: u32 = 1;
    /// It can be masked.
    pub const MASKABLE: u32 = 1 << 1;
    /// It masks itself when it is raised.
    pub const AUTOMASKED: u32 = 1 << 2;
    /// Vectors are enabled all at once.
    pub const NORESIZE: u32 = 1 << 3;
}

layout! {
    /// The payload of DEVICE_GET_IRQ_INFO and of its reply.
    pub struct IrqInfo [16] {
        /// Of a command: room for the reply; of a reply: room that it needs.
        0 argsz: u32,
        /// [`irq_info_flag`]s.
        4 flags: u32,
        /// The kind: [`IrqIndex::number`].
        8 index: u32,
        /// Vectors of this kind.
        12 count: u32,
    }
}

/// Data of a DEVICE_SET_IRQS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// Nothing: all vectors that are named.
    None,
    /// A byte for each vector that is named: those that are not zero.
    Bool(&'a [u8]),
    /// A descriptor for each vector that is named, or none at all to take theirs away.
    Event,
}

/// Action of a DEVICE_SET_IRQS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Masking.
    Mask,
    /// Unmasking.
    Unmask,
    /// Raising.
    Trigger,
}

/// The payload of DEVICE_SET_IRQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// The kind.
    pub index: IrqIndex,
    /// First vector.
    pub start: u32,
    /// Vectors. 0, with no data and a start of 0: all of them.
    pub count: u32,
    /// The data.
    pub data: IrqData<'a>,
    /// The action.
    pub action: IrqAction,
}

const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_MASK: u32 = 1 << 3;
const ACTION_UNMASK: u32 = 1 << 4;
const ACTION_TRIGGER: u32 = 1 << 5;
const DATA_FLAGS: u32 = DATA_NONE | DATA_BOOL | DATA_EVENTFD;

layout! {
    /// The head of DEVICE_SET_IRQS.
    pub struct SetIrqsHead [20] {
        /// Bytes of the structure, with its data.
        0 argsz: u32,
        /// The kind of data, and the action.
        4 flags: u32,
        /// The kind: [`IrqIndex::number`].
        8 index: u32,
        /// First vector.
        12 start: u32,
        /// Vectors.
        16 count: u32,
    }
}

impl<'a> SetIrqs<'a> {
    /// Bytes without data.
    pub const SIZE: usize = SetIrqsHead::SIZE;

    /// From a payload. `None`: too short for the structure or its data, an unknown kind, or not one data flag and one
    /// action.
    pub fn parse(payload: &'a [u8]) -> Option<SetIrqs<'a>> {
        let SetIrqsHead { argsz, flags, index, start, count } = SetIrqsHead::parse(payload).ok()?;
        let index = IrqIndex::from_number(index)?;
        if (argsz as usize) < SetIrqs::SIZE {
            return None;
        }
        let data = match flags & DATA_FLAGS {
            DATA_NONE => IrqData::None,
            DATA_BOOL => IrqData::Bool(payload.get(SetIrqs::SIZE..)?.get(..count as usize)?),
            DATA_EVENTFD => IrqData::Event,
            _ => return None,
        };
        let action = match flags & !DATA_FLAGS {
            ACTION_MASK => IrqAction::Mask,
            ACTION_UNMASK => IrqAction::Unmask,
            ACTION_TRIGGER => IrqAction::Trigger,
            _ => return None,
        };
        Some(SetIrqs { index, start, count, data, action })
    }

    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (data, bools): (u32, &[u8]) = match self.data {
            IrqData::None => (DATA_NONE, &[]),
            IrqData::Bool(bools) => (DATA_BOOL, bools),
            IrqData::Event => (DATA_EVENTFD, &[]),
        };
        let action = match self.action {
            IrqAction::Mask => ACTION_MASK,
            IrqAction::Unmask => ACTION_UNMASK,
            IrqAction::Trigger => ACTION_TRIGGER,
        };
        let argsz = (SetIrqs::SIZE + bools.len()) as u32;
        let (flags, index) = (data | action, self.index.number());
        let head = SetIrqsHead { argsz, flags, index, start: self.start, count: self.count };
        [&head.to_bytes(), bools].concat()
    }
}
