//! What of the subsystem outlives a power cut, as one run of bytes: each part with its length, in a frame of its own.

use super::features::{Features, Limits};
use super::interface::Transport;
use super::namespaces::{Geometry, Namespaces};
use super::options::Options;
use super::sanitize::Sanitize;
use super::self_test::SelfTest;
use super::smart::{Flash, Smart};
use crate::device::{Device, SetupError};
use crate::saved::{Kind, StateError};
use tidewater_base::Instant;
use tidewater_base::checksum::crc32c;
use tidewater_nand::Medium;

const KIND: Kind = Kind { what: "state of the subsystem", magic: *b"TWSS", version: 1 };
const PARTS: usize = 5;

/// Namespaces, features, health, self-tests, sanitize.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub namespaces: Namespaces,
    pub features: Features,
    pub smart: Smart,
    pub self_test: SelfTest,
    pub sanitize: Sanitize,
}

pub(super) fn flash_of<M: Medium>(device: &Device<M>, store_failed: bool) -> Flash {
    let flash = Flash::of(device.ftl(), device.profile().nand.endurance);
    Flash { read_only: flash.read_only || store_failed, backup_failed: device.dump_lost() > 0, ..flash }
}

impl State {
    /// That of a new drive, or what `Options::state` holds.
    pub(super) fn new<M: Medium>(device: &Device<M>, options: &Options) -> Result<State, SetupError> {
        let profile = device.profile();
        let block_shift = profile.host.block_size.trailing_zeros();
        let geometry = Geometry {
            blocks: device.capacity() >> block_shift,
            block_shift: block_shift as u8,
            unit_shift: profile.ftl.unit_size.trailing_zeros() as u8,
        };
        let shared = usize::from(options.functions) + usize::from(options.fabrics) > 1;
        if !options.state.is_empty() {
            let text = |error: StateError| SetupError(error.to_string());
            let mut saved = State::from_bytes(&options.state, geometry, device.now(), options).map_err(text)?;
            if shared {
                saved.namespaces.share_those_of_all();
            }
            return Ok(saved.with_logs(device, options));
        }
        // Identifiers are the same wherever the same drive is served.
        let seed = u64::from(crc32c(options.serial.as_bytes())) << 32 | u64::from(crc32c(options.nqn.as_bytes()));
        let namespaces = if options.namespaces.is_empty() {
            Namespaces::whole(geometry, seed, geometry.block_shift, shared)
        } else {
            let mut namespaces = Namespaces::new(geometry, seed);
            for initial in &options.namespaces {
                namespaces.add(*initial).map_err(|status| {
                    SetupError(format!("a namespace of {} bytes: {status}; choose smaller ones", initial.bytes))
                })?;
            }
            namespaces
        };
        Ok(State {
            namespaces,
            features: Features::new(limits(options)),
            smart: Smart::new(&flash_of(device, false)),
            self_test: SelfTest::default(),
            sanitize: Sanitize::default(),
        }
        .with_logs(device, options))
    }

    /// The logs of the fast side's functions, as far as they have a controller, are read as namespaces.
    fn with_logs<M: Medium>(self, device: &Device<M>, options: &Options) -> State {
        let functions = device.fast().functions().len().min(options.functions.into());
        let units = device.profile().fast.log_size / u64::from(device.profile().ftl.unit_size);
        State { namespaces: self.namespaces.with_logs(functions as u8, units), ..self }
    }

    pub(super) fn to_bytes(&self, now: Instant) -> Vec<u8> {
        let parts: [Vec<u8>; PARTS] = [
            self.namespaces.to_bytes(),
            self.features.to_bytes(),
            self.smart.to_bytes(now),
            self.self_test.to_bytes(now),
            self.sanitize.to_bytes(),
        ];
        let mut out = Vec::new();
        for part in parts {
            out.extend((part.len() as u32).to_le_bytes());
            out.extend(part);
        }
        KIND.seal(&out)
    }

    fn from_bytes(bytes: &[u8], geometry: Geometry, now: Instant, options: &Options) -> Result<State, StateError> {
        let mut fields = KIND.open(bytes)?;
        let mut part = || {
            let len = fields.u32()? as usize;
            fields.bytes(len)
        };
        let (namespaces, features) = (part()?, part()?);
        let (smart, self_test, sanitize) = (part()?, part()?, part()?);
        fields.end()?;
        Ok(State {
            namespaces: Namespaces::from_bytes(namespaces, geometry)?,
            features: Features::from_bytes(features, limits(options))?,
            smart: Smart::from_bytes(smart, now)?,
            self_test: SelfTest::from_bytes(self_test, now)?,
            sanitize: Sanitize::from_bytes(sanitize)?,
        })
    }
}

/// What bounds the features of each controller.
fn limits(options: &Options) -> impl Iterator<Item = Limits> {
    let of = |transport| Limits {
        transport,
        queues: options.queues,
        vectors: options.vectors,
        host_memory_min: (options.hmb_preferred > 0).then_some(options.hmb_minimum),
        burst: options.arbitration_burst.max(1).ilog2() as u8,
        // Where they have no effect they are zero, as those of most controllers.
        weights: match options.weighted && transport == Transport::Pcie {
            true => options.arbitration_weights.map(|weight| (weight.clamp(1, 256) - 1) as u8),
            false => [0; 3],
        },
    };
    let (functions, fabrics) = (usize::from(options.functions), usize::from(options.fabrics));
    std::iter::repeat_n(of(Transport::Pcie), functions).chain(std::iter::repeat_n(of(Transport::Fabrics), fabrics))
}
