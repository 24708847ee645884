//! Memories and what is placed on them. A use says what it needs of a memory, a kind of memory says what it offers;
//! where they do not meet, the placement is refused, or the promise is made weaker in words.

use crate::profile::{MemoryKind, MemoryProfile, Profile, Survives};
use std::fmt;

/// What a memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Use {
    /// Holds written data until it is on flash.
    WriteBuffer,
    /// Holds copies of data that is on flash.
    ReadCache,
    /// Holds the part of the map that is at hand.
    MapCache,
    /// Holds log bytes until they are destaged.
    FastRing,
    /// Takes log bytes from the link, until they are in the ring.
    IntakeQueue,
    /// Holds logical blocks that the host has pinned into the byte window.
    BaBuffer,
}

impl Use {
    /// All uses.
    pub const ALL: [Use; 6] =
        [Use::WriteBuffer, Use::ReadCache, Use::MapCache, Use::FastRing, Use::IntakeQueue, Use::BaBuffer];

    /// Whether it goes over the link unit by unit where its memory is the host's. Others are modelled by a latency and
    /// a bandwidth there.
    pub const fn is_carried(self) -> bool {
        matches!(self, Use::WriteBuffer | Use::ReadCache | Use::MapCache)
    }

    /// What it needs of its memory.
    pub const fn needs(self) -> Needs {
        match self {
            Use::WriteBuffer => Needs {
                survives: Need::Wanted(
                    "writes not yet flushed are lost on power failure, as on any drive with a volatile write cache",
                ),
                trusted: Need::Wanted(
                    "the host can change buffered data or reclaim its memory: acknowledged writes not yet flushed are \
                     then lost or altered, which NVM Express 1.4, 8.9, forbids",
                ),
                byte_addressable: Need::Must("parts of a page are written into it"),
                rewritable: Need::Must("data that is written again replaces what is buffered"),
                host_mappable: Need::No,
            },
            Use::ReadCache => Needs {
                survives: Need::No,
                trusted: Need::Wanted(
                    "the host can change cached data or reclaim its memory: every hit is verified, and the cache can \
                     disappear at any time (no data is lost)",
                ),
                byte_addressable: Need::Must("parts of a page are read from it"),
                rewritable: Need::Must("entries are replaced one by one"),
                host_mappable: Need::No,
            },
            Use::MapCache => Needs {
                survives: Need::No,
                trusted: Need::Wanted(
                    "the host can change mapping entries or reclaim its memory: every entry is verified, and read from \
                     flash again if it is lost (no data is lost)",
                ),
                byte_addressable: Need::Must("an entry is a few bytes"),
                rewritable: Need::Must("entries change with every write"),
                host_mappable: Need::No,
            },
            Use::FastRing => Needs {
                survives: Need::Wanted(
                    "credited bytes not yet destaged are lost on power failure: credit only means that the drive holds \
                     them in memory",
                ),
                trusted: Need::Wanted(
                    "the host can change log bytes or reclaim their memory before they are destaged: credited bytes \
                     may be lost or altered",
                ),
                byte_addressable: Need::Must("log bytes come in any size"),
                rewritable: Need::Must("a ring is written again and again"),
                host_mappable: Need::No,
            },
            Use::IntakeQueue => Needs {
                survives: Need::No,
                trusted: Need::Must("bytes that are on their way to the ring must not change"),
                byte_addressable: Need::Must("log bytes come in any size"),
                rewritable: Need::Must("a queue is written again and again"),
                host_mappable: Need::Must("the host stores into it through a BAR"),
            },
            Use::BaBuffer => Needs {
                survives: Need::Wanted(
                    "bytes stored into pinned blocks and not yet flushed are lost on power failure: a sync only means \
                     that the drive holds them in memory",
                ),
                trusted: Need::Must("pinned blocks exist nowhere else in their newest form"),
                byte_addressable: Need::Must("stores come in any size"),
                rewritable: Need::Must("bytes are stored over others"),
                host_mappable: Need::Must("the host stores into it through a BAR"),
            },
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Use::WriteBuffer => "write buffer",
            Use::ReadCache => "read cache",
            Use::MapCache => "mapping cache",
            Use::FastRing => "fast-side ring",
            Use::IntakeQueue => "intake queue",
            Use::BaBuffer => "BA-buffer",
        })
    }
}

/// How much a use depends on a property of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It makes no difference.
    No,
    /// Without it a promise gets weaker: to what, in words.
    Wanted(&'static str),
    /// It cannot do without: why.
    Must(&'static str),
}

/// What a use needs, property by property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Keeps its content when the power is lost.
    pub survives: Need,
    /// Only the drive can change it, and it cannot be taken away.
    pub trusted: Need,
    /// Any few bytes can be read and written.
    pub byte_addressable: Need,
    /// Can be written again without an erase.
    pub rewritable: Need,
    /// The drive can offer it to the host in a BAR.
    pub host_mappable: Need,
}

/// What a memory offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Keeps its content when the power is lost.
    pub survives: bool,
    /// Only the drive can change it, and it cannot be taken away.
    pub trusted: bool,
    /// Any few bytes can be read and written.
    pub byte_addressable: bool,
    /// Can be written again without an erase.
    pub rewritable: bool,
    /// The drive can offer it to the host in a BAR.
    pub host_mappable: bool,
}

impl MemoryProfile {
    /// What the memory offers a use.
    pub fn offers(&self) -> Offers {
        let (host, flash) = (self.kind == MemoryKind::Host, self.kind == MemoryKind::SlcFlash);
        Offers {
            survives: self.survives != Survives::Nothing,
            trusted: !host,
            byte_addressable: !flash,
            rewritable: !flash,
            host_mappable: !host && !flash,
        }
    }
}

/// A use on its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The memory: its latencies, bandwidth, and what it survives.
    pub memory: MemoryProfile,
    /// Bytes of it that the use has.
    pub size: u64,
}

/// Something a reader of the results should know about a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The use it is about.
    pub placed: Use,
    /// Whether a promise is weaker than the use could give.
    pub downgrade: bool,
    /// In words.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.placed, self.text)
    }
}

/// What a memory is that keeps its content without power.
const SAFE: &str = "safe from power loss";

/// Which use lives where, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    write_buffer: Option<Placed>,
    read_cache: Option<Placed>,
    map_cache: Option<Placed>,
    fast_ring: Option<Placed>,
    intake_queue: Option<Placed>,
    ba_buffer: Option<Placed>,
    notes: Vec<Note>,
}

impl Placement {
    /// Where a use lives. `None`: the drive does without. The mapping cache has no place where the whole map is at
    /// hand; [`Placement::notes`] says so.
    pub fn of(&self, used: Use) -> Option<&Placed> {
        match used {
            Use::WriteBuffer => self.write_buffer.as_ref(),
            Use::ReadCache => self.read_cache.as_ref(),
            Use::MapCache => self.map_cache.as_ref(),
            Use::FastRing => self.fast_ring.as_ref(),
            Use::IntakeQueue => self.intake_queue.as_ref(),
            Use::BaBuffer => self.ba_buffer.as_ref(),
        }
    }

    /// Whether what the use holds is still there after a power cut. False for a use that is not placed.
    pub fn survives(&self, used: Use) -> bool {
        self.of(used).is_some_and(|placed| placed.memory.offers().survives)
    }

    /// What a reader of the results should know.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// [`Placement::notes`] of a drive whose write buffer's payload is kept in ordinary memory.
    pub(crate) fn notes_of_volatile_buffer(&self) -> Vec<Note> {
        let mut notes = self.notes.clone();
        if self.survives(Use::WriteBuffer) {
            notes.retain(|note| note.placed != Use::WriteBuffer || note.downgrade);
            let text = "its payload is kept in ordinary memory: what it holds is lost with power, whatever [memory] \
                        says; a flush writes it to flash"
                .into();
            notes.push(Note { placed: Use::WriteBuffer, downgrade: true, text });
        }
        notes
    }
}

/// Why a use cannot live where the profile puts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The profile has no such memory.
    NoSuchMemory {
        /// The use.
        placed: Use,
        /// The memory it names.
        memory: String,
        /// The memories there are.
        known: Vec<String>,
    },
    /// A use of no size.
    NoSize {
        /// The use.
        placed: Use,
    },
    /// A use that cannot hold a single page.
    TooSmall {
        /// The use.
        placed: Use,
        /// Bytes it has.
        size: u64,
        /// The least that it needs, and the key that this follows from.
        least: (u64, &'static str),
    },
    /// The uses of a memory need more than it has.
    Full {
        /// The memory.
        memory: String,
        /// Bytes it has.
        size: u64,
        /// The uses placed on it, with the bytes of each.
        uses: Vec<(Use, u64)>,
    },
    /// The memory lacks what the use cannot do without.
    Lacks {
        /// The use.
        placed: Use,
        /// The memory.
        memory: String,
        /// Its kind.
        kind: MemoryKind,
        /// What it lacks.
        property: &'static str,
        /// Why the use needs it.
        why: &'static str,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use tidewater_base::units::format_bytes;
        match self {
            PlacementError::NoSuchMemory { placed, memory, known } => {
                write!(f, "the {placed} is placed on `{memory}`, but there is no [memory.{memory}] (there are: ")?;
                match known.as_slice() {
                    [] => f.write_str("none)"),
                    known => write!(f, "{})", known.join(", ")),
                }
            }
            PlacementError::NoSize { placed: Use::MapCache } => {
                write!(f, "no room is left for the mapping cache in its memory; make that larger, or choose another")
            }
            PlacementError::NoSize { placed } => {
                write!(f, "the {placed} has a policy but no bytes; give it a size, or the policy `none`")
            }
            PlacementError::TooSmall { placed, size, least: (least, key) } => {
                write!(
                    f,
                    "{} are less than the {} that the {placed} needs to hold anything ([ftl] {key})",
                    format_bytes(*size),
                    format_bytes(*least)
                )?;
                match size {
                    // A number written without its unit.
                    0..1_024 => write!(f, "; give the size its unit, as in {size}MiB: a number alone counts bytes"),
                    _ => write!(f, "; give it more, or choose to do without one"),
                }
            }
            PlacementError::Full { memory, size, uses } => {
                let needed = format_bytes(uses.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(*size)));
                let list: Vec<_> =
                    uses.iter().map(|(placed, size)| format!("{placed} {}", format_bytes(*size))).collect();
                write!(
                    f,
                    "[memory.{memory}] has {}, but what is placed on it needs {needed}: {}; give it more, as in \
                     --set memory.{memory}.size={needed}, or place less there",
                    format_bytes(*size),
                    list.join(", ")
                )
            }
            PlacementError::Lacks { placed, memory, kind, property, why } => write!(
                f,
                "the {placed} needs a memory that is {property} ({why}), which [memory.{memory}] of kind `{}` is not",
                kind.word()
            ),
        }
    }
}

impl std::error::Error for PlacementError {}

/// Places every use of a profile on its memory.
///
/// # Errors
/// When a memory is missing or too small, or lacks what a use cannot do without. What only makes a promise weaker is a
/// [`Note`].
pub fn place(profile: &Profile) -> Result<Placement, PlacementError> {
    let buffer = &profile.buffer;
    let mut notes = Vec::new();
    let write_buffer = place_one(
        profile,
        Use::WriteBuffer,
        &buffer.write_policy,
        &buffer.write_memory,
        buffer.write_size,
        &mut notes,
    )?;
    let read_cache =
        place_one(profile, Use::ReadCache, &buffer.read_policy, &buffer.read_memory, buffer.read_size, &mut notes)?;
    let fast = &profile.fast;
    let functions = u64::from(fast.functions);
    let (policy, lanes) = (if fast.is_enabled() { "ring" } else { "none" }, functions * u64::from(fast.lanes));
    let ring_size = fast.size.saturating_mul(functions);
    let fast_ring = place_one(profile, Use::FastRing, policy, &fast.memory, ring_size, &mut notes)?;
    let queues_size = fast.queue_size.saturating_mul(lanes);
    let intake_queue = place_one(profile, Use::IntakeQueue, policy, &fast.queue_memory, queues_size, &mut notes)?;
    let window = &profile.window;
    let policy = if window.is_enabled() { "window" } else { "none" };
    let ba_buffer = place_one(profile, Use::BaBuffer, policy, &window.memory, window.size, &mut notes)?;
    let ftl = &profile.ftl;
    let (policy, whole) = if ftl.map_memory == "all" { ("none", true) } else { ("map", false) };
    let others = [
        (Use::WriteBuffer, &write_buffer),
        (Use::ReadCache, &read_cache),
        (Use::FastRing, &fast_ring),
        (Use::IntakeQueue, &intake_queue),
        (Use::BaBuffer, &ba_buffer),
    ];
    let size = match (ftl.map_size, profile.memory(&ftl.map_memory)) {
        // What the other uses of its memory leave.
        (0, Some(memory)) => {
            let placed = others.iter().filter_map(|(_, placed)| placed.as_ref());
            let used = placed.filter(|p| p.memory.name == memory.name).map(|p| p.size);
            memory.size.saturating_sub(used.fold(0, u64::saturating_add))
        }
        (size, _) => size,
    };
    let map_cache = place_one(profile, Use::MapCache, policy, &ftl.map_memory, size, &mut notes)?;
    let (page, map_page) = ((ftl.unit_size.into(), "unit_size"), (u64::from(ftl.map_page), "map_page"));
    for (used, given, least) in [
        (Use::WriteBuffer, &write_buffer, page),
        (Use::ReadCache, &read_cache, page),
        (Use::MapCache, &map_cache, map_page),
    ] {
        if let Some(Placed { size, .. }) = given
            && *size < least.0
        {
            return Err(PlacementError::TooSmall { placed: used, size: *size, least });
        }
    }
    if whole {
        notes.push(Note {
            placed: Use::MapCache,
            downgrade: false,
            text: "the whole mapping table is in memory; a look-up takes no memory of the profile and no time".into(),
        });
    }
    for memory in &profile.memories {
        let uses: Vec<(Use, u64)> = [
            (Use::WriteBuffer, &write_buffer),
            (Use::ReadCache, &read_cache),
            (Use::MapCache, &map_cache),
            (Use::FastRing, &fast_ring),
            (Use::IntakeQueue, &intake_queue),
            (Use::BaBuffer, &ba_buffer),
        ]
        .into_iter()
        .filter_map(|(used, placed)| Some((used, placed.as_ref().filter(|p| p.memory.name == memory.name)?.size)))
        .collect();
        let needed = uses.iter().try_fold(0u64, |sum, (_, size)| sum.checked_add(*size));
        if needed.is_none_or(|needed| needed > memory.size) {
            return Err(PlacementError::Full { memory: memory.name.clone(), size: memory.size, uses });
        }
    }
    Ok(Placement { write_buffer, read_cache, map_cache, fast_ring, intake_queue, ba_buffer, notes })
}

fn place_one(
    profile: &Profile,
    placed: Use,
    policy: &str,
    name: &str,
    size: u64,
    notes: &mut Vec<Note>,
) -> Result<Option<Placed>, PlacementError> {
    // A name is checked where nothing is placed, too. It may be that of a default memory which the profile has done
    // away with.
    let is_default = |name: &str| placed == Use::MapCache || Profile::generic().memory(name).is_some();
    let memory = match profile.memory(name) {
        Some(memory) => memory,
        None if policy == "none" && is_default(name) => return Ok(None),
        None => {
            let known = profile.memories.iter().map(|memory| memory.name.clone()).collect();
            return Err(PlacementError::NoSuchMemory { placed, memory: name.into(), known });
        }
    };
    if policy == "none" {
        return Ok(None);
    }
    if size == 0 {
        return Err(PlacementError::NoSize { placed });
    }
    let (needs, offers) = (placed.needs(), memory.offers());
    for (need, offered, property) in [
        (needs.byte_addressable, offers.byte_addressable, "byte-addressable"),
        (needs.rewritable, offers.rewritable, "rewritable in place"),
        (needs.host_mappable, offers.host_mappable, "mappable by the host"),
        (needs.trusted, offers.trusted, "trusted"),
        (needs.survives, offers.survives, SAFE),
    ] {
        match need {
            Need::Must(why) if !offered => {
                return Err(PlacementError::Lacks { placed, memory: name.into(), kind: memory.kind, property, why });
            }
            // Such a buffer makes no promise: see below.
            Need::Wanted(_) if placed == Use::WriteBuffer && memory.kind == MemoryKind::Host => {}
            Need::Wanted(text) if !offered => {
                let is = if property == SAFE { "volatile".to_owned() } else { format!("not {property}") };
                let text = format!("in [memory.{name}], which is {is}: {text}");
                notes.push(Note { placed, downgrade: true, text });
            }
            _ => {}
        }
    }
    if matches!(placed, Use::WriteBuffer | Use::FastRing | Use::BaBuffer) && offers.survives {
        let how =
            if memory.survives == Survives::ByCapacitors { "capacitors write it out" } else { "it keeps its content" };
        let what = match placed {
            Use::FastRing => "credited bytes",
            Use::BaBuffer => "synced bytes",
            _ => "acknowledged writes",
        };
        let text = format!("in [memory.{name}]: {what} survive a power cut ({how})");
        notes.push(Note { placed, downgrade: false, text });
    }
    if placed == Use::WriteBuffer && memory.kind == MemoryKind::Host {
        let text = format!("in [memory.{name}], the host's memory: a write is acknowledged when it is on flash");
        notes.push(Note { placed, downgrade: false, text });
    }
    if memory.kind == MemoryKind::Host {
        let text = if placed.is_carried() {
            format!(
                "[memory.{name}] exists only while the host lends it; until then the drive runs without it. The drive \
                 keeps a directory of its valid units in memory of its own, which no [memory] is charged for"
            )
        } else {
            format!(
                "[memory.{name}] is assumed to be always there, and modelled by its latency and bandwidth and those \
                 of the link: this traffic does not compete with other traffic"
            )
        };
        notes.push(Note { placed, downgrade: false, text });
    }
    Ok(Some(Placed { memory: memory.clone(), size }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(&str, &str)]) -> Result<Placement, PlacementError> {
        let mut profile = Profile::generic();
        for (key, value) in settings {
            profile.set(key, value).unwrap();
        }
        place(&profile)
    }

    #[test]
    fn a_write_buffer_in_dram_is_a_volatile_write_cache_and_says_so() {
        let placement = with(&[]).unwrap();
        let placed = placement.of(Use::WriteBuffer).unwrap();
        assert_eq!((placed.memory.kind, placed.size), (MemoryKind::Dram, 16 << 20));
        assert!(!placement.survives(Use::WriteBuffer));
        assert!(placement.of(Use::ReadCache).is_none());
        let note = placement.notes().iter().find(|note| note.downgrade).unwrap();
        assert!(note.to_string().contains("writes not yet flushed are lost on power failure"), "{note}");
    }

    #[test]
    fn capacitors_or_nvm_keep_the_promise() {
        let capacitors = with(&[("memory.dram.survives", "by-capacitors")]).unwrap();
        assert!(capacitors.survives(Use::WriteBuffer));
        assert!(capacitors.notes().iter().all(|note| !note.downgrade));
        let nvm =
            with(&[("memory.nvm.kind", "nvm"), ("memory.nvm.size", "16MiB"), ("buffer.write_memory", "nvm")]).unwrap();
        assert!(nvm.survives(Use::WriteBuffer));
        assert!(nvm.notes().iter().any(|note| note.text.contains("acknowledged writes survive")));
    }

    #[test]
    fn host_memory_weakens_what_is_promised() {
        let host = [("memory.hmb.kind", "host"), ("memory.hmb.size", "64MiB"), ("buffer.write_memory", "hmb")];
        let placement = with(&host).unwrap();
        let notes: Vec<_> = placement.notes().iter().filter(|note| note.placed == Use::WriteBuffer).collect();
        assert!(notes.iter().all(|note| !note.downgrade), "no promise depends on it: {notes:?}");
        assert!(notes[0].text.contains("acknowledged when it is on flash"), "{notes:?}");
        let host = [
            ("memory.hmb.kind", "host"),
            ("memory.hmb.size", "64MiB"),
            ("buffer.read_policy", "lru"),
            ("buffer.read_memory", "hmb"),
        ];
        let placement = with(&host).unwrap();
        let note = placement.notes().iter().find(|note| note.placed == Use::ReadCache && note.downgrade).unwrap();
        assert!(note.text.contains("every hit is verified"), "{note}");
    }

    #[test]
    fn flash_is_refused_where_bytes_are_rewritten() {
        let slc = [("memory.slc.kind", "slc-flash"), ("memory.slc.size", "1GiB"), ("buffer.write_memory", "slc")];
        let error = with(&slc).unwrap_err();
        assert!(matches!(error, PlacementError::Lacks { property: "byte-addressable", .. }), "{error}");
        assert!(error.to_string().contains("of kind `slc-flash` is not"));
    }

    #[test]
    fn a_memory_cannot_be_over_full_or_missing() {
        let error = with(&[("memory.dram.size", "24MiB"), ("buffer.read_policy", "lru")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "[memory.dram] has 24MiB, but what is placed on it needs 32MiB: write buffer 16MiB, read cache 16MiB; give \
             it \
             more, as in --set memory.dram.size=32MiB, or place less there"
        );
        let error = with(&[("buffer.write_memory", "nvm")]).unwrap_err();
        assert!(error.to_string().ends_with("there is no [memory.nvm] (there are: dram, sram)"), "{error}");
        assert!(matches!(with(&[("buffer.write_size", "0")]), Err(PlacementError::NoSize { .. })));
        assert!(with(&[("buffer.write_size", "0"), ("buffer.write_policy", "none")]).is_ok());
    }

    #[test]
    fn what_cannot_hold_a_page_is_refused_and_not_left_out_in_silence() {
        let said = |settings: &[(&str, &str)]| with(settings).unwrap_err().to_string();
        assert_eq!(
            said(&[("buffer.write_size", "16")]),
            "16B are less than the 4KiB that the write buffer needs to hold anything ([ftl] unit_size); give the size \
             its unit, as in 16MiB: a number alone counts bytes"
        );
        let read = said(&[("buffer.read_policy", "lru"), ("buffer.read_size", "2KiB")]);
        assert!(read.starts_with("2KiB are less than the 4KiB that the read cache needs"), "{read}");
        assert!(read.ends_with("; give it more, or choose to do without one"), "{read}");
        let map = said(&[("ftl.map_memory", "sram"), ("ftl.map_size", "64")]);
        assert!(map.contains("the mapping cache needs") && map.contains("[ftl] map_page"), "{map}");
        for size in ["0", "4KiB"] {
            assert!(with(&[("ftl.map_memory", "sram"), ("ftl.map_size", size)]).is_ok(), "{size}");
        }
        assert!(with(&[("buffer.write_size", "4KiB")]).is_ok());
        assert!(with(&[("buffer.write_size", "16"), ("buffer.write_policy", "none")]).is_ok());
    }

    #[test]
    fn what_is_not_used_may_be_missing() {
        let placement = with(&[("buffer.write_policy", "none"), ("memory.dram.size", "0")]).unwrap();
        assert!(Use::ALL.iter().all(|used| placement.of(*used).is_none() && !placement.survives(*used)));
    }
}
