//! Features (NVM Express 1.4, sections 5.13, 5.21 and 7.8): the current, default and saved values of every controller.

use super::interface::{Segment, Transport};
use super::namespaces::Namespaces;
use super::smart::{TEMPERATURE_K, WARNING_K};
use crate::saved::{Kind, StateError};
use std::collections::BTreeMap;
use tidewater_base::Instant;
use tidewater_wire::nvme::feature::{
    self, Bound, Capabilities, Feature, HmbAttributes, HmbDescriptor, HostBehavior, HostMemoryBuffer, Timestamp,
};
use tidewater_wire::nvme::log::critical_warning;
use tidewater_wire::nvme::{Event, GetFeatures, NSID_ALL, Select, SetFeatures, Status};

const KIND: Kind = Kind { what: "features", magic: *b"TWFT", version: 1 };
/// Entries of a host memory descriptor list, at most (HMMAXD): one page of them.
pub const HMB_ENTRIES_MAX: u16 = 256;

/// What of a controller bounds its features, and what they are at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How it is attached.
    pub transport: Transport,
    /// Pairs of I/O queues, from 1.
    pub queues: u16,
    /// Interrupt vectors.
    pub vectors: u16,
    /// The least host memory that is of use, in 4 KiB (HMMIN); `None`: host memory is not used.
    pub host_memory_min: Option<u32>,
    /// Arbitration burst, as a power of two.
    pub burst: u8,
    /// Arbitration weights of the high, medium and low classes, less one.
    pub weights: [u8; 3],
}

/// How far a feature can be used.
#[derive(Clone, Copy)]
struct Rule {
    saveable: bool,
    of_namespace: bool,
    changeable: bool,
    /// One value for the whole subsystem.
    of_subsystem: bool,
}

fn rule(fid: u8, limits: &Limits) -> Option<Rule> {
    let pcie = limits.transport == Transport::Pcie;
    let there = match fid {
        feature::INTERRUPT_COALESCING | feature::INTERRUPT_VECTOR => pcie,
        feature::HOST_MEMORY_BUFFER => pcie && limits.host_memory_min.is_some(),
        _ => feature::NAMED.iter().any(|&(known, _)| known == fid),
    };
    there.then_some(Rule {
        saveable: matches!(
            fid,
            feature::ARBITRATION
                | feature::VOLATILE_WRITE_CACHE
                | feature::INTERRUPT_COALESCING
                | feature::SANITIZE_CONFIG
                | feature::SOFTWARE_PROGRESS
        ),
        of_namespace: matches!(fid, feature::ERROR_RECOVERY | feature::WRITE_PROTECTION),
        // Over fabrics the host identifier comes with Connect.
        changeable: fid != feature::HOST_IDENTIFIER || pcie,
        of_subsystem: matches!(fid, feature::SANITIZE_CONFIG | feature::SOFTWARE_PROGRESS),
    })
}

/// The value of a feature that is one double word.
fn default(fid: u8, limits: &Limits) -> u32 {
    let feature = match fid {
        feature::ARBITRATION => Feature::Arbitration { burst: limits.burst, weights: limits.weights },
        feature::VOLATILE_WRITE_CACHE => Feature::VolatileWriteCache { enabled: true },
        feature::NUMBER_OF_QUEUES => {
            Feature::NumberOfQueues { submission: limits.queues - 1, completion: limits.queues - 1 }
        }
        _ => return 0,
    };
    feature.dword()
}

/// A host identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostId {
    /// It has 128 bits, else the first 8 bytes are it.
    pub extended: bool,
    /// Its bytes, as the host gave them.
    pub bytes: [u8; 16],
}

/// The features of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Controller {
    limits: Limits,
    /// Double words that are not the default.
    current: BTreeMap<u8, u32>,
    saved: BTreeMap<u8, u32>,
    /// Looked at by every write.
    write_cache: bool,
    over: u16,
    under: u16,
    /// Time limited error recovery of namespaces, by NSID.
    recovery: BTreeMap<u32, u32>,
    no_coalescing: Box<[bool]>,
    host_memory: Option<HostMemoryBuffer>,
    timestamp_ms: u64,
    timestamp_at: Instant,
    timestamp_set: bool,
    host_id: HostId,
    /// The host waits before it tries a command again, as long as its status says (ACRE).
    waits_for_retry: bool,
}

impl Controller {
    fn new(limits: Limits) -> Controller {
        Controller {
            limits,
            current: BTreeMap::new(),
            saved: BTreeMap::new(),
            write_cache: true,
            over: WARNING_K,
            under: 0,
            recovery: BTreeMap::new(),
            no_coalescing: vec![false; usize::from(limits.vectors)].into_boxed_slice(),
            host_memory: None,
            timestamp_ms: 0,
            timestamp_at: Instant::ZERO,
            timestamp_set: false,
            host_id: HostId::default(),
            waits_for_retry: false,
        }
    }

    fn timestamp(&self, now: Instant) -> Timestamp {
        let ms = self.timestamp_ms + now.since(self.timestamp_at).as_ns() / 1_000_000;
        Timestamp { ms, set_by_host: self.timestamp_set, stopped: false }
    }
}

/// What Get Features returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Double word 0 of the completion.
    pub dword: u32,
    /// Data for the host; may be empty.
    pub data: Vec<u8>,
}

/// What Set Features has to know of its controller.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The controller.
    pub function: u8,
    /// When.
    pub now: Instant,
    /// It has I/O queues: their number can't be asked for any more.
    pub queues_exist: bool,
}

/// The features of all controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    controllers: Vec<Controller>,
    /// Values and saved values of features that are the subsystem's.
    current: BTreeMap<u8, u32>,
    saved: BTreeMap<u8, u32>,
}

impl Features {
    /// Those of controllers as they come from the factory, by their number.
    pub fn new(limits: impl IntoIterator<Item = Limits>) -> Features {
        Features {
            controllers: limits.into_iter().map(Controller::new).collect(),
            current: BTreeMap::new(),
            saved: BTreeMap::new(),
        }
    }

    fn at(&self, function: u8) -> &Controller {
        &self.controllers[usize::from(function)]
    }

    fn word(&self, function: u8, fid: u8, select: Select) -> u32 {
        let c = self.at(function);
        let of_subsystem = rule(fid, &c.limits).is_some_and(|rule| rule.of_subsystem);
        let (current, saved) = if of_subsystem { (&self.current, &self.saved) } else { (&c.current, &c.saved) };
        let found = match select {
            Select::Current => current.get(&fid).or(saved.get(&fid)),
            Select::Saved => saved.get(&fid),
            Select::Default | Select::Supported => None,
        };
        found.copied().unwrap_or_else(|| default(fid, &c.limits))
    }

    fn value(&self, function: u8, fid: u8) -> Feature {
        let dword = self.word(function, fid, Select::Current);
        Feature::from_dword(fid, dword).expect("what was set was a value")
    }

    /// Get Features.
    ///
    /// # Errors
    /// Invalid Field in Command for what is not there; for features of namespaces as [`Namespaces::find`]; Host
    /// Identifier Inconsistent Format.
    pub fn get(
        &self,
        function: u8,
        now: Instant,
        get: &GetFeatures,
        namespaces: &Namespaces,
    ) -> Result<Answer, Status> {
        let c = self.at(function);
        let rule = rule(get.fid, &c.limits).ok_or(Status::INVALID_FIELD)?;
        let dword = |dword| Ok(Answer { dword, data: Vec::new() });
        if get.select == Select::Supported {
            let Rule { saveable, of_namespace, changeable, .. } = rule;
            return dword(Capabilities { saveable, of_namespace, changeable }.dword());
        }
        let is_current = get.select == Select::Current;
        match get.fid {
            feature::WRITE_PROTECTION => {
                let protection = namespaces.find(get.nsid, function)?.protection;
                dword(if is_current { protection as u32 } else { 0 })
            }
            feature::ERROR_RECOVERY => {
                // Drivers of revisions before 1.2 name no namespace: the value is the one that was last set for all.
                if get.nsid != 0 {
                    namespaces.find(get.nsid, function)?;
                }
                dword(c.recovery.get(&get.nsid).copied().filter(|_| is_current).unwrap_or(0))
            }
            feature::TEMPERATURE_THRESHOLD => {
                let Some(Feature::TemperatureThreshold { sensor: 0, bound, .. }) =
                    Feature::from_dword(get.fid, get.cdw11)
                else {
                    return Err(Status::INVALID_FIELD);
                };
                dword(match (bound, is_current) {
                    (Bound::Over, true) => c.over.into(),
                    (Bound::Under, true) => c.under.into(),
                    (Bound::Over, false) => WARNING_K.into(),
                    (Bound::Under, false) => 0,
                })
            }
            feature::INTERRUPT_VECTOR => {
                let vector = get.cdw11 as u16;
                let disabled = *c.no_coalescing.get(usize::from(vector)).ok_or(Status::INVALID_FIELD)?;
                dword(Feature::InterruptVector { vector, no_coalescing: disabled && is_current }.dword())
            }
            feature::HOST_MEMORY_BUFFER => {
                let lent = c.host_memory.filter(|_| is_current);
                let list = lent.unwrap_or_default();
                let attributes = HmbAttributes {
                    size: list.size,
                    list_low: list.list as u32,
                    list_high: (list.list >> 32) as u32,
                    entries: list.entries,
                };
                Ok(Answer { dword: u32::from(lent.is_some()), data: attributes.to_bytes().to_vec() })
            }
            feature::TIMESTAMP => {
                let stamp = if is_current { c.timestamp(now) } else { Timestamp::default() };
                Ok(Answer { dword: 0, data: stamp.to_bytes().to_vec() })
            }
            feature::HOST_BEHAVIOR => {
                let behavior = HostBehavior { retry: u8::from(c.waits_for_retry && is_current) };
                Ok(Answer { dword: 0, data: behavior.to_bytes().to_vec() })
            }
            feature::HOST_IDENTIFIER => {
                let id = if is_current { c.host_id } else { HostId::default() };
                let extended = get.cdw11 & 1 != 0;
                // A value of 128 bits cannot be returned in 64 (section 5.21.1.26).
                if id.extended && !extended {
                    return Err(Status::HOST_IDENTIFIER_INCONSISTENT);
                }
                let len = if extended { 16 } else { 8 };
                Ok(Answer { dword: u32::from(extended), data: id.bytes[..len].to_vec() })
            }
            fid => dword(self.word(function, fid, get.select)),
        }
    }

    /// Set Features: takes the value, and gives double word 0 of the completion. What a controller does with the value
    /// is its own business: the accessors below tell it. To lend host memory, [`Features::check_host_memory`] comes
    /// first, then the list is read, then this takes it.
    ///
    /// # Errors
    /// Feature Not Saveable, Feature Not Changeable, Feature Not Namespace Specific, Command Sequence Error, for
    /// features of namespaces as [`Namespaces::find`], else Invalid Field in Command.
    pub fn set(
        &mut self,
        asked: Asked,
        set: &SetFeatures,
        data: &[u8],
        namespaces: &mut Namespaces,
    ) -> Result<u32, Status> {
        let Asked { function, now, queues_exist } = asked;
        let limits = self.at(function).limits;
        let rule = rule(set.fid, &limits).ok_or(Status::INVALID_FIELD)?;
        if set.save && !rule.saveable {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        if !rule.changeable {
            // Section 5.21.1.26, of the host identifier over fabrics.
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if !rule.of_namespace && set.nsid != 0 && set.nsid != NSID_ALL {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        let value = Feature::parse(set)?;
        let c = &mut self.controllers[usize::from(function)];
        match value {
            Feature::NumberOfQueues { .. } if queues_exist => return Err(Status::COMMAND_SEQUENCE_ERROR),
            // As many as there are, however many were asked for (section 5.21.1.7).
            Feature::NumberOfQueues { .. } => return Ok(default(set.fid, &limits)),
            Feature::PowerManagement { state, .. } if state != 0 => return Err(Status::INVALID_FIELD),
            Feature::TemperatureThreshold { kelvins, sensor: 0 | 0xF, bound } => match bound {
                Bound::Over => c.over = kelvins,
                Bound::Under => c.under = kelvins,
            },
            Feature::TemperatureThreshold { .. } | Feature::ErrorRecovery { dulbe: true, .. } => {
                return Err(Status::INVALID_FIELD);
            }
            Feature::ErrorRecovery { .. } => {
                let which: Vec<u32> = match set.nsid {
                    NSID_ALL => namespaces.active(function).chain([0]).collect(),
                    nsid => vec![namespaces.find(nsid, function)?.nsid],
                };
                c.recovery.extend(which.into_iter().map(|nsid| (nsid, value.dword())));
            }
            Feature::WriteProtection(protection) => namespaces.protect(set.nsid, function, protection)?,
            Feature::InterruptVector { vector, no_coalescing } => {
                *c.no_coalescing.get_mut(usize::from(vector)).ok_or(Status::INVALID_FIELD)? = no_coalescing;
            }
            Feature::HostMemoryBuffer(buffer) if buffer.enable => {
                self.check_host_memory(function, &buffer)?;
                self.controllers[usize::from(function)].host_memory = Some(buffer);
            }
            Feature::HostMemoryBuffer(_) => c.host_memory = None,
            Feature::Timestamp => {
                let bytes = data.first_chunk().ok_or(Status::INVALID_FIELD)?;
                c.timestamp_ms = Timestamp::from_bytes(*bytes).ms;
                c.timestamp_at = now;
                c.timestamp_set = true;
            }
            Feature::HostBehavior => {
                let behavior = HostBehavior::parse(data).map_err(|_| Status::INVALID_FIELD)?;
                if behavior.retry > 1 {
                    return Err(Status::INVALID_FIELD);
                }
                c.waits_for_retry = behavior.retry == 1;
            }
            Feature::HostIdentifier { extended } => {
                let len = if extended { 16 } else { 8 };
                let mut bytes = [0; 16];
                bytes[..len].copy_from_slice(data.get(..len).ok_or(Status::INVALID_FIELD)?);
                c.host_id = HostId { extended, bytes };
            }
            _ => self.keep(function, set.fid, value.dword(), set.save, rule.of_subsystem),
        }
        Ok(0)
    }

    fn keep(&mut self, function: u8, fid: u8, dword: u32, save: bool, of_subsystem: bool) {
        let c = &mut self.controllers[usize::from(function)];
        let (current, saved) =
            if of_subsystem { (&mut self.current, &mut self.saved) } else { (&mut c.current, &mut c.saved) };
        current.insert(fid, dword);
        if save {
            saved.insert(fid, dword);
        }
        self.look_up(function);
    }

    /// What is looked at often.
    fn look_up(&mut self, function: u8) {
        let on = self.word(function, feature::VOLATILE_WRITE_CACHE, Select::Current) & 1 != 0;
        self.controllers[usize::from(function)].write_cache = on;
    }

    /// Whether a host may lend memory like this.
    ///
    /// # Errors
    /// Command Sequence Error when it has already lent some; Invalid Field in Command for an empty or too long list.
    pub fn check_host_memory(&self, function: u8, buffer: &HostMemoryBuffer) -> Result<(), Status> {
        let c = self.at(function);
        if c.host_memory.is_some() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let entries = 1..=u32::from(HMB_ENTRIES_MAX);
        if c.limits.host_memory_min.is_none() || !entries.contains(&buffer.entries) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(())
    }

    /// A controller level reset: saved values, and the default where none is saved (section 7.8).
    pub fn reset(&mut self, function: u8, now: Instant) {
        let c = &mut self.controllers[usize::from(function)];
        let saved = std::mem::take(&mut c.saved);
        *c = Controller { saved, timestamp_at: now, ..Controller::new(c.limits) };
        self.look_up(function);
    }

    /// The host has left the volatile write cache on: writes may be acknowledged before they are durable.
    #[inline]
    pub fn write_cache(&self, function: u8) -> bool {
        self.controllers[usize::from(function)].write_cache
    }

    /// Interrupt coalescing: entries (1 to 256) and time (100 us) after which there is an interrupt. `None`: at once.
    pub fn coalescing(&self, function: u8) -> Option<(u32, u32)> {
        match self.value(function, feature::INTERRUPT_COALESCING) {
            Feature::InterruptCoalescing { time: 0, .. } => None,
            Feature::InterruptCoalescing { threshold, time } => Some((u32::from(threshold) + 1, time.into())),
            other => unreachable!("{other:?}"),
        }
    }

    /// Interrupts of a vector are not coalesced.
    pub fn is_uncoalesced(&self, function: u8, vector: u16) -> bool {
        self.at(function).no_coalescing.get(usize::from(vector)).is_some_and(|&disabled| disabled)
    }

    /// Arbitration: commands of one queue in a turn (`None`: no limit), and weights of the high, medium and low
    /// classes, from 1.
    pub fn arbitration(&self, function: u8) -> (Option<u32>, [u32; 3]) {
        match self.value(function, feature::ARBITRATION) {
            Feature::Arbitration { burst, weights } => {
                ((burst < 7).then(|| 1 << burst), weights.map(|weight| u32::from(weight) + 1))
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Keep Alive Timeout, in milliseconds; 0: none.
    pub fn keep_alive_ms(&self, function: u8) -> u32 {
        self.word(function, feature::KEEP_ALIVE, Select::Current)
    }

    /// The Keep Alive Timeout that a host has connected with.
    pub fn connected(&mut self, function: u8, keep_alive_ms: u32) {
        self.keep(function, feature::KEEP_ALIVE, keep_alive_ms, false, false);
    }

    /// Sanitize without deallocation is taken, and deallocates all the same (NODRM).
    pub fn sanitize_warns(&self) -> bool {
        let current = self.current.get(&feature::SANITIZE_CONFIG).or(self.saved.get(&feature::SANITIZE_CONFIG));
        current.is_some_and(|dword| dword & 1 != 0)
    }

    /// The memory that a host has lent.
    pub fn host_memory(&self, function: u8) -> Option<HostMemoryBuffer> {
        self.at(function).host_memory
    }

    /// The temperature is past a threshold that a host has set.
    pub fn is_hot(&self, function: u8) -> bool {
        let c = self.at(function);
        TEMPERATURE_K >= c.over || TEMPERATURE_K <= c.under
    }

    /// Whether a host wants an event reported (section 5.21.1.11). Errors and the end of a sanitize are always
    /// reported.
    pub fn tells(&self, function: u8, event: Event) -> bool {
        let Feature::AsyncEvents { critical_warnings, namespaces, firmware } =
            self.value(function, feature::ASYNC_EVENTS)
        else {
            unreachable!()
        };
        match event {
            Event::SpareBelowThreshold => critical_warnings & critical_warning::SPARE != 0,
            Event::Temperature => critical_warnings & critical_warning::TEMPERATURE != 0,
            Event::Reliability => {
                let bits = critical_warning::RELIABILITY | critical_warning::READ_ONLY | critical_warning::BACKUP;
                critical_warnings & bits != 0
            }
            Event::NamespaceAttributeChanged => namespaces,
            Event::FirmwareActivation => firmware,
            _ => true,
        }
    }

    /// What outlives a power cut: saved values.
    pub fn to_bytes(&self) -> Vec<u8> {
        let of_controllers = (0u16..).zip(&self.controllers).map(|(number, c)| (number, &c.saved));
        let all: Vec<(u16, u8, u32)> = of_controllers
            .chain([(u16::MAX, &self.saved)])
            .flat_map(|(number, saved)| saved.iter().map(move |(&fid, &dword)| (number, fid, dword)))
            .collect();
        let mut out = (all.len() as u32).to_le_bytes().to_vec();
        for (number, fid, dword) in all {
            out.extend(number.to_le_bytes());
            out.push(fid);
            out.extend(dword.to_le_bytes());
        }
        KIND.seal(&out)
    }

    /// Features as they were saved. What was saved for controllers that are no more is dropped.
    ///
    /// # Errors
    /// When the bytes are not what [`Features::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8], limits: impl IntoIterator<Item = Limits>) -> Result<Features, StateError> {
        let mut fields = KIND.open(bytes)?;
        let mut features = Features::new(limits);
        for _ in 0..fields.u32()? {
            let (number, fid, dword) = (fields.u16()?, fields.u8()?, fields.u32()?);
            if Feature::from_dword(fid, dword).is_none_or(|feature| feature.dword() != dword) {
                return Err(fields.wrong("a value is one that its feature can have"));
            }
            if number == u16::MAX {
                features.saved.insert(fid, dword);
            } else if let Some(c) = features.controllers.get_mut(usize::from(number)) {
                c.saved.insert(fid, dword);
            }
        }
        fields.end()?;
        for number in 0..features.controllers.len() {
            features.look_up(number as u8);
        }
        Ok(features)
    }
}

/// The memory that a host lends, from its descriptor list (section 5.21.1.13): pieces of whole pages, where
/// `page_shift` is that of CC.MPS. Empty entries are left out.
///
/// # Errors
/// Invalid Field in Command for an address that is no multiple of a page or passes 2^64, a piece of 4 GiB and more, and
/// for less memory in all than the host has said or than `min` (in 4 KiB).
pub fn host_memory(buffer: &HostMemoryBuffer, list: &[u8], page_shift: u32, min: u32) -> Result<Vec<Segment>, Status> {
    let entries = list.chunks_exact(HmbDescriptor::SIZE).take(buffer.entries as usize);
    let mut pieces = Vec::new();
    let mut bytes = 0u64;
    for entry in entries {
        let entry = HmbDescriptor::parse(entry)?;
        let len = u64::from(entry.size) << page_shift;
        if entry.address & ((1 << page_shift) - 1) != 0 || entry.address.checked_add(len).is_none() {
            return Err(Status::INVALID_FIELD);
        }
        let len = u32::try_from(len).map_err(|_| Status::INVALID_FIELD)?;
        bytes += u64::from(len);
        if len > 0 {
            pieces.push(Segment { address: entry.address, len, bit_bucket: false });
        }
    }
    if bytes < u64::from(buffer.size) << page_shift || bytes < u64::from(min) << 12 || bytes == 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(pieces)
}
