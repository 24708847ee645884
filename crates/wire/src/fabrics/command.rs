//! Fabrics commands (section 3) and their responses.

use super::{OPCODE, Parameter, kind, status};
use crate::nvme::{Sqe, Status};

/// Connect (section 3.3): a transport connection becomes a queue of a controller. [`super::ConnectData`] is its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Connect {
    /// The queue (QID); 0 is the admin queue, and makes a controller.
    pub queue: u16,
    /// Its entries, less 1 (SQSIZE).
    pub entries_zero_based: u16,
    /// The host keeps count of entries itself: responses have no submission queue head (CATTR bit 2).
    pub no_flow_control: bool,
    /// The host may delete this I/O queue alone (CATTR bit 3).
    pub deletes_queues: bool,
    /// Keep Alive Timeout, of the admin queue (KATO): milliseconds; 0 is none.
    pub keep_alive_ms: u32,
}

/// Property Set (section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PropertySet {
    /// The property's offset (OFST).
    pub offset: u32,
    /// Its bytes: 4 or 8.
    pub len: u8,
    /// Its new value.
    pub value: u64,
}

/// Property Get (section 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PropertyGet {
    /// The property's offset (OFST).
    pub offset: u32,
    /// Its bytes: 4 or 8.
    pub len: u8,
}

/// A Fabrics command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fabrics {
    /// Property Set.
    PropertySet(PropertySet),
    /// Connect.
    Connect(Connect),
    /// Property Get.
    PropertyGet(PropertyGet),
    /// Authentication Send or Receive.
    Authentication,
    /// Disconnect (section 3.4).
    Disconnect,
}

/// Bits of CATTR, which is byte 46: bits 23:16 of double word 11.
const CATTR_SHIFT: u32 = 16;
const NO_FLOW_CONTROL: u32 = 1 << (CATTR_SHIFT + 2);
const DELETES_QUEUES: u32 = 1 << (CATTR_SHIFT + 3);

impl Fabrics {
    /// Reads an entry whose opcode is [`OPCODE`].
    ///
    /// # Errors
    /// An unknown type, or another opcode, gives Invalid Command Opcode; another record format Connect Incompatible
    /// Format; another property size Invalid Field in Command.
    pub fn parse(sqe: &Sqe) -> Result<Fabrics, Status> {
        if sqe.opcode() != OPCODE {
            return Err(Status::INVALID_OPCODE);
        }
        let dwords = sqe.dwords();
        let property_len = || match dwords[10] & 7 {
            0 => Ok(4),
            1 => Ok(8),
            _ => Err(Status::INVALID_FIELD),
        };
        let format_zero = || if dwords[10] as u16 == 0 { Ok(()) } else { Err(status::INCOMPATIBLE_FORMAT) };
        Ok(match dwords[1] as u8 {
            kind::PROPERTY_SET => {
                let value = u64::from(dwords[12]) | u64::from(dwords[13]) << 32;
                Fabrics::PropertySet(PropertySet { offset: dwords[11], len: property_len()?, value })
            }
            kind::PROPERTY_GET => Fabrics::PropertyGet(PropertyGet { offset: dwords[11], len: property_len()? }),
            kind::CONNECT => {
                format_zero()?;
                Fabrics::Connect(Connect {
                    queue: (dwords[10] >> 16) as u16,
                    entries_zero_based: dwords[11] as u16,
                    no_flow_control: dwords[11] & NO_FLOW_CONTROL != 0,
                    deletes_queues: dwords[11] & DELETES_QUEUES != 0,
                    keep_alive_ms: dwords[12],
                })
            }
            kind::DISCONNECT => {
                format_zero()?;
                Fabrics::Disconnect
            }
            kind::AUTHENTICATION_SEND | kind::AUTHENTICATION_RECEIVE => Fabrics::Authentication,
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    /// The entry that parses to this command, without a data pointer. Asserts that a property has 4 or 8 bytes.
    pub fn emit(&self, cid: u16) -> Sqe {
        let sqe = Sqe::default().with_dword(0, u32::from(OPCODE) | u32::from(cid) << 16);
        let attribute = |len: u8| match len {
            4 => 0,
            8 => 1,
            _ => panic!("a property has 4 or 8 bytes, not {len}"),
        };
        match self {
            Fabrics::PropertySet(set) => sqe
                .with_dword(1, u32::from(kind::PROPERTY_SET))
                .with_dword(10, attribute(set.len))
                .with_dword(11, set.offset)
                .with_dword(12, set.value as u32)
                .with_dword(13, (set.value >> 32) as u32),
            Fabrics::PropertyGet(get) => sqe
                .with_dword(1, u32::from(kind::PROPERTY_GET))
                .with_dword(10, attribute(get.len))
                .with_dword(11, get.offset),
            Fabrics::Connect(connect) => sqe
                .with_dword(1, u32::from(kind::CONNECT))
                .with_dword(10, u32::from(connect.queue) << 16)
                .with_dword(
                    11,
                    u32::from(connect.entries_zero_based)
                        | if connect.no_flow_control { NO_FLOW_CONTROL } else { 0 }
                        | if connect.deletes_queues { DELETES_QUEUES } else { 0 },
                )
                .with_dword(12, connect.keep_alive_ms),
            Fabrics::Disconnect => sqe.with_dword(1, u32::from(kind::DISCONNECT)),
            Fabrics::Authentication => sqe.with_dword(1, u32::from(kind::AUTHENTICATION_SEND)),
        }
    }
}

/// A response capsule (section 2.2): a completion queue entry whose first 8 bytes belong to the command, without phase
/// tag and submission queue identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Response {
    /// Bytes 0 to 7: what the command has to say.
    pub value: u64,
    /// Submission queue head (SQHD); FFFFh where flow control is off.
    pub sq_head: u16,
    /// The command's identifier.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
}

impl Response {
    /// Bytes of a response.
    pub const SIZE: usize = 16;

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8; Response::SIZE]) -> Response {
        let [v0, v1, v2, v3, v4, v5, v6, v7, head0, head1, _, _, cid0, cid1, status0, status1] = *bytes;
        Response {
            value: u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
            sq_head: u16::from_le_bytes([head0, head1]),
            cid: u16::from_le_bytes([cid0, cid1]),
            status: Status::from_bits(u16::from_le_bytes([status0, status1]) >> 1),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Response::SIZE] {
        let mut bytes = [0; Response::SIZE];
        bytes[..8].copy_from_slice(&self.value.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.sq_head.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.cid.to_le_bytes());
        bytes[14..].copy_from_slice(&(self.status.bits() << 1).to_le_bytes());
        bytes
    }

    /// The Connect response's reference to a wrong parameter (figure 21).
    pub const fn of_parameter(parameter: Parameter) -> u64 {
        parameter.offset() as u64 | (parameter.in_data() as u64) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_laid_out_as_the_specification_says() {
        let connect = Connect {
            queue: 0x0B0A,
            entries_zero_based: 0x0D0C,
            no_flow_control: true,
            deletes_queues: false,
            keep_alive_ms: 0x0403_0201,
        };
        let bytes = Fabrics::Connect(connect).emit(0xBEEF).to_bytes();
        assert_eq!(bytes[..5], [0x7F, 0, 0xEF, 0xBE, 1]);
        assert_eq!(bytes[40..52], [0, 0, 0x0A, 0x0B, 0x0C, 0x0D, 4, 0, 1, 2, 3, 4]);
        let set = PropertySet { offset: 0x14, len: 8, value: 0x0706_0504_0302_0100 };
        let bytes = Fabrics::PropertySet(set).emit(1).to_bytes();
        assert_eq!((bytes[4], bytes[40], bytes[44]), (0, 1, 0x14));
        assert_eq!(bytes[48..56], [0, 1, 2, 3, 4, 5, 6, 7]);
        let bytes = Fabrics::PropertyGet(PropertyGet { offset: 0x1C, len: 4 }).emit(1).to_bytes();
        assert_eq!((bytes[4], bytes[40], bytes[44]), (4, 0, 0x1C));
        let response =
            Response { value: 0x0706_0504_0302_0100, sq_head: 0x0908, cid: 0x0D0C, status: Status::INVALID_FIELD };
        let bits = (Status::INVALID_FIELD.bits() << 1).to_le_bytes();
        assert_eq!(response.to_bytes(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0xC, 0xD, bits[0], bits[1]]);
    }

    #[test]
    fn what_is_wrong_gets_its_status() {
        let sqe = |kind: u8, dword10: u32| {
            Sqe::default().with_dword(0, u32::from(OPCODE)).with_dword(1, u32::from(kind)).with_dword(10, dword10)
        };
        assert_eq!(Fabrics::parse(&Sqe::flush(0)), Err(Status::INVALID_OPCODE));
        assert_eq!(Fabrics::parse(&sqe(kind::CONNECT, 1)), Err(status::INCOMPATIBLE_FORMAT));
        assert_eq!(Fabrics::parse(&sqe(kind::DISCONNECT, 1)), Err(status::INCOMPATIBLE_FORMAT));
        assert_eq!(Fabrics::parse(&sqe(kind::PROPERTY_GET, 2)), Err(Status::INVALID_FIELD));
        assert_eq!(Fabrics::parse(&sqe(kind::PROPERTY_SET, 7)), Err(Status::INVALID_FIELD));
        for unknown in [2, 3, 7, 9, 0xC0, 0xFF] {
            assert_eq!(Fabrics::parse(&sqe(unknown, 0)), Err(Status::INVALID_OPCODE));
        }
    }

    proptest! {
        #[test]
        fn any_64_bytes_parse_or_get_a_status(
            mut dwords in any::<[u32; 16]>(),
            kind in 0..10_u32,
            noise in any::<bool>(),
        ) {
            if !noise {
                dwords[0] = dwords[0] & !0xFF | u32::from(OPCODE);
                dwords[1] = kind;
                dwords[10] &= 0xFFFF_0001;
            }
            let sqe = Sqe::from_dwords(dwords);
            match Fabrics::parse(&sqe) {
                Ok(command) => {
                    let again = command.emit(sqe.cid());
                    prop_assert_eq!(again.cid(), sqe.cid());
                    prop_assert_eq!(Fabrics::parse(&again), Ok(command));
                }
                Err(status) => prop_assert!(!status.is_success()),
            }
        }

        #[test]
        fn responses_come_back(bytes in any::<[u8; 16]>()) {
            let mut written = bytes;
            written[10..12].fill(0);
            written[14] &= !1;
            prop_assert_eq!(Response::from_bytes(&bytes).to_bytes(), written);
        }
    }
}
