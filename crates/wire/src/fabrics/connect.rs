//! The data of Connect (figure 20): who connects, and to what.

use super::{CONTROLLER_ANY, NQN_BYTES_MAX};
use std::fmt;

/// Bytes of an NQN's field.
const FIELD: usize = 256;

/// An NVMe Qualified Name: 1 to 223 bytes of UTF-8 that start with "nqn.".
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Nqn(String);

impl Nqn {
    /// A name, if it is one (NVM Express Base Specification 1.4, section 7.9).
    pub fn new(name: &str) -> Option<Nqn> {
        let good = name.starts_with("nqn.") && name.len() <= NQN_BYTES_MAX && !name.contains('\0');
        good.then(|| Nqn(name.to_owned()))
    }

    /// From a field of 256 bytes that ends with NULs.
    fn from_field(field: &[u8]) -> Option<Nqn> {
        let len = field.iter().position(|&byte| byte == 0)?;
        Nqn::new(std::str::from_utf8(&field[..len]).ok()?)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A parameter of Connect that may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Parameter {
    /// QID of the command.
    Queue,
    /// SQSIZE of the command.
    Entries,
    /// HOSTID of the data.
    HostId,
    /// CNTLID of the data.
    Controller,
    /// SUBNQN of the data.
    Subsystem,
    /// HOSTNQN of the data.
    Host,
}

impl Parameter {
    /// The offset of the parameter (IPO).
    pub const fn offset(self) -> u16 {
        match self {
            Parameter::Queue => 42,
            Parameter::Entries => 44,
            Parameter::HostId => 0,
            Parameter::Controller => 16,
            Parameter::Subsystem => 256,
            Parameter::Host => 512,
        }
    }

    /// Whether it is in the data, else in the command (IATTR).
    pub const fn in_data(self) -> bool {
        !matches!(self, Parameter::Queue | Parameter::Entries)
    }
}

/// The data of Connect.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConnectData {
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Controller identifier: [`CONTROLLER_ANY`] for an admin queue, else that of the admin queue's response.
    pub controller: u16,
    /// The subsystem's name.
    pub subsystem: Nqn,
    /// The host's name; `None`: the field is empty.
    pub host: Option<Nqn>,
}

impl ConnectData {
    /// Bytes of the data.
    pub const SIZE: usize = 1_024;

    /// From its bytes.
    ///
    /// # Errors
    /// Which parameter is wrong: a name that is not an NQN, or a host identifier of zero, which is not a value (section
    /// 3.3).
    pub fn from_bytes(bytes: &[u8; ConnectData::SIZE]) -> Result<ConnectData, Parameter> {
        let field = |at: usize| Nqn::from_field(&bytes[at..at + FIELD]);
        let host_id: [u8; 16] = *bytes.first_chunk().expect("1,024 bytes have 16");
        if host_id == [0; 16] {
            return Err(Parameter::HostId);
        }
        Ok(ConnectData {
            host_id,
            controller: u16::from_le_bytes([bytes[16], bytes[17]]),
            subsystem: field(256).ok_or(Parameter::Subsystem)?,
            host: if bytes[512] == 0 { None } else { Some(field(512).ok_or(Parameter::Host)?) },
        })
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; ConnectData::SIZE] {
        let mut bytes = [0; ConnectData::SIZE];
        bytes[..16].copy_from_slice(&self.host_id);
        bytes[16..18].copy_from_slice(&self.controller.to_le_bytes());
        bytes[256..256 + self.subsystem.0.len()].copy_from_slice(self.subsystem.0.as_bytes());
        let host = self.host.as_ref().map_or("", Nqn::as_str);
        bytes[512..512 + host.len()].copy_from_slice(host.as_bytes());
        bytes
    }

    /// Whether the host asks for any controller.
    pub const fn any_controller(&self) -> bool {
        self.controller == CONTROLLER_ANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data() -> ConnectData {
        ConnectData {
            host_id: std::array::from_fn(|i| i as u8),
            controller: 0x1110,
            subsystem: Nqn::new("nqn.2026-01.io.example:a").unwrap(),
            host: Some(Nqn::new(&format!("nqn.{}", "x".repeat(219))).unwrap()),
        }
    }

    #[test]
    fn it_is_laid_out_as_the_specification_says() {
        let bytes = data().to_bytes();
        assert_eq!(bytes[..18], std::array::from_fn::<u8, 18, _>(|i| i as u8));
        assert!(bytes[18..256].iter().all(|&byte| byte == 0));
        assert!(bytes[256..].starts_with(b"nqn.2026-01.io.example:a\0"));
        assert!(bytes[512..].starts_with(b"nqn.xxx"));
        assert_eq!((bytes[512 + 222], bytes[512 + 223]), (b'x', 0));
        assert_eq!(ConnectData::from_bytes(&bytes), Ok(data()));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for (at, parameter) in [(256, Parameter::Subsystem), (512, Parameter::Host)] {
            for bad in [&[b'n'; 256][..], b"nqm.\0", b"nqn.\xFF\0", &[&b"nqn."[..], &[b'x'; 220]].concat()] {
                let mut bytes = data().to_bytes();
                bytes[at..at + 256].fill(0);
                bytes[at..at + bad.len()].copy_from_slice(bad);
                assert_eq!(ConnectData::from_bytes(&bytes), Err(parameter));
            }
        }
        assert_eq!(Nqn::new("nqn.a\0b"), None);
    }

    #[test]
    fn a_host_may_have_no_name_but_not_the_identifier_zero_and_a_subsystem_has_a_name() {
        let mut bytes = data().to_bytes();
        bytes[512..768].fill(0);
        assert_eq!(ConnectData::from_bytes(&bytes), Ok(ConnectData { host: None, ..data() }));
        assert_eq!(ConnectData { host: None, ..data() }.to_bytes(), bytes);
        bytes[256] = 0;
        assert_eq!(ConnectData::from_bytes(&bytes), Err(Parameter::Subsystem));
        bytes[..16].fill(0);
        assert_eq!(ConnectData::from_bytes(&bytes), Err(Parameter::HostId));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_name_a_parameter(
            noise in prop::collection::vec(any::<u8>(), ConnectData::SIZE),
            names in prop::option::of(("nqn\\.[a-z]{0,230}", "nqn\\.[a-z]{0,20}")),
        ) {
            let mut bytes: [u8; ConnectData::SIZE] = noise.try_into().unwrap();
            if let Some((subsystem, host)) = names {
                bytes[256..768].fill(0);
                bytes[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
                bytes[512..512 + host.len()].copy_from_slice(host.as_bytes());
            }
            match ConnectData::from_bytes(&bytes) {
                Ok(data) => prop_assert_eq!(ConnectData::from_bytes(&data.to_bytes()), Ok(data)),
                Err(parameter) => prop_assert!(parameter.in_data()),
            }
        }
    }
}
