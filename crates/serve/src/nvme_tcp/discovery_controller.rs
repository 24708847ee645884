//! The discovery controller (section 4.4): Identify, its properties, and the answers to its commands.

use tidewater_wire::fabrics::{DISCOVERY_LOG_PAGE, DISCOVERY_NQN, property};
use tidewater_wire::nvme::{Sqe, Status};

/// Admin opcodes (figure 140 of the base specification).
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0A;
const ASYNC_EVENT_REQUEST: u8 = 0x0C;
/// Identify: the controller data structure.
const CNS_CONTROLLER: u32 = 1;
/// Feature: Asynchronous Event Configuration.
const ASYNC_EVENTS: u32 = 0x0B;
/// Asynchronous event requests that may wait, less 1 (AERL).
const EVENT_REQUESTS_MAX_ZERO_BASED: u8 = 3;
/// Asynchronous Event Request Limit Exceeded: command specific, 05h.
const EVENT_LIMIT_EXCEEDED: Status = Status::new(1, 0x05, true);
/// Invalid Log Page: command specific, 09h.
const INVALID_LOG_PAGE: Status = Status::new(1, 0x09, true);
/// Version 1.4.
const VERSION: u32 = 0x0001_0400;
/// Controller Capabilities: 128 entries, contiguous queues, ready within 500 ms, NVM command set.
const CAPABILITIES: u64 = 127 | 1 << 16 | 1 << 24 | 1 << 37;

/// A discovery controller.
#[derive(Debug)]
pub(super) struct Discovery {
    id: u16,
    configuration: u32,
    events: u32,
    event_requests: u8,
}

impl Discovery {
    pub(super) fn new(id: u16) -> Discovery {
        Discovery { id, configuration: 0, events: 0, event_requests: 0 }
    }

    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// A property.
    pub(super) fn register(&self, offset: u32) -> u64 {
        match offset {
            property::CAP => CAPABILITIES,
            property::VS => u64::from(VERSION),
            property::CC => u64::from(self.configuration),
            property::CSTS => {
                let ready = self.configuration & 1;
                // Shutdown is complete (SHST) as soon as it is asked for (SHN).
                let shutdown = if self.configuration >> 14 & 3 != 0 { 2 << 2 } else { 0 };
                u64::from(ready | shutdown)
            }
            _ => 0,
        }
    }

    pub(super) fn set_register(&mut self, offset: u32, value: u32) {
        if offset == property::CC {
            if value & 1 == 0 {
                self.event_requests = 0;
            }
            self.configuration = value;
        }
    }

    /// Identify Controller (figure 247 of the base specification, and figure 29).
    fn identify(&self) -> Vec<u8> {
        let mut data = vec![0; 4_096];
        data[4..72].fill(b' ');
        data[24..24 + 19].copy_from_slice(b"Tidewater discovery");
        data[64..64 + 5].copy_from_slice(env!("CARGO_PKG_VERSION").as_bytes().first_chunk::<5>().unwrap_or(b"0.0.0"));
        data[78..80].copy_from_slice(&self.id.to_le_bytes());
        data[80..84].copy_from_slice(&VERSION.to_le_bytes());
        data[111] = 2; // CNTRLTYPE: discovery controller
        data[259] = EVENT_REQUESTS_MAX_ZERO_BASED;
        data[261] = 1 << 2; // LPA: Get Log Page with offsets
        data[320..322].copy_from_slice(&1_u16.to_le_bytes()); // KAS: 100 ms
        data[514..516].copy_from_slice(&128_u16.to_le_bytes()); // MAXCMD
        // SGLS: any alignment, offsets, transport.
        data[536..540].copy_from_slice(&(1_u32 | 1 << 20 | 1 << 21).to_le_bytes());
        data[768..768 + DISCOVERY_NQN.len()].copy_from_slice(DISCOVERY_NQN.as_bytes());
        data[1_792..1_796].copy_from_slice(&4_u32.to_le_bytes()); // IOCCSZ: no in-capsule data
        data[1_796..1_800].copy_from_slice(&1_u32.to_le_bytes()); // IORCSZ
        data[1_803] = 1; // MSDBD
        data
    }

    /// Carries out a command: data for the host, or a value; `None`: it waits for an event that never comes.
    pub(super) fn command(&mut self, sqe: &Sqe, log: impl FnOnce() -> Vec<u8>) -> Option<Result<Reply, Status>> {
        Some(match sqe.opcode() {
            IDENTIFY if sqe.cdw10() & 0xFF == CNS_CONTROLLER => Ok(Reply::Data(self.identify())),
            IDENTIFY => Err(Status::INVALID_FIELD),
            GET_LOG_PAGE if sqe.cdw10() & 0xFF == u32::from(DISCOVERY_LOG_PAGE) => log_piece(sqe, &log()),
            GET_LOG_PAGE => Err(INVALID_LOG_PAGE),
            SET_FEATURES if sqe.cdw10() == ASYNC_EVENTS => {
                self.events = sqe.cdw11();
                Ok(Reply::Value(0))
            }
            GET_FEATURES if sqe.cdw10() == ASYNC_EVENTS => Ok(Reply::Value(u64::from(self.events))),
            SET_FEATURES | GET_FEATURES => Err(Status::INVALID_FIELD),
            ASYNC_EVENT_REQUEST if self.event_requests <= EVENT_REQUESTS_MAX_ZERO_BASED => {
                self.event_requests += 1;
                return None;
            }
            ASYNC_EVENT_REQUEST => Err(EVENT_LIMIT_EXCEEDED),
            _ => Err(Status::INVALID_OPCODE),
        })
    }
}

/// Result of a command.
#[derive(Debug)]
pub(super) enum Reply {
    Value(u64),
    Data(Vec<u8>),
}

/// The part of a log page that Get Log Page asks for (section 5.14 of the base specification); behind its end are
/// zeroes.
fn log_piece(sqe: &Sqe, log: &[u8]) -> Result<Reply, Status> {
    let dwords = u64::from(sqe.cdw10() >> 16) | u64::from(sqe.cdw11() & 0xFFFF) << 16;
    let len = (dwords + 1) * 4;
    let offset = u64::from(sqe.cdw12()) | u64::from(sqe.cdw13()) << 32;
    if !offset.is_multiple_of(4) || offset > log.len() as u64 {
        return Err(Status::INVALID_FIELD);
    }
    // No host has a reason to read more than some pages of zeroes.
    let len = usize::try_from(len).ok().filter(|&len| len <= 64 << 10).ok_or(Status::INVALID_FIELD)?;
    let rest = &log[offset as usize..];
    let mut data = rest[..rest.len().min(len)].to_vec();
    data.resize(len, 0);
    Ok(Reply::Data(data))
}
