//! Making an image, and bringing a drive back from one.

use super::ImageError;
use super::format::{self, BLOCK_RECORD, BlockRecord, FACTORY_BAD, Geometry, HEADER, Slot, Superblock, Unreadable};
use super::restore::Restored;
use super::storage::{FileStorage, MemoryStorage, NewFile, Storage, random_bytes};
use super::store::{Image, ImageOptions};
use std::io;
use std::path::Path;
use tidewater_core::device::{reserved, resolve};
use tidewater_core::ftl::{Plan, Precondition};
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Identity, Options, Remains};
use tidewater_nand::{Medium, Nand, Recorder};

/// Bytes of metadata that an image has room for.
pub const METADATA_MAX: u32 = 256 << 10;

/// Keys of a profile that say where things are on flash: an image is only read with those that it was made with.
const SHAPE: [&str; 14] = [
    "nand.channels",
    "nand.ways",
    "nand.dies_per_way",
    "nand.planes",
    "nand.pages_per_block",
    "nand.page_size",
    "ftl.unit_size",
    "ftl.mapping",
    "host.block_size",
    "fast.size",
    "fast.functions",
    "fast.lanes",
    "fast.log_size",
    "window.size",
];

/// Where an image is.
pub enum Target<'a> {
    /// A file, or a block device.
    Path(&'a Path),
    /// Memory that goes with the process.
    Memory,
    /// Something else, under a name for messages.
    Storage(Box<dyn Storage>, &'a str),
}

/// A new drive and its image.
pub struct Made<M: Medium = Nand> {
    /// The image.
    pub image: Image,
    /// The drive.
    pub device: Device<Recorder<M>>,
}

/// An image of a drive, and what is left of the drive: [`Device::power_on`] with `profile` brings it back.
pub struct Opened<M: Medium = Nand> {
    /// The image.
    pub image: Image,
    /// The flash.
    pub remains: Remains<Recorder<M>>,
    /// The profile that was given, else that of the image.
    pub profile: Profile,
    /// The highest version on flash that a command wrote: those that are given from now on must be higher.
    pub version_max: u64,
    /// What was found.
    pub report: OpenReport,
}

/// What opening an image found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The version of its format; it is raised when a memory is given a place for the first time.
    pub version: u32,
    /// Pages that are there.
    pub pages: u64,
    /// Pages whose payload was looked at, because no sync was known to have made them safe.
    pub verified: u64,
    /// Of these, pages that had not been written whole: they are torn, as a loss of power leaves them.
    pub torn: u64,
    /// Entries of the byte window of which something is missing: they are let go of, and blocks are what they were.
    pub window_lost: u32,
}

fn io_error(name: &str, what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    let name = name.to_owned();
    move |error| ImageError::Io { name, what, error }
}

impl Image {
    /// Makes a new drive and its image; the flash is `wrap` of the production one, for faults.
    ///
    /// Under a path nothing is seen before the image is whole. A block device must begin with zeroes.
    ///
    /// # Errors
    /// [`ImageError`]; then there is nothing, or an unfinished file that the next attempt takes over.
    pub fn create<M: Medium>(
        target: Target<'_>,
        profile: &Profile,
        options: Options,
        image_options: ImageOptions,
        wrap: impl FnOnce(Nand) -> M,
    ) -> Result<Made<M>, ImageError> {
        if options.precondition != Precondition::Fresh {
            let why = "a drive that is stored starts fresh: what it has been through is what it goes through".into();
            return Err(ImageError::Unsupported { why });
        }
        if profile.ftl.map_memory != "all" {
            let why = "an image does not keep mapping pages: set [ftl] map_memory = \"all\"".into();
            return Err(ImageError::Unsupported { why });
        }
        let options = Options { stamps: true, payload: true, ..options };
        let device = Device::over(profile, options, |nand| Recorder::new(wrap(nand)))?;
        let (new, storage, name): (Option<NewFile>, Box<dyn Storage>, String) = match target {
            Target::Memory => (None, Box::new(MemoryStorage::default()), "memory".into()),
            Target::Storage(storage, name) => (None, storage, name.into()),
            Target::Path(path) if is_device(path) => {
                let storage = FileStorage::open(path)?;
                let name = storage.name().to_owned();
                let mut begin = vec![0; HEADER];
                storage.read_at(0, &mut begin).map_err(io_error(&name, "read it"))?;
                if begin.iter().any(|&byte| byte != 0) {
                    return Err(ImageError::Exists { name });
                }
                (None, Box::new(storage), name)
            }
            Target::Path(path) => {
                let (new, storage) = NewFile::begin(path)?;
                let name = storage.name().to_owned();
                (Some(new), Box::new(storage), name)
            }
        };
        let text = profile.stored();
        let mut image = Image::lay_out(storage, &name, &text, &device, image_options)?;
        image.fill(&text, &device)?;
        image.open_logs(&profile.fast)?;
        image.open_window(profile)?;
        if let Some(new) = new {
            new.finish()?;
        }
        // Nothing but wear is known of a fresh drive, and that is in the image.
        device.medium().take_changes(&mut tidewater_nand::Changes::default());
        Ok(Made { image, device })
    }

    fn lay_out<M: Medium>(
        mut storage: Box<dyn Storage>,
        name: &str,
        text: &str,
        device: &Device<M>,
        options: ImageOptions,
    ) -> Result<Image, ImageError> {
        let Identity { options: made, plan, unit_size } = device.identity();
        let geometry = Geometry::new(&device.profile().nand, unit_size, text.len() as u32, METADATA_MAX);
        if !geometry.is_sound() {
            let why = format!("a drive of this shape can't be stored: {geometry:?}");
            return Err(ImageError::Unsupported { why });
        }
        let superblock = Superblock {
            version: format::VERSION,
            uuid: random_bytes().map_err(io_error(name, "draw a name for it"))?,
            seed: made.seed,
            capacity: made.capacity,
            units: plan.units,
            superblocks_per_die: plan.superblocks_per_die,
            premap: made.premap,
            volatile_buffer: made.volatile_buffer,
            geometry,
            text_sum: crc32c::crc32c(text.as_bytes()),
        };
        match storage.set_size(geometry.memories_at()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                let found = storage.size().map_err(io_error(name, "measure it"))?;
                return Err(ImageError::TooSmall { name: name.into(), found, needed: geometry.memories_at() });
            }
            Err(error) => return Err(io_error(name, "make room for it")(error)),
        }
        Image::over(storage, name.to_owned(), superblock, options)
    }

    /// Writes all that an image begins with, the superblock last.
    fn fill<M: Medium>(&mut self, text: &str, device: &Device<M>) -> Result<(), ImageError> {
        let name = self.name.clone();
        let write = |_| io_error(&name, "write it")(io::Error::other("the storage refused a write or a sync"));
        for block in 0..self.geometry.blocks() {
            let at = self.geometry.block_at(block);
            let (is_bad, erases) = (device.medium().is_factory_bad(at), device.medium().erase_count(at));
            if is_bad || erases > 0 {
                let flags = if is_bad { FACTORY_BAD } else { 0 };
                self.set_block(at, Some(erases), flags).map_err(write)?;
            }
        }
        self.storage.write_at(HEADER as u64, text.as_bytes()).map_err(io_error(&name, "write it"))?;
        self.write_state(0).map_err(write)?;
        self.sync().map_err(write)?;
        let bytes = self.superblock.encode();
        self.storage.write_at(0, &bytes).map_err(io_error(&name, "write it"))?;
        self.sync().map_err(write)
    }

    /// Whether there is something at `path` to be opened, whatever it is: anything but a block device that begins with
    /// zeroes, on which a drive can be made.
    ///
    /// # Errors
    /// [`ImageError`], for a block device that can't be read.
    pub fn is_there(path: &Path) -> Result<bool, ImageError> {
        // A dangling link is a mistake: opening it says so.
        if !is_device(path) {
            return Ok(path.symlink_metadata().is_ok());
        }
        let storage = FileStorage::open(path)?;
        let mut begin = vec![0; HEADER];
        storage.read_at(0, &mut begin).map_err(io_error(storage.name(), "read it"))?;
        Ok(begin.iter().any(|&byte| byte != 0))
    }

    /// Takes a drive away that was made and not used: the file, or the beginning of a block device, which is then empty
    /// again.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn remove(path: &Path) -> Result<(), ImageError> {
        let name = path.display().to_string();
        if !is_device(path) {
            return std::fs::remove_file(path).map_err(io_error(&name, "remove it"));
        }
        let mut storage = FileStorage::open(path)?;
        storage.write_at(0, &[0; HEADER]).map_err(io_error(&name, "write it"))?;
        storage.begin_sync()().map_err(io_error(&name, "sync it"))
    }

    /// The profile that the drive in the image at `path` was made with.
    ///
    /// # Errors
    /// [`ImageError`], whatever the file holds.
    pub fn profile(path: &Path) -> Result<Profile, ImageError> {
        let storage = FileStorage::open(path)?;
        let superblock = read_superblock(&storage, storage.name())?;
        read_profile(&storage, storage.name(), &superblock)
    }

    /// Opens the image of a drive. `given`: the profile to run it with, which must have the shape that it was made
    /// with.
    ///
    /// # Errors
    /// [`ImageError`], whatever the file holds.
    pub fn open<M: Medium>(
        target: Target<'_>,
        given: Option<&Profile>,
        options: ImageOptions,
        wrap: impl FnOnce(Nand) -> M,
    ) -> Result<Opened<M>, ImageError> {
        let (storage, name): (Box<dyn Storage>, String) = match target {
            Target::Memory => (Box::new(MemoryStorage::default()), "memory".into()),
            Target::Storage(storage, name) => (storage, name.into()),
            Target::Path(path) => {
                let storage = FileStorage::open(path)?;
                let name = storage.name().to_owned();
                (Box::new(storage), name)
            }
        };
        let superblock = read_superblock(&*storage, &name)?;
        let stored = read_profile(&*storage, &name, &superblock)?;
        let identity = Identity {
            options: Options {
                seed: superblock.seed,
                capacity: superblock.capacity,
                stamps: true,
                payload: true,
                volatile_buffer: superblock.volatile_buffer,
                premap: superblock.premap,
                precondition: Precondition::Fresh,
                network_peers: true,
            },
            plan: Plan {
                units: superblock.units,
                superblocks_per_die: superblock.superblocks_per_die,
                blocks_per_plane: superblock.geometry.blocks_per_plane,
                reserved: reserved(&stored),
            },
            unit_size: superblock.geometry.unit_size,
        };
        check_shape(&name, &stored, &identity, &superblock.geometry)?;
        let mut profile = stored;
        if let Some(given) = given {
            check_given(&name, &profile, given, &identity)?;
            profile = given.clone();
        }
        let mut config = profile.nand.clone();
        config.blocks_per_plane = superblock.geometry.blocks_per_plane;
        let version = superblock.version;
        let mut image = Image::over(storage, name, superblock, options)?;
        image.read_metadata()?;
        image.read_memories()?;
        let synced = image.read_state()?;
        image.read_blocks()?;
        let Restored { nand, epoch, version_max, report } =
            image.restore(&config, &identity, identity.plan.reserved.pages, synced)?;
        image.epoch = epoch.max(synced);
        image.settle()?;
        let log = image.open_logs(&profile.fast)?;
        let (window, window_lost) = image.open_window(&profile)?;
        let remains = Remains::from_flash(Recorder::new(wrap(nand)), identity, log).with_window(window);
        Ok(Opened { image, remains, profile, version_max, report: OpenReport { version, window_lost, ..report } })
    }

    /// What was found is what there is from now on, even if the machine goes down.
    fn settle(&mut self) -> Result<(), ImageError> {
        let sync = self.storage.begin_sync();
        sync().map_err(io_error(&self.name, "sync it"))?;
        let written = self.write_state(self.epoch);
        written.map_err(|_| io_error(&self.name, "write it")(self.refusal()))
    }

    fn read_metadata(&mut self) -> Result<(), ImageError> {
        for slot in 0..2 {
            let at = self.geometry.metadata_at() + slot * self.geometry.metadata_slot();
            let mut bytes = vec![0; Slot::HEADER];
            let unread = || io_error(&self.name, "read its metadata");
            self.storage.read_at(at, &mut bytes).map_err(unread())?;
            let len = Slot::content_len(&bytes).min(self.geometry.metadata_max as usize);
            bytes.resize(Slot::HEADER + len, 0);
            self.storage.read_at(at, &mut bytes).map_err(unread())?;
            if let Some((number, content)) = Slot::decode(self.salt, at, &bytes)
                && number > self.metadata_number
            {
                (self.metadata_number, self.metadata) = (number, content.to_vec());
            }
        }
        Ok(())
    }

    /// The epoch up to which all is known to be safe.
    fn read_state(&mut self) -> Result<u64, ImageError> {
        let mut epoch = 0;
        for slot in 0..2 {
            let at = self.geometry.state_at() + slot * format::STATE_SLOT;
            let mut bytes = [0; Slot::HEADER + 8];
            self.storage.read_at(at, &mut bytes).map_err(io_error(&self.name, "read its state"))?;
            if let Some((number, content)) = Slot::decode(self.salt, at, &bytes)
                && content.len() == 8
                && number > self.state_number
            {
                (self.state_number, epoch) = (number, format::u64_at(content, 0));
            }
        }
        if epoch >= format::EPOCH_END {
            let what = "its state is of an epoch that no image gets to".into();
            return Err(ImageError::Damaged { name: self.name.clone(), at: self.geometry.state_at(), what });
        }
        Ok(epoch)
    }

    fn read_blocks(&mut self) -> Result<(), ImageError> {
        let mut bytes = vec![0; self.geometry.blocks() as usize * 2 * BLOCK_RECORD];
        self.storage
            .read_at(self.geometry.blocks_at(), &mut bytes)
            .map_err(io_error(&self.name, "read the records of its blocks"))?;
        for (block, pair) in bytes.chunks_exact(2 * BLOCK_RECORD).enumerate() {
            self.blocks[block].record = BlockRecord::decode(self.salt, block as u32, pair).unwrap_or_default();
        }
        Ok(())
    }
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn read_superblock(storage: &dyn Storage, name: &str) -> Result<Superblock, ImageError> {
    let found = storage.size().map_err(io_error(name, "measure it"))?;
    let not = |why: String| ImageError::NotAnImage { name: name.into(), why };
    if found < HEADER as u64 {
        return Err(not(format!("it has {found} bytes, fewer than a superblock")));
    }
    let mut bytes = [0; HEADER];
    storage.read_at(0, &mut bytes).map_err(io_error(name, "read its superblock"))?;
    let superblock = Superblock::decode(&bytes).map_err(|unreadable| match unreadable {
        Unreadable::Foreign if bytes.iter().all(|&byte| byte == 0) => {
            not("it begins with zeroes: it is empty, or was never finished".into())
        }
        Unreadable::Foreign => not("it does not begin as one".into()),
        Unreadable::Newer(found) => ImageError::Newer { name: name.into(), found },
        Unreadable::Damaged(what) => ImageError::Damaged { name: name.into(), at: 0, what: what.into() },
    })?;
    let has_list = superblock.version > format::VERSION_WITHOUT_MEMORIES;
    let needed = if has_list { superblock.geometry.memories_at() } else { superblock.geometry.file_len() };
    if found < needed {
        let what = format!("it ends there, and should have {needed} bytes");
        return Err(ImageError::Damaged { name: name.into(), at: found, what });
    }
    Ok(superblock)
}

fn read_profile(storage: &dyn Storage, name: &str, superblock: &Superblock) -> Result<Profile, ImageError> {
    let mut text = vec![0; superblock.geometry.text_len as usize];
    storage.read_at(HEADER as u64, &mut text).map_err(io_error(name, "read its profile"))?;
    let damaged = |what: String| ImageError::Damaged { name: name.into(), at: HEADER as u64, what };
    if crc32c::crc32c(&text) != superblock.text_sum {
        return Err(damaged("the profile's checksum does not match".into()));
    }
    let text = String::from_utf8(text).map_err(|_| damaged("the profile is no text".into()))?;
    Profile::parse(&text, name).map_err(|error| damaged(format!("the profile can't be read: {error}")))
}

/// The image's own numbers are those of its own profile.
fn check_shape(name: &str, stored: &Profile, identity: &Identity, geometry: &Geometry) -> Result<(), ImageError> {
    let mut nand = stored.nand.clone();
    nand.blocks_per_plane = geometry.blocks_per_plane;
    let same = Geometry::new(&nand, stored.ftl.unit_size, geometry.text_len, geometry.metadata_max) == *geometry;
    if same && resolve(stored, &identity.options).is_ok_and(|(_, plan)| plan == identity.plan) {
        return Ok(());
    }
    let what = "the profile and the superblock are of different drives".into();
    Err(ImageError::Damaged { name: name.into(), at: 0, what })
}

fn check_given(name: &str, stored: &Profile, given: &Profile, identity: &Identity) -> Result<(), ImageError> {
    let wrong =
        |what, stored: String, given: String| ImageError::WrongProfile { name: name.into(), what, stored, given };
    for key in SHAPE {
        let value = |profile: &Profile| profile.get(key).unwrap_or_default();
        if value(stored) != value(given) {
            return Err(wrong(key, value(stored), value(given)));
        }
    }
    let (_, plan) = resolve(given, &identity.options)?;
    let Plan { units, superblocks_per_die, blocks_per_plane, .. } = identity.plan;
    if units != plan.units {
        return Err(wrong("usable units", units.to_string(), plan.units.to_string()));
    }
    if (superblocks_per_die, blocks_per_plane) != (plan.superblocks_per_die, plan.blocks_per_plane) {
        let words = |superblocks: u32, blocks: u32| format!("{superblocks} of {blocks}");
        return Err(wrong(
            "superblocks of a die, of blocks in a plane",
            words(superblocks_per_die, blocks_per_plane),
            words(plan.superblocks_per_die, plan.blocks_per_plane),
        ));
    }
    Ok(())
}
