//! The discovery log page (section 5, figures 33 and 34): which subsystems there are, and at which addresses.

use super::Nqn;
use crate::layout::layout;

/// Bytes of an entry.
const SIZE: usize = 1_024;
/// TRTYPE of TCP.
const TRANSPORT_TCP: u8 = 3;
/// TREQ: a secure channel is not required.
const SECURE_CHANNEL_NOT_REQUIRED: u8 = 2;
/// CNTLID: controllers are made as hosts connect.
const DYNAMIC_CONTROLLERS: u16 = 0xFFFF;

layout! {
    /// The log page's header.
    pub struct DiscoveryHeader [1024] {
        fixed 16 format: u16 = 0, " Format of the records.";
        /// Generation counter: changes whenever the records do.
        0 generation: u64,
        /// Number of records behind the header.
        8 records: u64,
    }
}

/// Address family (ADRFAM).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AddressFamily {
    /// IPv4.
    V4 = 1,
    /// IPv6.
    V6 = 2,
}

/// Type of the subsystem at the address (SUBTYPE).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SubsystemKind {
    /// Another discovery service.
    Referral = 1,
    /// A subsystem with namespaces.
    Nvm = 2,
    /// This discovery service.
    CurrentDiscovery = 3,
}

/// An entry of the log page: a subsystem at a TCP address, without a secure channel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DiscoveryEntry {
    /// The subsystem's type.
    pub kind: SubsystemKind,
    /// Address family.
    pub family: AddressFamily,
    /// Which port of the subsystem (PORTID).
    pub port_id: u16,
    /// Entries of an admin queue, at most (ASQSZ).
    pub admin_entries_max: u16,
    /// The subsystem's name.
    pub subsystem: Nqn,
    /// Address in its textual form (TRADDR), at most 256 bytes.
    pub address: String,
    /// TCP port (TRSVCID).
    pub port: u16,
}

impl DiscoveryEntry {
    /// Bytes of an entry.
    pub const SIZE: usize = SIZE;

    /// Its bytes. Asserts that the address has its place.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        assert!(self.address.len() <= 256, "an address has at most 256 bytes");
        let mut bytes = [0; SIZE];
        bytes[0] = TRANSPORT_TCP;
        bytes[1] = self.family as u8;
        bytes[2] = self.kind as u8;
        bytes[3] = SECURE_CHANNEL_NOT_REQUIRED;
        bytes[4..6].copy_from_slice(&self.port_id.to_le_bytes());
        bytes[6..8].copy_from_slice(&DYNAMIC_CONTROLLERS.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.admin_entries_max.to_le_bytes());
        // ASCII strings are padded with spaces (NVM Express Base Specification 1.4, section 1.5).
        bytes[32..64].fill(b' ');
        let port = self.port.to_string();
        bytes[32..32 + port.len()].copy_from_slice(port.as_bytes());
        bytes[256..256 + self.subsystem.as_str().len()].copy_from_slice(self.subsystem.as_str().as_bytes());
        bytes[512..768].fill(b' ');
        bytes[512..512 + self.address.len()].copy_from_slice(self.address.as_bytes());
        // TSAS of TCP: no security (SECTYPE 0).
        bytes
    }

    /// From its bytes; `None`: another transport or address family, or no name, address or port.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Option<DiscoveryEntry> {
        let text = |field: &[u8]| {
            let text = std::str::from_utf8(field).ok()?;
            Some(text.trim_end_matches(['\0', ' ']).to_owned())
        };
        if bytes[0] != TRANSPORT_TCP {
            return None;
        }
        let name = &bytes[256..512];
        let name = &name[..name.iter().position(|&byte| byte == 0)?];
        Some(DiscoveryEntry {
            kind: match bytes[2] {
                1 => SubsystemKind::Referral,
                2 => SubsystemKind::Nvm,
                3 => SubsystemKind::CurrentDiscovery,
                _ => return None,
            },
            family: match bytes[1] {
                1 => AddressFamily::V4,
                2 => AddressFamily::V6,
                _ => return None,
            },
            port_id: u16::from_le_bytes([bytes[4], bytes[5]]),
            admin_entries_max: u16::from_le_bytes([bytes[8], bytes[9]]),
            subsystem: Nqn::new(std::str::from_utf8(name).ok()?)?,
            address: text(&bytes[512..768])?,
            port: text(&bytes[32..64])?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> DiscoveryEntry {
        DiscoveryEntry {
            kind: SubsystemKind::Nvm,
            family: AddressFamily::V4,
            port_id: 0x0504,
            admin_entries_max: 0x0908,
            subsystem: Nqn::new("nqn.2026-01.io.example:a").unwrap(),
            address: "192.0.2.255".to_owned(),
            port: 4_420,
        }
    }

    #[test]
    fn an_entry_is_laid_out_as_the_specification_says() {
        let bytes = entry().to_bytes();
        assert_eq!(bytes[..12], [3, 1, 2, 2, 4, 5, 0xFF, 0xFF, 8, 9, 0, 0]);
        assert!(bytes[32..64].starts_with(b"4420  "));
        assert!(bytes[256..].starts_with(b"nqn.2026-01.io.example:a\0"));
        assert!(bytes[512..].starts_with(b"192.0.2.255  "));
        assert!(bytes[768..].iter().all(|&byte| byte == 0));
        assert_eq!(DiscoveryEntry::from_bytes(&bytes), Some(entry()));
        let six = DiscoveryEntry { family: AddressFamily::V6, address: "::1".to_owned(), ..entry() };
        assert_eq!(DiscoveryEntry::from_bytes(&six.to_bytes()), Some(six));
        let header = DiscoveryHeader { generation: 0x0706_0504_0302_0100, records: 0x0F0E_0D0C_0B0A_0908 };
        assert_eq!(header.to_bytes()[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF, 0, 0]);
        assert_eq!(DiscoveryHeader::parse(&header.to_bytes()), Ok(header));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(
            noise in prop::collection::vec(any::<u8>(), SIZE),
            change in prop::option::of(0..SIZE),
        ) {
            let mut bytes: [u8; SIZE] = noise.clone().try_into().unwrap();
            if let Some(at) = change {
                bytes = entry().to_bytes();
                bytes[at] = noise[at];
            }
            if let Some(entry) = DiscoveryEntry::from_bytes(&bytes) {
                prop_assert_eq!(DiscoveryEntry::from_bytes(&entry.to_bytes()), Some(entry));
            }
            if let Ok(header) = DiscoveryHeader::parse(&bytes) {
                prop_assert_eq!(&header.to_bytes()[..16], &bytes[..16]);
            }
        }
    }
}
