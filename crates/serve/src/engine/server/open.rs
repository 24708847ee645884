//! Parts that a start makes or opens: the image and its drive, rings, the NVMe/TCP target, the NBD server, connections
//! to peers.

use crate::engine::{Backing, DriveSetup, Event, FABRICS_MAX, Firmware, InputLog, ServeError, Setup, TcpSetup, wrong};
use crate::image::{Image, ImageOptions, Payload, Target as ImageTarget};
use crate::nbd;
use crate::nvme_tcp::{HostRule, Hosts, Options as TargetOptions, Target};
use crate::peers::PeersSetup;
use crate::peers::carrier::{self, Carrier};
use crate::ring::MappedRing;
use crate::vfio_user::Waker;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_core::Device;
use tidewater_core::drive::Machine as _;
use tidewater_core::fast::{Content, Function};
use tidewater_core::profile::{Access, MemoryKind as ProfileMemory, MemoryProfile, Profile, Survives, Timing};
use tidewater_core::subsystem::{Input, Options, Subsystem, Unit};
use tidewater_nand::{Nand, Recorder};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::replication::Hello;

/// Memory of the rings of a device with peers.
const PEERS_MEMORY: &str = "replicated-ring";

/// Parts that a start has made. One that does not come to its end removes them, so that the next begins as it did.
#[derive(Default)]
pub(super) struct Made {
    pub(super) image: Option<PathBuf>,
    pub(super) files: Vec<PathBuf>,
}

impl Made {
    pub(super) fn keep(mut self) {
        self.image = None;
        self.files.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // What can't be removed is what the next start will speak of.
        for path in &self.files {
            let _ = std::fs::remove_file(path);
        }
        if let Some(path) = &self.image {
            let _ = Image::remove(path);
        }
    }
}

/// A drive and where its bytes are.
pub(super) struct OpenedDrive {
    pub(super) device: Device<Recorder<Nand>>,
    pub(super) image: Image,
    pub(super) profile: Profile,
    pub(super) next_version: u64,
    pub(super) state: Vec<u8>,
    pub(super) is_new: bool,
}

/// Maker of a drive's controllers, each time it has power.
pub(super) struct Drive {
    pub(super) setup: DriveSetup,
    pub(super) profile: Profile,
    /// Makes serial number and NQN.
    pub(super) identity: u64,
}

impl Drive {
    /// The controllers of a device, without pacing. `state`: what of them has outlived its last power loss.
    ///
    /// # Errors
    /// In words, when that contradicts the device.
    pub(super) fn firmware(
        &self,
        device: Device<Recorder<Nand>>,
        (next_version, state): (u64, Vec<u8>),
        log: Option<InputLog>,
    ) -> Result<Firmware, ServeError> {
        let capacity = device.capacity();
        let options = self.setup.subsystem_options(&self.profile, capacity, self.identity, next_version, state);
        Ok(Firmware::new(Subsystem::new(device, options).map_err(wrong)?, Timing::None, log))
    }
}

/// Who can write what is in an image, beside this process's user and root.
fn other_owner(image: &Image) -> Option<u32> {
    let me = nix::unistd::geteuid().as_raw();
    image.owner().filter(|owner| ![0, me].contains(owner))
}

pub(super) fn make(
    setup: &Setup,
    drive: &DriveSetup,
    notify: &mut dyn FnMut(Event),
) -> Result<OpenedDrive, ServeError> {
    fn target(backing: &Backing) -> ImageTarget<'_> {
        match backing {
            Backing::File(path) => ImageTarget::Path(path),
            Backing::Memory => ImageTarget::Memory,
        }
    }
    let is_there = match &setup.backing {
        Backing::File(path) => Image::is_there(path).map_err(wrong)?,
        Backing::Memory => false,
    };
    if !is_there {
        let made = Image::create(
            target(&setup.backing),
            &setup.profile,
            drive.device_options(),
            ImageOptions::default(),
            |nand: Nand| nand,
        )
        .map_err(wrong)?;
        notify(Event::Made { capacity: made.device.capacity() });
        let profile = setup.profile.clone();
        return Ok(OpenedDrive {
            device: made.device,
            image: made.image,
            profile,
            next_version: 1,
            state: Vec::new(),
            is_new: true,
        });
    }
    let opened = Image::open(target(&setup.backing), Some(&setup.profile), ImageOptions::default(), |nand: Nand| nand)
        .map_err(wrong)?;
    let device = Device::power_on(&opened.profile, opened.remains).map_err(wrong)?;
    if setup.size.is_some_and(|size| size != device.capacity()) {
        notify(Event::Note("the drive exists and keeps its capacity: --capacity applies to new drives".into()));
    }
    if setup.ring.is_none()
        && let Some(owner) = other_owner(&opened.image)
    {
        notify(Event::Note(format!(
            "{}: belongs to user {owner}, who can change the drive's data and log: `chown` it to make it yours",
            opened.image.name()
        )));
    }
    if opened.report.version < opened.image.version() {
        let (old, new) = (opened.report.version, opened.image.version());
        notify(Event::Note(format!("the image was upgraded from version {old} to {new}: older programs refuse it")));
    }
    let written = opened.report.pages * u64::from(opened.image.page_size());
    notify(Event::Opened { capacity: device.capacity(), written });
    if opened.report.window_lost > 0 {
        let lost = opened.report.window_lost;
        notify(Event::Note(format!(
            "{lost} entries of the byte window were stored incompletely and are no longer \
             pinned"
        )));
    }
    if opened.report.torn > 0 {
        let torn = opened.report.torn;
        notify(Event::Note(format!("{torn} pages were torn when the device stopped, as after power loss")));
    }
    Ok(OpenedDrive {
        device,
        state: opened.image.metadata().to_vec(),
        image: opened.image,
        profile: opened.profile,
        next_version: opened.version_max + 1,
        is_new: false,
    })
}

/// Lets recovery run to its end, as fast as it goes, and the flash changes that it makes go to the image.
pub(super) fn recover(
    firmware: &mut Firmware,
    payload: &mut Payload,
    notify: &mut dyn FnMut(Event),
) -> Result<(), ServeError> {
    if !firmware.subsystem.device().is_recovering() {
        return Ok(());
    }
    let (start, mut reported) = (Wall::now(), Wall::now());
    let mut changes = Default::default();
    let mut page = vec![0; firmware.subsystem.device().profile().ftl.unit_size as usize];
    while firmware.subsystem.device().is_recovering() {
        let Some(at) = firmware.deadline() else { return Err(wrong("recovery stands still")) };
        firmware.on_deadline(at);
        firmware.subsystem.device().medium().take_changes(&mut changes);
        payload.apply(&changes).map_err(|_| wrong("the image could not be written during recovery"))?;
        while let Some((lpn, place)) = firmware.subsystem.take_window_load() {
            let unit = Unit { lpn, skip: 0, len: page.len() as u32, at: 0 };
            let content = match payload.read(unit, place, &mut page) {
                Ok(()) => Content::Bytes(&page),
                Err(_) => Content::Absent(0),
            };
            firmware.subsystem.handle(at, Input::WindowFill { lpn, content });
        }
        if reported.elapsed() > WallDuration::from_secs(1) {
            reported = Wall::now();
            notify(Event::Recovering { reads: firmware.subsystem.device().ftl().recovery_reads() });
        }
    }
    if let Some(report) = firmware.subsystem.device().recovery_report() {
        notify(Event::Recovered { report, wall: start.elapsed() });
    }
    Ok(())
}

/// The ring of a function that clients map, if rings are mapped and the function has one.
pub(super) fn ring(
    setup: &Setup,
    profile: &Profile,
    function: usize,
    image: &Image,
    firmware: &Firmware,
    made: &mut Made,
    notify: &mut dyn FnMut(Event),
) -> Result<Option<MappedRing>, ServeError> {
    let Some(rings) = &setup.ring else { return Ok(None) };
    if profile.serve.access != Access::Mapped {
        return Err(wrong(
            "--ring needs a profile whose hosts may map memory; set serve.access=mapped, or leave out --ring",
        ));
    }
    let fast = firmware.subsystem.device().fast();
    if !fast.is_enabled() {
        return Err(wrong(
            "--ring needs a drive with a fast side: set fast.size, or take a profile that has one, such as villars",
        ));
    }
    if fast.function(function).is_none() {
        notify(Event::Note(format!("function {function} has no fast side (fast.functions) and so no ring")));
        return Ok(None);
    }
    if rings.persistent && rings.copy.is_some() {
        return Err(wrong(
            "a ring whose memory survives power loss needs no copy; leave out --ring-persistent or --ring-copy",
        ));
    }
    // A log is taken for its device's user's, and part of it is in the image.
    if let Some(owner) = other_owner(image) {
        return Err(wrong(format_args!(
            "{}: belongs to user {owner}, who can change the log; serve it with --ring as that user, or `chown` it if \
             you trust its content",
            image.name()
        )));
    }
    // What this start makes goes again if it fails, a copy whose ring is refused too.
    let new = [Some(rings.of(function)), rings.copy_of(function)].into_iter().flatten();
    made.files.extend(new.filter(|path| std::fs::symlink_metadata(path).is_err()));
    let mut note = |text| notify(Event::Note(text));
    let ring = MappedRing::open(rings, image.uuid(), function, fast, &mut note).map_err(wrong)?;
    if profile.serve.cmb_size > 0 && function == 0 {
        note(
            "with --ring, the controller memory buffer in BAR2 cannot be mapped: accesses go through vfio-user \
             messages and are slower"
                .into(),
        );
    }
    Ok(Some(ring))
}

pub(super) fn target(tcp: &TcpSetup, controllers: &Options) -> Result<Target, ServeError> {
    let name = |name: &str| {
        Nqn::new(name).ok_or_else(|| {
            wrong(format!("`{name}` is not an NVMe qualified name; give one such as nqn.2014-08.org.example:host"))
        })
    };
    let privileged = tcp.allow_destructive;
    let hosts = match tcp.allowed_hosts.as_slice() {
        [] => Hosts::Any { privileged },
        names => {
            let rules = names.iter().map(|host| Ok(HostRule { name: name(host)?, privileged }));
            Hosts::Listed(rules.collect::<Result<_, ServeError>>()?)
        }
    };
    let first = controllers.functions;
    let mut options = TargetOptions {
        listen: vec![tcp.address],
        advertise: tcp.advertise,
        insecure_bind: tcp.insecure_bind,
        hosts,
        queues_max: controllers.queues,
        ..TargetOptions::new(name(&controllers.nqn)?, first..first + FABRICS_MAX)
    };
    options.limits.transfer_max = controllers.transfer_max;
    Target::bind(options).map_err(wrong)
}

pub(super) fn nbd(address: &nbd::Address, controllers: &Options) -> Result<nbd::Server, ServeError> {
    // The last of the controllers.
    let function = controllers.functions + controllers.fabrics - 1;
    nbd::Server::bind(address, function, controllers.queues, controllers.transfer_max).map_err(wrong)
}

/// Puts the rings into memory that survives, if it does not: what a device has reported to its peers must be in its
/// image when its process dies.
pub(super) fn keep_ring(profile: &mut Profile) {
    let survives = |memory: &MemoryProfile| memory.survives != Survives::Nothing;
    if profile.memory(&profile.fast.memory).is_none_or(survives) || !profile.fast.is_enabled() {
        return;
    }
    let size = profile.fast.size;
    profile.memories.push(MemoryProfile { size, ..MemoryProfile::of_kind(PEERS_MEMORY, ProfileMemory::Nvm) });
    profile.fast.memory = PEERS_MEMORY.into();
}

/// The connections to peers, of this drive.
pub(super) fn peers(
    setup: &PeersSetup,
    image: &Image,
    firmware: &Firmware,
    waker: &Arc<Waker>,
) -> Result<Box<dyn Carrier>, ServeError> {
    let fast = firmware.subsystem.device().fast();
    let Some(first) = fast.function(0) else {
        return Err(wrong("peers replicate the logs of the fast side: take a profile that has one, such as log"));
    };
    let mut lanes = [0; 16];
    for (lanes, function) in lanes.iter_mut().zip(fast.functions()) {
        *lanes = function.lanes().len() as u8;
    }
    let ours = Hello {
        drive: image.uuid(),
        lanes,
        ring_bytes: first.setup().ring_size,
        page_bytes: fast.payload(),
        ..Hello::default()
    };
    carrier::connect(setup, ours, Arc::clone(waker)).map_err(wrong)
}

/// What functions keep of how they were set up, where the profile says otherwise.
pub(super) fn kept(profile: &Profile, functions: &[Function]) -> Vec<String> {
    let mut texts = Vec::new();
    for (i, function) in functions.iter().enumerate() {
        let setup = function.setup();
        let mut stored = profile.clone();
        stored.fast.queue_size = setup.queue_size;
        stored.fast.partial_after = setup.partial_after;
        stored.fast.on_wrap = setup.on_wrap;
        for key in ["fast.queue_size", "fast.partial_after", "fast.on_wrap"] {
            let value = |profile: &Profile| profile.get(key).expect("a key of profiles");
            let (is, given) = (value(&stored), value(profile));
            if is != given {
                texts.push(format!(
                    "{key}: function {i} keeps {is}, with which its log in the image was set up, and ignores {given}: \
                     changing it takes a new image, or the command Fast Setup"
                ));
            }
        }
    }
    texts
}

/// Failures that a drive's data survives, in words.
pub(super) fn survives(backing: &Backing) -> String {
    match backing {
        Backing::Memory => "no data survives this process: the image is in memory.".into(),
        Backing::File(path) => format!(
            "flushed and FUA data is in {}: it survives a process crash, a host crash and power loss, provided the \
             disk honours fdatasync. Unflushed data may be lost in any of them.",
            path.display()
        ),
    }
}
