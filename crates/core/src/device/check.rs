//! Whether the values of a profile can stand together: each room is asked what it needs.

use crate::ftl::LOG_BLOCKS_MIN;
use crate::memory;
use crate::profile::{Arbitration, Downgrade, Mapping, MemoryKind, MemoryProfile, Problem, Profile, ProfileError};
use crate::profile::{QueuePriority, Survives};
use tidewater_base::units::{format_bytes, format_share};
use tidewater_nand::Cell;

/// Blocks in a drive: each costs some bytes of the simulating machine's memory. A real drive of 30 TB has about 2
/// million.
const BLOCKS_MAX: u64 = 1 << 27;
/// Raw bytes of flash in a drive.
const RAW_BYTES_MAX: u64 = 1 << 50;
/// Units in a page of every plane: each has a bit in a word.
const UNITS_OF_ROW_MAX: u64 = 64;

type Checked = Result<(), ProfileError>;

fn conflict(key: &str, text: String) -> Checked {
    Err(ProfileError::new(key, Problem::Conflict(text)))
}

fn require(holds: bool, key: &str, text: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { conflict(key, text()) }
}

/// A size as it was found. What is so small was perhaps meant with a unit.
fn bytes_of(bytes: u64) -> String {
    match bytes {
        1..1_024 => format!("{bytes}B (a number without a unit counts bytes: {bytes}MiB is one with a unit)"),
        _ => format_bytes(bytes),
    }
}

impl Profile {
    /// Checks that the values fit together, and says what promises they make weaker and which settings have no effect.
    ///
    /// # Errors
    /// The first conflict, by the order of the sections; every range is checked again, because a profile can be built
    /// without [`Profile::set`].
    pub fn check(&self) -> Result<Vec<Downgrade>, ProfileError> {
        for (key, value) in self.settings() {
            Profile::generic_with_memories_of(self).set(&key, &value)?;
        }
        self.check_host()?;
        self.check_link()?;
        self.memories.iter().try_for_each(|memory| self.check_memory(memory))?;
        self.check_ftl()?;
        self.check_slc()?;
        self.check_fast()?;
        self.check_window()?;
        self.check_nand()?;
        self.check_capacity()?;
        self.check_serve()?;
        let placement = memory::place(self).map_err(|error| {
            let key = match &error {
                memory::PlacementError::Full { memory, .. } => format!("memory.{memory}.size"),
                memory::PlacementError::NoSize { placed } | memory::PlacementError::TooSmall { placed, .. } => {
                    format!("{}size", key_of(*placed))
                }
                memory::PlacementError::NoSuchMemory { placed, .. } | memory::PlacementError::Lacks { placed, .. } => {
                    format!("{}memory", key_of(*placed))
                }
            };
            ProfileError::new(key, Problem::Placement(error.to_string()))
        })?;
        let mut downgrades: Vec<Downgrade> = placement
            .notes()
            .iter()
            .filter(|note| note.downgrade)
            .map(|note| Downgrade { key: format!("{}memory", key_of(note.placed)), text: note.to_string() })
            .collect();
        if self.host.arbitration == Arbitration::RoundRobin
            && self.host.queue_priorities.iter().any(|priority| *priority != QueuePriority::Medium)
        {
            let text = "priorities have no effect under round-robin arbitration".into();
            downgrades.push(Downgrade { key: "host.queue_priorities".into(), text });
        }
        if self.buffer.read_ahead > 0 && self.buffer.read_policy == "none" {
            let text = "without a read cache ([buffer] read_policy) there is no place for it: it has no effect".into();
            downgrades.push(Downgrade { key: "buffer.read_ahead".into(), text });
        }
        if self.window.flush_buffered && !placement.survives(memory::Use::WriteBuffer) {
            let text = "the write buffer does not outlive a power loss: a flush still ends on flash".into();
            downgrades.push(Downgrade { key: "window.flush_buffered".into(), text });
        }
        if self.flash.suspend && !self.flash.read_priority {
            let text =
                "nothing is suspended where reads do not go first: it has no effect without read_priority".into();
            downgrades.push(Downgrade { key: "flash.suspend".into(), text });
        }
        Ok(downgrades)
    }

    /// A profile on which the settings of `other` can be tried one by one.
    fn generic_with_memories_of(other: &Profile) -> Profile {
        Profile { memories: other.memories.clone(), ..Profile::generic() }
    }

    fn check_host(&self) -> Checked {
        let host = &self.host;
        require(host.queue_priorities.len() <= host.queues as usize, "host.queue_priorities", || {
            format!("{} priorities for {} queues", host.queue_priorities.len(), host.queues)
        })?;
        require(host.transfer_max.is_power_of_two(), "host.transfer_max", || {
            format!(
                "expected 4 KiB times a power of two, as MDTS tells it (NVMe Base 1.4, 5.15.2.2), found {}",
                format_bytes(host.transfer_max.into())
            )
        })?;
        require(host.block_size == 512 || host.block_size == 4096, "host.block_size", || {
            format!("expected 512 or 4096, found {}", host.block_size)
        })
    }

    fn check_link(&self) -> Checked {
        require(self.link.lanes.is_power_of_two(), "link.lanes", || {
            format!("expected 1, 2, 4, 8 or 16, found {}", self.link.lanes)
        })?;
        require(self.link.payload_max.is_power_of_two(), "link.payload_max", || {
            format!("expected a power of two from 128 to 4096, found {}", self.link.payload_max)
        })
    }

    fn check_memory(&self, memory: &MemoryProfile) -> Checked {
        let key = |name: &str| format!("memory.{}.{name}", memory.name);
        let twice = self.memories.iter().filter(|other| other.name == memory.name).count() > 1;
        require(!twice, &key("kind"), || "two memories have this name".into())?;
        require(memory.size > 0, &key("size"), || "a memory without bytes".into())?;
        let possible = match memory.kind {
            MemoryKind::Sram | MemoryKind::Dram => memory.survives != Survives::ByItself,
            MemoryKind::Nvm | MemoryKind::SlcFlash => memory.survives == Survives::ByItself,
            MemoryKind::Host => memory.survives == Survives::Nothing,
        };
        require(possible, &key("survives"), || {
            let expected = match memory.kind {
                MemoryKind::Sram | MemoryKind::Dram => "`nothing` or `by-capacitors`",
                MemoryKind::Nvm | MemoryKind::SlcFlash => "`by-itself`",
                MemoryKind::Host => "`nothing`: the drive cannot know what the host's memory survives",
            };
            format!("expected {expected} for kind `{}`, found `{}`", memory.kind.word(), memory.survives.word())
        })
    }

    fn check_serve(&self) -> Checked {
        let serve = &self.serve;
        for (key, size) in [
            ("serve.cmb_size", serve.cmb_size),
            ("serve.hmb_preferred", serve.hmb_preferred),
            ("serve.hmb_min", serve.hmb_min),
        ] {
            require(size.is_multiple_of(4096), key, || {
                format!("expected a multiple of 4KiB, found {}", bytes_of(size))
            })?;
        }
        let pmr = serve.pmr_size;
        require(pmr == 0 || pmr.is_power_of_two() && pmr >= 4096, "serve.pmr_size", || {
            format!("expected 0 or a power of two from 4KiB on, found {}", bytes_of(pmr))
        })?;
        require(serve.hmb_min <= serve.hmb_preferred, "serve.hmb_min", || {
            format!(
                "{} is more than the {} that serve.hmb_preferred asks for",
                format_bytes(serve.hmb_min),
                format_bytes(serve.hmb_preferred)
            )
        })
    }

    fn check_fast(&self) -> Checked {
        let fast = &self.fast;
        if !fast.is_enabled() {
            return Ok(());
        }
        let (lane, unit) = (fast.size / u64::from(fast.lanes), u64::from(self.ftl.unit_size));
        require(lane.is_power_of_two() && lane * u64::from(fast.lanes) == fast.size, "fast.size", || {
            format!("expected a power of two for each of {} lanes, found {}", fast.lanes, format_bytes(fast.size))
        })?;
        require(lane >= unit, "fast.size", || {
            format!("a ring of {} for each lane can't fill a page of {}", bytes_of(lane), format_bytes(unit))
        })?;
        require(fast.queue_size <= lane, "fast.queue_size", || {
            format!(
                "a queue of {} is larger than the lane's ring of {}",
                format_bytes(fast.queue_size),
                format_bytes(lane)
            )
        })?;
        let pages = fast.log_size / unit;
        require(pages * unit == fast.log_size, "fast.log_size", || {
            format!("expected a multiple of the unit of {}, found {}", format_bytes(unit), bytes_of(fast.log_size))
        })?;
        let reserve = crate::fast::reserve_pages(fast, self.ftl.unit_size);
        require(pages >= 2 * reserve, "fast.log_size", || {
            format!(
                "{} are {pages} pages; at least {} are needed, of which {reserve} are kept for what is in the ring \
                 when the power fails",
                format_bytes(fast.log_size),
                2 * reserve
            )
        })?;
        let survives = self.memory(&fast.memory).map(|memory| memory.survives);
        let needed = crate::fast::energy_needed(self);
        require(survives != Some(Survives::ByCapacitors) || needed <= fast.energy, "fast.energy", || {
            format!(
                "{} J do not last for destaging full rings: {needed:.4} J are needed for {} of them; give more \
                 energy, a smaller ring or a memory that keeps its content by itself",
                fast.energy,
                format_bytes(fast.size * u64::from(fast.functions))
            )
        })
    }

    fn check_window(&self) -> Checked {
        let (window, unit) = (&self.window, u64::from(self.ftl.unit_size));
        if !window.is_enabled() {
            return Ok(());
        }
        require(window.size.is_multiple_of(unit), "window.size", || {
            format!("expected a multiple of the unit of {}, found {}", format_bytes(unit), bytes_of(window.size))
        })?;
        require(unit >= 4096, "ftl.unit_size", || {
            format!("the table of the byte window's dump needs a unit of 4KiB, found {}", format_bytes(unit))
        })?;
        require(self.ftl.mapping == Mapping::Page, "ftl.mapping", || {
            "the byte window's dump needs rows of its own, which only \"page\" has".into()
        })?;
        let survives = self.memory(&window.memory).map(|memory| memory.survives);
        let needed = crate::window::energy_needed(self);
        require(survives != Some(Survives::ByCapacitors) || needed <= window.energy, "window.energy", || {
            format!(
                "{} J do not last for dumping a full buffer: {needed:.4} J are needed for {}; give more energy, a \
                 smaller buffer or a memory that keeps its content by itself",
                window.energy,
                format_bytes(window.size)
            )
        })
    }

    fn check_ftl(&self) -> Checked {
        if let Some(needed) = crate::power::buffer_energy_needed(self) {
            require(needed <= self.buffer.energy, "buffer.energy", || {
                format!(
                    "{} J do not last for dumping a full write buffer of {}: {needed:.4} J are needed; give more \
                     energy, a smaller buffer or a memory that keeps its content by itself",
                    self.buffer.energy,
                    format_bytes(self.buffer.write_size)
                )
            })?;
        }
        let (ftl, host, nand) = (&self.ftl, &self.host, &self.nand);
        let size = |bytes: u32| format_bytes(bytes.into());
        require(ftl.unit_size.is_power_of_two(), "ftl.unit_size", || {
            format!("expected a power of two, found {}", size(ftl.unit_size))
        })?;
        require(nand.page_size.is_power_of_two(), "nand.page_size", || {
            format!("expected a power of two, found {}", size(nand.page_size))
        })?;
        require(ftl.unit_size <= nand.page_size, "ftl.unit_size", || {
            format!("a unit of {} does not fit in a page of {}", size(ftl.unit_size), size(nand.page_size))
        })?;
        let row = u64::from(nand.planes) * u64::from(nand.page_size / ftl.unit_size.max(1));
        require(row <= UNITS_OF_ROW_MAX, "ftl.unit_size", || {
            format!(
                "{row} units of {} in a page of each of {} planes, at most {UNITS_OF_ROW_MAX} can be mapped; use \
                 larger units",
                size(ftl.unit_size),
                nand.planes
            )
        })?;
        require(host.block_size <= ftl.unit_size, "ftl.unit_size", || {
            format!("a logical block of {} does not fit in a unit of {}", size(host.block_size), size(ftl.unit_size))
        })?;
        require(host.transfer_max >= ftl.unit_size, "host.transfer_max", || {
            format!("{} is less than a unit of {}", size(host.transfer_max), size(ftl.unit_size))
        })?;
        let least = LOG_BLOCKS_MIN.max(2 * ftl.log_write_points);
        require(ftl.log_blocks == 0 || ftl.log_blocks >= least, "ftl.log_blocks", || {
            format!(
                "{} are too few: at least {least}, so that half of them can be reclaimed while {} take what is written",
                ftl.log_blocks,
                ftl.log_write_points.max(1)
            )
        })?;
        let is_page_mapped = ftl.mapping == Mapping::Page;
        require(is_page_mapped || !self.fast.is_enabled(), "ftl.mapping", || {
            "the fast side's log needs rows of its own, which only \"page\" has".into()
        })?;
        if ftl.map_memory != "all" {
            require(is_page_mapped, "ftl.map_memory", || {
                "a hybrid mapping keeps its small map at hand: a mapping cache needs mapping \"page\"; leave \"all\""
                    .into()
            })?;
            require(ftl.map_page.is_power_of_two() && ftl.map_page <= ftl.unit_size, "ftl.map_page", || {
                format!(
                    "expected a power of two of at most [ftl] unit_size ({}), found {}",
                    size(ftl.unit_size),
                    size(ftl.map_page)
                )
            })?;
        }
        let floor = ftl.map_floor;
        let lent = self.memory(&ftl.map_memory).is_some_and(|memory| memory.kind == MemoryKind::Host);
        require(!lent || floor == 0 || floor >= ftl.map_page.into(), "ftl.map_floor", || {
            format!("expected 0 or at least a mapping page ({}), found {}", size(ftl.map_page), bytes_of(floor))
        })?;
        let (is_cbm, run) = (self.buffer.write_policy == "cbm", self.buffer.cbm_sequential);
        require(!is_cbm || run >= ftl.unit_size.into(), "buffer.cbm_sequential", || {
            format!("{} are less than a page ({}): every write would be sequential", bytes_of(run), size(ftl.unit_size))
        })?;
        require(ftl.gc_start > ftl.gc_reserve, "ftl.gc_start", || {
            format!(
                "collection must start before only the reserve is left: {} with gc_reserve {}",
                ftl.gc_start, ftl.gc_reserve
            )
        })
    }

    fn check_slc(&self) -> Checked {
        if !self.slc.is_enabled() {
            return Ok(());
        }
        let (ftl, nand) = (&self.ftl, &self.nand);
        require(nand.cell != Cell::Slc, "nand.cell", || {
            "blocks that store one bit in a cell anyway are no faster as an SLC cache".into()
        })?;
        require(ftl.mapping == Mapping::Page, "ftl.mapping", || {
            "an SLC cache needs data that can be moved page by page, which only \"page\" has".into()
        })?;
        require(ftl.gc_stream, "ftl.gc_stream", || {
            "what is folded must not go back to the SLC cache: it needs superblocks of its own (true)".into()
        })?;
        require(crate::ftl::slc_rows(nand) >= 1, "nand.pages_per_block", || {
            format!("{} are less than one word line", nand.pages_per_block)
        })
    }

    fn check_nand(&self) -> Checked {
        let nand = &self.nand;
        require(nand.page_size.is_multiple_of(nand.ecc_codeword), "nand.ecc_codeword", || {
            format!(
                "a code word of {} does not divide a page of {}",
                format_bytes(nand.ecc_codeword.into()),
                format_bytes(nand.page_size.into())
            )
        })?;
        require(nand.rber_worn >= nand.rber_fresh, "nand.rber_worn", || {
            format!("a worn block has fewer errors ({:e}) than a fresh one ({:e})", nand.rber_worn, nand.rber_fresh)
        })?;
        require(nand.rber_worn == 0.0 || nand.rber_fresh > 0.0, "nand.rber_fresh", || {
            format!(
                "0 cannot grow exponentially to {:e} (nand.rber_worn); give a rate above 0, or 0 for both: no errors",
                nand.rber_worn
            )
        })?;
        // The most blocks a plane could get still have to be counted when the capacity decides on them.
        let blocks = u64::from(nand.planes) * u64::from(nand.blocks_per_plane.max(1));
        let blocks = blocks * u64::from(nand.channels) * u64::from(nand.ways) * u64::from(nand.dies_per_way);
        require(blocks <= BLOCKS_MAX, "nand.blocks_per_plane", || {
            format!("an impossible geometry: {blocks} blocks in the drive, at most {BLOCKS_MAX} can be simulated")
        })?;
        let bytes = blocks.checked_mul(u64::from(nand.pages_per_block) * u64::from(nand.page_size));
        require(bytes.is_some_and(|bytes| bytes <= RAW_BYTES_MAX), "nand.pages_per_block", || {
            format!("an impossible geometry: more than {} of flash", format_bytes(RAW_BYTES_MAX))
        })
    }

    fn check_capacity(&self) -> Checked {
        let (nand, ftl, capacity) = (&self.nand, &self.ftl, self.drive.capacity);
        require(capacity.is_multiple_of(ftl.unit_size.into()), "drive.capacity", || {
            format!("{} are not a multiple of the unit of {}", bytes_of(capacity), format_bytes(ftl.unit_size.into()))
        })?;
        let block = u64::from(nand.pages_per_block) * u64::from(nand.page_size);
        if nand.blocks_per_plane == 0 {
            let blocks = (capacity as f64 * (1.0 + ftl.over_provisioning) / block as f64) as u64;
            return require(blocks <= BLOCKS_MAX, "drive.capacity", || {
                format!("{} are {blocks} blocks, at most {BLOCKS_MAX} can be simulated", format_bytes(capacity))
            });
        }
        if ftl.mapping != Mapping::Page {
            return Ok(()); // What it holds back is counted over all dies: `plan` says whether that fits.
        }
        // One superblock open for the host, one for collection, and one to be collected.
        let spares = (f64::from(nand.blocks_per_plane) * ftl.spare_blocks).ceil() as u32;
        let least = ftl.gc_start + 3 + spares + crate::ftl::slc_reserve(self);
        require(nand.blocks_per_plane >= least, "nand.blocks_per_plane", || {
            format!(
                "too few blocks: {} in a plane, but {} spares, gc_start {} and three in use need {least}",
                nand.blocks_per_plane, spares, ftl.gc_start
            )
        })?;
        let good = u64::from(nand.dies()) * u64::from(nand.planes) * u64::from(nand.blocks_per_plane - spares) * block;
        let fits = capacity as f64 * (1.0 + ftl.over_provisioning) <= good as f64;
        require(fits, "drive.capacity", || {
            format!(
                "{} and {} of over-provisioning need more flash than the {} that are left without spares",
                format_bytes(capacity),
                format_share(ftl.over_provisioning),
                format_bytes(good)
            )
        })
    }
}

/// What the keys of a use begin with.
fn key_of(used: memory::Use) -> &'static str {
    match used {
        memory::Use::WriteBuffer => "buffer.write_",
        memory::Use::MapCache => "ftl.map_",
        memory::Use::ReadCache => "buffer.read_",
        memory::Use::FastRing => "fast.",
        memory::Use::IntakeQueue => "fast.queue_",
        memory::Use::BaBuffer => "window.",
    }
}
