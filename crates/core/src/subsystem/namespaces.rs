//! The namespaces of the subsystem, over one device: which there are, where they lie, and who may use them (NVM Express
//! 1.4, sections 5.19, 5.20, 5.23, 6.1, 8.12 and 8.19).
//!
//! A namespace is one contiguous range of the device, so that an address is found by one addition. Ranges begin and end
//! at units of the translation layer: no unit belongs to two namespaces, and deleting one deallocates it in whole.
//!
//! Behind them all lie the logs of the fast side, one for each function: namespaces that its controller reads and
//! never written.

use crate::host::check_range;
use crate::saved::{Kind, StateError};
use tidewater_base::rng::Rng;
use tidewater_wire::nvme::feature::Protection;
use tidewater_wire::nvme::{FormatNvm, NSID_ALL, NamespaceManagement, SecureErase, Status};

/// Namespaces, at most: the highest identifier (NN of Identify Controller).
pub const NAMESPACES_MAX: u32 = 128;
/// Numbers of controllers: `function` is a byte. The last one stands for the subsystem itself.
pub const CONTROLLERS_MAX: usize = 256;

const KIND: Kind = Kind { what: "namespaces", magic: *b"TWNS", version: 1 };
/// Bytes of a block as a power of two, in the order of the LBA formats.
const SHIFTS: [u8; 2] = [9, 12];

/// What the namespaces lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the device.
    pub blocks: u64,
    /// Bytes of such a block as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Bytes of a unit of the translation layer as a power of two: at least 12.
    pub unit_shift: u8,
}

impl Geometry {
    /// Bytes of the device that whole units hold.
    pub const fn bytes(&self) -> u64 {
        self.blocks << self.block_shift >> self.unit_shift << self.unit_shift
    }

    /// Block sizes as powers of two, in the order of LBA formats: what is smaller than a block of the device is not
    /// there.
    pub fn formats(&self) -> &'static [u8] {
        if self.block_shift <= SHIFTS[0] { &SHIFTS } else { &SHIFTS[1..] }
    }

    fn check(&self) -> Result<(), &'static str> {
        match () {
            () if !SHIFTS.contains(&self.block_shift) => Err("blocks of the device have 512 or 4096 bytes"),
            () if !(12..=20).contains(&self.unit_shift) => Err("units of the device have 4 KiB to 1 MiB"),
            () if self.blocks > u64::MAX >> self.block_shift => Err("the device has fewer than 2^64 bytes"),
            () if self.bytes() == 0 => Err("the device has at least one unit"),
            () => Ok(()),
        }
    }
}

/// A set of controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Controllers([u64; CONTROLLERS_MAX / 64]);

impl Controllers {
    /// All of them.
    pub const ALL: Controllers = Controllers([u64::MAX; CONTROLLERS_MAX / 64]);

    /// Whether a controller is in it.
    #[inline]
    pub const fn has(&self, controller: u8) -> bool {
        self.0[controller as usize / 64] >> (controller % 64) & 1 != 0
    }

    fn set(&mut self, controller: u8, member: bool) {
        let bit = 1 << (controller % 64);
        let word = &mut self.0[usize::from(controller / 64)];
        *word = if member { *word | bit } else { *word & !bit };
    }

    /// Its members, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        let set = *self;
        (0..=u8::MAX).filter(move |&controller| set.has(controller))
    }
}

/// Blocks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first one.
    pub first: u64,
    /// How many.
    pub blocks: u64,
}

impl Extent {
    /// Whether any block is in both.
    pub(super) fn overlaps(&self, other: &Extent) -> bool {
        self.first < other.first.saturating_add(other.blocks) && other.first < self.first.saturating_add(self.blocks)
    }
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its identifier, from 1.
    pub nsid: u32,
    /// Its blocks (NSZE).
    pub blocks: u64,
    /// Bytes of such a block as a power of two.
    pub block_shift: u8,
    /// The blocks of the device that it takes: whole units.
    pub extent: Extent,
    /// Several controllers may use it (NMIC).
    pub shared: bool,
    /// Who uses it.
    pub attached: Controllers,
    /// Whether its blocks may change.
    pub protection: Protection,
    /// Unlike that of any namespace of this subsystem, before or after.
    pub generation: u64,
    /// Bytes of a block of the device as a power of two.
    device_shift: u8,
}

impl Namespace {
    /// Whether commands that change blocks are refused (section 8.19).
    #[inline]
    pub fn is_protected(&self) -> bool {
        self.protection != Protection::None
    }

    /// Of its blocks the first that commands may change: of the device's these may change.
    #[inline]
    pub fn writable_blocks(&self, of_device: u64) -> u64 {
        let shift = self.block_shift - self.device_shift;
        (of_device.saturating_sub(self.extent.first) >> shift).min(self.blocks)
    }

    /// The blocks of the device that blocks of it lie on.
    ///
    /// # Errors
    /// LBA Out of Range.
    #[inline]
    pub fn locate(&self, first: u64, blocks: u64) -> Result<Extent, Status> {
        check_range(first, blocks, self.blocks)?;
        let shift = self.block_shift - self.device_shift;
        Ok(Extent { first: self.extent.first + (first << shift), blocks: blocks << shift })
    }

    /// Bytes that it takes of the device (NVMCAP).
    pub const fn capacity(&self) -> u64 {
        self.extent.blocks << self.device_shift
    }
}

/// Identifiers of a namespace that no other one has, here or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identifiers {
    /// Of version 8 (RFC 9562: made in a way of one's own).
    pub uuid: [u8; 16],
    /// Extension identifier and an EUI-64 that is locally administered: Tidewater has no company identifier.
    pub nguid: [u8; 16],
    /// An EUI-64 that is locally administered.
    pub eui64: [u8; 8],
}

/// A UUID of version 8 (RFC 9562) for a thing of this seed.
pub fn uuid(seed: u64, thing: &[u8]) -> [u8; 16] {
    let mut rng = Rng::new(seed, thing);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
    uuid[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
    uuid[6] = uuid[6] & 0x0F | 0x80;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// A namespace to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    /// Its bytes: a multiple of a block.
    pub bytes: u64,
    /// Bytes of a block as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Several controllers may use it.
    pub shared: bool,
}

/// All namespaces of the subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    geometry: Geometry,
    seed: u64,
    generations: u64,
    /// By identifier, from 1.
    list: Vec<Option<Namespace>>,
    /// Logs of the fast side, by function, with the identifiers behind those of `list`. They come with the device, and
    /// nothing of them is saved.
    logs: Vec<Namespace>,
}

impl Namespaces {
    /// A subsystem without namespaces, over a device. `seed` makes their identifiers. Asserts that the geometry is
    /// possible.
    pub fn new(geometry: Geometry, seed: u64) -> Namespaces {
        if let Err(must) = geometry.check() {
            panic!("{must}: {geometry:?}");
        }
        Namespaces { geometry, seed, generations: 0, list: vec![None; NAMESPACES_MAX as usize], logs: Vec::new() }
    }

    /// The same, and the logs of `functions` of the fast side, of `units` logical pages each, which lie one after
    /// another behind what namespaces lie on. The one of a function is attached to its controller.
    pub fn with_logs(self, functions: u8, units: u64) -> Namespaces {
        let Geometry { block_shift, unit_shift, .. } = self.geometry;
        let blocks = units << (unit_shift - block_shift);
        let behind = self.geometry.bytes() >> block_shift;
        let log = |function: u8| {
            let mut attached = Controllers::default();
            attached.set(function, true);
            Namespace {
                nsid: NAMESPACES_MAX + 1 + u32::from(function),
                blocks,
                block_shift,
                extent: Extent { first: behind + u64::from(function) * blocks, blocks },
                shared: false,
                attached,
                // The state that no host changes; here it begins anew with each power cycle.
                protection: Protection::UntilPowerCycle,
                // No namespace that is made ever gets there.
                generation: u64::MAX - u64::from(function),
                device_shift: block_shift,
            }
        };
        Namespaces { logs: (0..functions).map(log).collect(), ..self }
    }

    /// The highest identifier that a namespace may have (NN of Identify Controller).
    pub fn highest(&self) -> u32 {
        NAMESPACES_MAX + self.logs.len() as u32
    }

    /// One namespace that takes everything, attached to every controller. It is shared if there may be several.
    pub fn whole(geometry: Geometry, seed: u64, block_shift: u8, shared: bool) -> Namespaces {
        let mut all = Namespaces::new(geometry, seed);
        let made = all.add(Initial { bytes: geometry.bytes(), block_shift, shared });
        assert!(made.is_ok(), "a device of {geometry:?} has no namespace of 2^{block_shift} byte blocks: {made:?}");
        all
    }

    /// Another namespace, attached to every controller: for drives that come with several.
    ///
    /// # Errors
    /// As for [`Namespaces::create`].
    pub fn add(&mut self, initial: Initial) -> Result<u32, Status> {
        let blocks = initial.bytes >> initial.block_shift;
        let nsid = self.insert(blocks, initial.block_shift, initial.shared)?;
        self.at_mut(nsid)?.attached = Controllers::ALL;
        Ok(nsid)
    }

    /// What they lie on.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn insert(&mut self, blocks: u64, block_shift: u8, shared: bool) -> Result<u32, Status> {
        if !self.geometry.formats().contains(&block_shift) {
            return Err(Status::INVALID_FORMAT);
        }
        let bytes = blocks.checked_mul(1 << block_shift).ok_or(Status::NAMESPACE_INSUFFICIENT_CAPACITY)?;
        let free = self.list.iter().position(Option::is_none).ok_or(Status::NAMESPACE_ID_UNAVAILABLE)?;
        let extent = self.find_room(bytes).ok_or(Status::NAMESPACE_INSUFFICIENT_CAPACITY)?;
        self.generations += 1;
        let nsid = free as u32 + 1;
        self.list[free] = Some(Namespace {
            nsid,
            blocks,
            block_shift,
            extent,
            shared,
            attached: Controllers::default(),
            protection: Protection::None,
            generation: self.generations,
            device_shift: self.geometry.block_shift,
        });
        Ok(nsid)
    }

    /// The first gap between namespaces that holds so many bytes, rounded up to units.
    fn find_room(&self, bytes: u64) -> Option<Extent> {
        let shift = self.geometry.block_shift;
        let blocks = bytes.checked_next_multiple_of(1 << self.geometry.unit_shift)? >> shift;
        let mut taken: Vec<Extent> = self.iter().map(|ns| ns.extent).collect();
        taken.sort_unstable_by_key(|extent| extent.first);
        taken.push(Extent { first: self.geometry.bytes() >> shift, blocks: 0 });
        let mut first = 0;
        for extent in taken {
            if extent.first - first >= blocks {
                return Some(Extent { first, blocks });
            }
            first = extent.first + extent.blocks;
        }
        None
    }

    /// Bytes of the device that no namespace takes (UNVMCAP).
    pub fn unallocated(&self) -> u64 {
        self.geometry.bytes() - self.iter().map(|ns| ns.capacity()).sum::<u64>()
    }

    /// All namespaces that hosts make and delete, by identifier: all but logs.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.list.iter().flatten()
    }

    /// Identifiers of what is attached to a controller, in ascending order.
    pub fn active(&self, controller: u8) -> impl Iterator<Item = u32> {
        self.allocated().filter(move |ns| ns.attached.has(controller)).map(|ns| ns.nsid)
    }

    /// All namespaces with the logs, by identifier.
    pub fn allocated(&self) -> impl Iterator<Item = &Namespace> {
        self.iter().chain(&self.logs)
    }

    /// A namespace that exists.
    ///
    /// # Errors
    /// Invalid Namespace or Format for identifiers that no namespace can have; Invalid Field in Command for those that
    /// none has now (section 6.1).
    pub fn at(&self, nsid: u32) -> Result<&Namespace, Status> {
        let index = nsid.checked_sub(1).filter(|_| nsid <= self.highest()).ok_or(Status::INVALID_NAMESPACE)? as usize;
        match self.list.get(index) {
            Some(place) => place.as_ref().ok_or(Status::INVALID_FIELD),
            None => Ok(&self.logs[index - self.list.len()]),
        }
    }

    /// One that may be changed; a log may not.
    fn at_mut(&mut self, nsid: u32) -> Result<&mut Namespace, Status> {
        self.at(nsid)?;
        match self.list.get_mut(nsid as usize - 1) {
            Some(place) => place.as_mut().ok_or(Status::INVALID_FIELD),
            None => Err(Status::NAMESPACE_WRITE_PROTECTED),
        }
    }

    /// A namespace that is attached to a controller: what its commands may use.
    ///
    /// # Errors
    /// As for [`Namespaces::at`]; one that is not attached is reported as absent (section 6.1).
    #[inline]
    pub fn find(&self, nsid: u32, controller: u8) -> Result<&Namespace, Status> {
        let ns = self.at(nsid)?;
        if ns.attached.has(controller) { Ok(ns) } else { Err(Status::INVALID_FIELD) }
    }

    /// The blocks of the device that a command of a controller addresses.
    ///
    /// # Errors
    /// As for [`Namespaces::find`], and LBA Out of Range.
    #[inline]
    pub fn resolve(&self, nsid: u32, controller: u8, slba: u64, blocks: u64) -> Result<Extent, Status> {
        self.find(nsid, controller)?.locate(slba, blocks)
    }

    /// Identifiers for the outside.
    pub fn identifiers(&self, ns: &Namespace) -> Identifiers {
        let name = |what: &[u8]| [b"namespace ", what, &ns.generation.to_le_bytes()[..]].concat();
        let mut rng = Rng::new(self.seed, &name(b"EUI-64 "));
        let mut eui64 = rng.next_u64().to_be_bytes();
        // Locally administered, and of one thing (IEEE 802, the U/L and I/G bits).
        eui64[0] = eui64[0] & !1 | 2;
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
        nguid[8..].copy_from_slice(&eui64);
        Identifiers { uuid: uuid(self.seed, &name(b"UUID ")), nguid, eui64 }
    }

    /// Namespace Management, create (section 5.20). The new namespace is not attached to any controller.
    ///
    /// # Errors
    /// I/O Command Set Not Supported, Invalid Format, Thin Provisioning Not Supported, Namespace Insufficient Capacity
    /// (no gap is large enough), Namespace Identifier Unavailable, else Invalid Field in Command.
    pub fn create(&mut self, csi: u8, data: &NamespaceManagement) -> Result<u32, Status> {
        if csi != 0 {
            return Err(Status::COMMAND_SET_NOT_SUPPORTED);
        }
        let format = self.geometry.formats().get(usize::from(data.flbas & 0xF)).ok_or(Status::INVALID_FORMAT)?;
        // No metadata, hence no metadata at the end of a block (FLBAS bit 4), and no protection information.
        let no_such = data.flbas >> 4 != 0 || data.dps != 0 || data.anagrpid != 0 || data.nvmsetid != 0;
        if no_such || data.nmic & !1 != 0 || data.nsze == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if data.ncap != data.nsze {
            return Err(Status::THIN_PROVISIONING_NOT_SUPPORTED);
        }
        self.insert(data.nsze, *format, data.nmic & 1 != 0)
    }

    /// Namespace Management, delete (section 5.20): a namespace, or with FFFFFFFFh all of them. What is gone comes
    /// back: its blocks are to be deallocated, and the controllers that it was attached to are notified.
    ///
    /// # Errors
    /// As for [`Namespaces::at`]; Namespace is Write Protected.
    pub fn delete(&mut self, nsid: u32) -> Result<Vec<Namespace>, Status> {
        if nsid != NSID_ALL {
            if self.at(nsid)?.is_protected() {
                return Err(Status::NAMESPACE_WRITE_PROTECTED);
            }
            return Ok(self.list[nsid as usize - 1].take().into_iter().collect());
        }
        if self.iter().any(Namespace::is_protected) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        Ok(self.list.iter_mut().filter_map(Option::take).collect())
    }

    /// Namespace Attachment (section 5.19): attaches a namespace to controllers, or detaches it; all or none. `exists`
    /// says which controllers there are.
    ///
    /// # Errors
    /// As for [`Namespaces::at`]; Controller List Invalid; Namespace Already Attached, Namespace Is Private, Namespace
    /// Not Attached.
    pub fn attach(
        &mut self,
        nsid: u32,
        attach: bool,
        controllers: &[u16],
        exists: impl Fn(u8) -> bool,
    ) -> Result<(), Status> {
        let ns = self.at_mut(nsid)?;
        if controllers.is_empty() {
            return Err(Status::CONTROLLER_LIST_INVALID);
        }
        let mut attached = ns.attached;
        for &id in controllers {
            let known = u8::try_from(id).ok().filter(|&controller| exists(controller));
            let controller = known.ok_or(Status::CONTROLLER_LIST_INVALID)?;
            match (attached.has(controller), attach) {
                (true, true) => return Err(Status::NAMESPACE_ALREADY_ATTACHED),
                (false, false) => return Err(Status::NAMESPACE_NOT_ATTACHED),
                _ => attached.set(controller, attach),
            }
        }
        if attach && !ns.shared && attached.iter().filter(|&controller| exists(controller)).count() > 1 {
            return Err(Status::NAMESPACE_IS_PRIVATE);
        }
        ns.attached = attached;
        Ok(())
    }

    /// A controller that was not there is there now (a fabrics host has connected): shared namespaces are attached to
    /// it, and nothing else, whatever its predecessor of this number had.
    pub fn admit(&mut self, controller: u8) {
        for ns in self.list.iter_mut().flatten() {
            ns.attached.set(controller, ns.shared);
        }
    }

    /// Those that came with a drive of one controller are attached to every controller, and not shared. From now on
    /// there are several: they are shared, too. One that a host has made and kept to one controller stays as it is.
    pub(super) fn share_those_of_all(&mut self) {
        for ns in self.list.iter_mut().flatten() {
            ns.shared |= ns.attached.iter().nth(1).is_some();
        }
    }

    /// Which namespaces Format NVM is about (section 5.23), checked and not yet changed: one, or with FFFFFFFFh all
    /// that are attached to the controller and are no logs.
    ///
    /// # Errors
    /// As for [`Namespaces::find`]; Invalid Format; Namespace is Write Protected; Invalid Field in Command for a
    /// cryptographic erase, which is not supported.
    pub fn check_format(&self, format: &FormatNvm, controller: u8) -> Result<Vec<u32>, Status> {
        let which: Vec<u32> = match format.nsid {
            NSID_ALL => self.iter().filter(|ns| ns.attached.has(controller)).map(|ns| ns.nsid).collect(),
            // One that is not attached may be formatted too.
            nsid => vec![self.at(nsid)?.nsid],
        };
        if usize::from(format.lbaf) >= self.geometry.formats().len() {
            return Err(Status::INVALID_FORMAT);
        }
        if format.secure_erase == SecureErase::Cryptographic {
            return Err(Status::INVALID_FIELD);
        }
        if which.iter().any(|&nsid| self.at(nsid).is_ok_and(Namespace::is_protected)) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        Ok(which)
    }

    /// Gives a namespace another block size, after [`Namespaces::check_format`] and once its blocks are deallocated.
    /// With another block size it has as many blocks as its place holds.
    ///
    /// # Errors
    /// As for [`Namespaces::at`], and Invalid Format.
    pub fn format(&mut self, nsid: u32, lbaf: u8) -> Result<(), Status> {
        let shift = *self.geometry.formats().get(usize::from(lbaf)).ok_or(Status::INVALID_FORMAT)?;
        let ns = self.at_mut(nsid)?;
        if shift != ns.block_shift {
            ns.blocks = ns.capacity() >> shift;
            ns.block_shift = shift;
        }
        Ok(())
    }

    /// Sets the write protection of a namespace (section 8.19.1).
    ///
    /// # Errors
    /// As for [`Namespaces::find`]; Feature Not Changeable while it is protected until a power cycle or for ever;
    /// Invalid Field in Command for protection for ever, which is not offered: a drive that is a file outlives
    /// mistakes.
    pub fn protect(&mut self, nsid: u32, controller: u8, protection: Protection) -> Result<(), Status> {
        let now = self.find(nsid, controller)?.protection;
        if matches!(now, Protection::UntilPowerCycle | Protection::Permanent) {
            return Err(Status::FEATURE_NOT_CHANGEABLE);
        }
        let ns = self.at_mut(nsid)?;
        if protection == Protection::Permanent {
            return Err(Status::INVALID_FIELD);
        }
        ns.protection = protection;
        Ok(())
    }

    /// What a power cycle does: protection until then ends.
    pub fn power_cycle(&mut self) {
        for ns in self.list.iter_mut().flatten() {
            if ns.protection == Protection::UntilPowerCycle {
                ns.protection = Protection::None;
            }
        }
    }

    /// What outlives a power cut.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let geometry = self.geometry;
        out.extend(geometry.blocks.to_le_bytes());
        out.extend([geometry.block_shift, geometry.unit_shift]);
        out.extend(self.seed.to_le_bytes());
        out.extend(self.generations.to_le_bytes());
        out.extend((self.iter().count() as u32).to_le_bytes());
        for ns in self.iter() {
            out.extend(ns.nsid.to_le_bytes());
            out.extend([ns.block_shift, u8::from(ns.shared), ns.protection as u8]);
            for value in [ns.blocks, ns.extent.first, ns.extent.blocks, ns.generation] {
                out.extend(value.to_le_bytes());
            }
            for word in ns.attached.0 {
                out.extend(word.to_le_bytes());
            }
        }
        KIND.seal(&out)
    }

    /// Namespaces as they were saved, over a device that must be as it was. The power cycle in between has ended
    /// protection that lasts until then.
    ///
    /// # Errors
    /// When the bytes are not what [`Namespaces::to_bytes`] gave for this device.
    pub fn from_bytes(bytes: &[u8], geometry: Geometry) -> Result<Namespaces, StateError> {
        let mut fields = KIND.open(bytes)?;
        let found = Geometry { blocks: fields.u64()?, block_shift: fields.u8()?, unit_shift: fields.u8()? };
        if found != geometry || geometry.check().is_err() {
            return Err(fields.wrong("they are of a device of another size or format"));
        }
        let mut all = Namespaces::new(geometry, fields.u64()?);
        all.generations = fields.u64()?;
        for _ in 0..fields.u32()? {
            let nsid = fields.u32()?;
            let (block_shift, shared) = (fields.u8()?, fields.u8()? != 0);
            let protection = Protection::from_code(fields.u8()?.into()).ok_or(fields.wrong("protection is 0 to 3"))?;
            let blocks = fields.u64()?;
            let extent = Extent { first: fields.u64()?, blocks: fields.u64()? };
            let generation = fields.u64()?;
            let mut attached = Controllers::default();
            for word in &mut attached.0 {
                *word = fields.u64()?;
            }
            let ns = Namespace {
                nsid,
                blocks,
                block_shift,
                extent,
                shared,
                attached,
                protection,
                generation,
                device_shift: geometry.block_shift,
            };
            all.check(&ns).map_err(|must| fields.wrong(must))?;
            all.list[nsid as usize - 1] = Some(ns);
        }
        fields.end()?;
        all.power_cycle();
        Ok(all)
    }

    /// Whether a namespace can be beside the others.
    fn check(&self, ns: &Namespace) -> Result<(), &'static str> {
        let geometry = self.geometry;
        let unit = 1u64 << (geometry.unit_shift - geometry.block_shift);
        let end = ns.extent.first.checked_add(ns.extent.blocks);
        let blocks = ns.blocks.checked_mul(1 << ns.block_shift.min(63));
        match () {
            () if self.at(ns.nsid) != Err(Status::INVALID_FIELD) => Err("identifiers are 1 to 128, each once"),
            () if !geometry.formats().contains(&ns.block_shift) => Err("blocks have 512 or 4096 bytes"),
            () if end.is_none_or(|end| end > geometry.bytes() >> geometry.block_shift) => {
                Err("every namespace lies on the device")
            }
            () if !(ns.extent.first | ns.extent.blocks).is_multiple_of(unit) => Err("every namespace has whole units"),
            () if ns.blocks == 0 || blocks.is_none_or(|bytes| bytes > ns.capacity()) => {
                Err("every namespace has as many blocks as its place holds")
            }
            () if self.iter().any(|other| {
                ns.extent.first < other.extent.first + other.extent.blocks && Some(other.extent.first) < end
            }) =>
            {
                Err("no namespaces overlap")
            }
            () if ns.generation == 0 || ns.generation > self.generations => Err("every namespace has a generation"),
            () => Ok(()),
        }
    }
}
