//! From a setup to a device that is there: the image, recovery, sockets.

use super::Server;
use crate::engine::clock::DeviceClock;
use crate::engine::events::{Event, Ready, ServeError, wrong};
use crate::engine::firmware::{Firmware, InputLog};
use crate::engine::hosts::dma_messages::{Courier, Done};
use crate::engine::hosts::doorbell_page::DoorbellPage;
use crate::engine::hosts::function::Port;
use crate::engine::hosts::pmr::Pmr;
use crate::engine::mail::{Message, Moments};
use crate::engine::record::Record;
use crate::engine::route::World;
use crate::engine::setup::{Backing, DriveSetup, FABRICS_MAX, MetricsSetup, Setup, TcpSetup};
use crate::engine::storage::Storage;
use crate::image::{Image, ImageOptions, Memory, MemoryKind, Payload, Target as ImageTarget};
use crate::inbox::Inbox;
use crate::nvme_tcp::{HostRule, Hosts, Options as TargetOptions, Target};
use crate::peers::carrier::Carrier;
use crate::peers::{Peers, PeersSetup};
use crate::ring::{MappedRing, has_led, is_counted_on};
use crate::vfio_user::{self, DOORBELL_PAGE, Device as VfioDevice, Doorbell, GuestMemory, Interrupts, Region, Waker};
use crate::{control, metrics, runtime};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_base::Instant;
use tidewater_core::Device;
use tidewater_core::drive::Machine as _;
use tidewater_core::fast::transport::Command;
use tidewater_core::fast::{Content, Function};
use tidewater_core::memory::{Note, Use};
use tidewater_core::profile::{
    Access, Doorbells, Interrupts as Kind, MemoryKind as ProfileMemory, MemoryProfile, Profile, Survives, Timing,
};
use tidewater_core::subsystem::{Input, Options, Subsystem, Unit};
use tidewater_ipc::SharedMemory;
use tidewater_nand::{Nand, Recorder};
use tidewater_wire::fabrics::Nqn;
use tidewater_wire::log::RING_FILE_BAR2;
use tidewater_wire::pci::{ConfigSpace, Options as PciOptions};
use tidewater_wire::replication::Hello;
use tidewater_wire::vfio_user::{Area, region};

/// Memory of the rings of a device with peers.
const PEERS_MEMORY: &str = "replicated-ring";

/// What a start has made. One that does not come to its end takes it away again, so that the next begins as it did.
#[derive(Default)]
struct Made {
    image: Option<PathBuf>,
    files: Vec<PathBuf>,
}

impl Made {
    fn keep(mut self) {
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
struct Drive {
    device: Device<Recorder<Nand>>,
    image: Image,
    profile: Profile,
    next_version: u64,
    state: Vec<u8>,
    is_new: bool,
}

/// Who can write what is in an image, beside this process's user and root.
fn other_owner(image: &Image) -> Option<u32> {
    let me = nix::unistd::geteuid().as_raw();
    image.owner().filter(|owner| ![0, me].contains(owner))
}

fn make(setup: &Setup, drive: &DriveSetup, notify: &mut dyn FnMut(Event)) -> Result<Drive, ServeError> {
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
        return Ok(Drive {
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
    Ok(Drive {
        device,
        state: opened.image.metadata().to_vec(),
        image: opened.image,
        profile: opened.profile,
        next_version: opened.version_max + 1,
        is_new: false,
    })
}

/// Lets recovery run to its end, as fast as it goes, and the flash changes that it makes go to the image.
pub(crate) fn recover(
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

/// The memories of a function that its host may map, and the function as vfio-user shows it.
fn function(
    profile: &Profile,
    subsystem: &Subsystem<Recorder<Nand>>,
    (waker, transfers): (&Arc<Waker>, &Inbox<Done>),
    (number, serial): (u8, u64),
    several: bool,
    stored: (&Image, Option<Memory>),
    ring: Option<MappedRing>,
) -> Result<(Port, VfioDevice, vfio_user::Slot), ServeError> {
    let serve = &profile.serve;
    let bar2 = subsystem.bar2();
    let msi = serve.interrupts == Kind::Msi;
    let vectors = subsystem.vectors();
    let config = ConfigSpace::new(&PciOptions {
        bar2_bytes: bar2.size,
        bar4_bytes: serve.pmr_size,
        vectors: if msi { 0 } else { vectors },
        msi,
        multi_function: several,
        link_speed: profile.link.generation as u8,
        link_width: profile.link.lanes as u8,
        serial,
        ..PciOptions::default()
    });
    let mapped = serve.access == Access::Mapped;
    let shared = |name: &str, bytes: u64| SharedMemory::new(name, bytes).map(Arc::new).map_err(wrong);
    let cmb = if bar2.cmb_len > 0 { Some(shared("tidewater-bar2", bar2.size)?) } else { None };
    let pmr = if stored.1.is_some() { Some(shared("tidewater-pmr", serve.pmr_size)?) } else { None };
    let mut regions: [Region; region::COUNT as usize] = std::array::from_fn(|_| Region::NONE);
    let mut doorbell = None;
    let page = match serve.doorbells {
        Doorbells::Mapped | Doorbells::Polled => {
            Some(shared("tidewater-bar0", DOORBELL_PAGE.offset + DOORBELL_PAGE.size)?)
        }
        Doorbells::Trapped => None,
    };
    regions[0] = match &page {
        Some(memory) => Region::mapped(config.bar_bytes(0), Arc::clone(memory), vec![DOORBELL_PAGE]),
        None => Region::trapped(config.bar_bytes(0)),
    };
    regions[2] = match &cmb {
        _ if ring.is_some() => {
            // A region has one descriptor: the slice for queues is trapped beside a mapped ring.
            let file = ring.as_ref().expect("looked at above").file();
            let bell = Arc::new(Doorbell::new(file.doorbells()).map_err(wrong)?);
            doorbell = Some(Arc::clone(&bell));
            let region = Region::of_file(bar2.size, Arc::clone(file.lent()), RING_FILE_BAR2, file.areas());
            Region { doorbell: Some(bell), ..region }
        }
        Some(memory) if mapped => {
            let area = Area { offset: bar2.cmb_offset, size: bar2.cmb_len };
            Region::mapped(bar2.size, Arc::clone(memory), vec![area])
        }
        _ => Region::trapped(bar2.size),
    };
    regions[4] = match &pmr {
        Some(memory) if mapped => {
            let area = Area { offset: 0, size: serve.pmr_size };
            Region::mapped(serve.pmr_size, Arc::clone(memory), vec![area])
        }
        _ => Region::trapped(serve.pmr_size),
    };
    let pmr = match (pmr, stored) {
        (Some(memory), (image, Some(place))) => {
            let loaded = Pmr::load(memory, serve.pmr_size, mapped, image, place);
            Some(loaded.map_err(|_| wrong("the persistent memory region can't be read from the image"))?)
        }
        _ => None,
    };
    regions[region::CONFIG as usize] = Region::trapped(ConfigSpace::SIZE as u64);
    let copy = ring.as_ref().and_then(MappedRing::copy).map_or(Region::NONE, |copy| {
        let area = copy.area();
        Region::of_file(area.size, Arc::clone(copy.lent()), 0, vec![area])
    });
    let memory = Arc::new(GuestMemory::default());
    let (messages, offered) = if msi { (1, 0) } else { (0, u32::from(vectors)) };
    let interrupts = Arc::new(Interrupts::new(messages, offered));
    let courier = Courier::new(number, Arc::clone(&interrupts), transfers.clone());
    let (slot, mailbox) = vfio_user::mailbox(Arc::clone(waker), vfio_user::DEPTH, vfio_user::PATIENCE);
    let port = Port {
        mailbox,
        connection: None,
        memory: Arc::clone(&memory),
        interrupts: Arc::clone(&interrupts),
        courier,
        config,
        page: page.map(DoorbellPage::new),
        cmb: cmb.map(|memory| (memory, bar2.cmb_offset)),
        pmr,
        ring,
        doorbell,
    };
    Ok((port, VfioDevice { regions, copy, memory, interrupts }, slot))
}

/// The ring of a function that clients map, if rings are mapped and the function has one.
fn ring(
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

pub(crate) fn target(tcp: &TcpSetup, controllers: &Options) -> Result<Target, ServeError> {
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

/// Puts the rings into memory that survives, if it does not: what a device has reported to its peers must be in its
/// image when its process dies.
fn keep_ring(profile: &mut Profile) {
    let survives = |memory: &MemoryProfile| memory.survives != Survives::Nothing;
    if profile.memory(&profile.fast.memory).is_none_or(survives) || !profile.fast.is_enabled() {
        return;
    }
    let size = profile.fast.size;
    profile.memories.push(MemoryProfile { size, ..MemoryProfile::of_kind(PEERS_MEMORY, ProfileMemory::Nvm) });
    profile.fast.memory = PEERS_MEMORY.into();
}

/// The connections to peers, of this drive.
pub(crate) fn peers(
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
    Peers::carrier(setup, ours, Arc::clone(waker)).map_err(wrong)
}

/// What functions keep of how they were set up, where the profile says otherwise.
fn kept(profile: &Profile, functions: &[Function]) -> Vec<String> {
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

/// What survives what, in words.
fn survives(backing: &Backing) -> String {
    match backing {
        Backing::Memory => "no data survives this process: the image is in memory.".into(),
        Backing::File(path) => format!(
            "flushed and FUA data is in {}: it survives a process crash, a host crash and power loss, provided the \
             disk honours fdatasync. Unflushed data may be lost in any of them.",
            path.display()
        ),
    }
}

impl Server {
    /// Makes or opens the drive, lets it recover, and opens its sockets.
    ///
    /// # Errors
    /// In words that name the place and the way out.
    pub fn start(mut setup: Setup, notify: &mut dyn FnMut(Event)) -> Result<Server, ServeError> {
        let map_memory = &mut setup.profile.ftl.map_memory;
        if map_memory != "all" {
            let memory = std::mem::replace(map_memory, "all".into());
            let mut text = format!(
                "the whole mapping table is kept in memory, not cached in [memory.{memory}]: images store no mapping \
                 pages"
            );
            if setup.profile.serve.hmb_preferred > 0 && tidewater_core::host_memory::wanted(&setup.profile) == 0 {
                // The map was all that the drive wanted it for.
                (setup.profile.serve.hmb_preferred, setup.profile.serve.hmb_min) = (0, 0);
                text.push_str(&format!(
                    ". So the drive asks hosts for no memory (HMPRE 0). For one that does: --set \
                     buffer.read_memory={memory} --set buffer.read_size=64MiB"
                ));
            }
            notify(Event::Note(text));
        }
        if setup.peers.is_some() {
            keep_ring(&mut setup.profile);
        }
        if setup.vfio_user.len() > 16 {
            return Err(wrong("a device has at most 16 PCIe functions; name fewer --vfio-user sockets"));
        }
        if let Some(directory) = &setup.runtime_directory {
            runtime::directory(directory).map_err(wrong)?;
        }
        let drive_setup = DriveSetup::of(&setup);
        let Drive { device, mut image, profile, next_version, state, is_new } = make(&setup, &drive_setup, notify)?;
        let mut made = Made::default();
        if let (true, Backing::File(path)) = (is_new, &setup.backing) {
            made.image = Some(path.clone());
        }
        let pmr_size = profile.serve.pmr_size;
        let pmrs = (0..setup.vfio_user.len()).map(|function| match pmr_size {
            0 => Ok(None),
            _ => image.memory(MemoryKind::Pmr, function as u8, pmr_size).map(Some),
        });
        let pmrs = pmrs.collect::<Result<Vec<Option<Memory>>, _>>().map_err(wrong)?;
        let log = match &setup.input_log {
            Some(path) if is_new => {
                let text = serde_json::to_string(&drive_setup).expect("a setup is an object of plain values");
                let was_there = path.exists();
                let log =
                    InputLog::create(path, &text).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
                if !was_there {
                    made.files.push(path.clone());
                }
                Some(log)
            }
            Some(_) => {
                return Err(wrong("an input log needs a new drive, but the image holds one; name another --image"));
            }
            None => None,
        };
        // A log is run again without the image: then the seed stands for its identifier.
        let identity = match &log {
            Some(_) => setup.seed,
            None => u64::from_le_bytes(image.uuid()[..8].try_into().expect("8 of 16 bytes")),
        };
        // No note that the whole mapping table is in memory: in a served device it always is.
        let known = |note: &&Note| note.placed == Use::MapCache && !note.downgrade;
        let memories = device.notes().iter().filter(|note| !known(note)).map(ToString::to_string).collect();
        let options = drive_setup.subsystem_options(&profile, device.capacity(), identity, next_version, state);
        let nqn = options.nqn.clone();
        let (unit_size, transfer_max) = (profile.ftl.unit_size, options.transfer_max);
        let subsystem = Subsystem::new(device, options).map_err(wrong)?;
        let mut payload = Payload::new(image, subsystem.slots(), transfer_max, unit_size);
        let timing = profile.serve.timing;
        let mut firmware = Firmware { subsystem, timing: Timing::None, log, passed: Instant::ZERO, hurries: false };
        recover(&mut firmware, &mut payload, notify)?;
        firmware.timing = timing;
        for text in kept(&profile, firmware.subsystem.device().fast().functions()) {
            notify(Event::Note(text));
        }

        let waker = Arc::new(Waker::new().map_err(wrong)?);
        let mail: Inbox<Message> = Inbox::new(Arc::clone(&waker));
        let transfers: Inbox<Done> = Inbox::new(Arc::clone(&waker));
        let mut ports = Vec::new();
        let mut functions = Vec::new();
        let mut forgetful = Vec::new();
        let several = setup.vfio_user.len() > 1;
        if setup.ring.as_ref().is_some_and(|ring| ring.needs_sync()) && payload.image_mut().sync().is_err() {
            return Err(wrong("the image can't be synced"));
        }
        for (i, path) in setup.vfio_user.iter().enumerate() {
            let serial = identity.wrapping_add(i as u64);
            let ring = ring(&setup, &profile, i, payload.image(), &firmware, &mut made, notify)?;
            let stored = (payload.image(), pmrs[i]);
            let (port, device, slot) = function(
                &profile,
                &firmware.subsystem,
                (&waker, &transfers),
                (i as u8, serial),
                several,
                stored,
                ring,
            )?;
            ports.push(port);
            functions.push((path, device, slot));
        }
        let controllers = firmware.subsystem.options();
        let subsystem_name = controllers.nqn.clone();
        let target = setup.nvme_tcp.as_ref().map(|tcp| target(tcp, controllers)).transpose()?;
        let nvme_tcp = target.as_ref().and_then(|target| target.addresses().first().map(|at| (*at, nqn)));
        let connected =
            setup.peers.as_ref().map(|setup| peers(setup, payload.image(), &firmware, &waker)).transpose()?;
        let peers_at = connected.as_ref().and_then(|peers| peers.address());
        for (number, function) in firmware.subsystem.device().fast().functions().iter().enumerate() {
            let ring = ports.get(number).and_then(|port| port.ring.as_ref());
            if is_counted_on(function) && !ring.is_some_and(MappedRing::is_kept) {
                forgetful.push(number as u8);
                let why = match ring.is_some_and(|ring| ring.file().header().doubted) {
                    true => "the disk of this machine has failed",
                    false => "the memory of this machine is gone",
                };
                notify(Event::Note(if has_led(function) {
                    format!(
                        "function {number} was primary, and {why}: it is a secondary now, since replicas may have \
                         more of the log; promote a member: tidewater cluster group promote"
                    )
                } else {
                    format!(
                        "{why}, and function {number} may lack bytes that it had: it counts for no promotion until \
                         it has what its primary has"
                    )
                }));
            }
        }
        let clock = DeviceClock::new(timing, firmware.subsystem.device().now());
        let restarts = ports.iter().any(|port| port.ring.is_some()) && setup.input_log.is_none();
        let storage = Storage::new(payload, restarts);
        let mut world = World::new(ports, target, storage, mail.clone(), transfers);
        world.peers = connected;
        world.holds_log = setup.peers.as_ref().is_some_and(|peers| peers.holds_log);
        if let Some(bytes_per_second) = setup.peers.as_ref().and_then(|peers| peers.catch_up_rate) {
            for function in 0..firmware.subsystem.device().fast().functions().len() as u8 {
                world.cx.push(Input::CatchUpRate { function, bytes_per_second });
            }
        }
        for function in forgetful {
            world.cx.push(Input::Group { function, command: Command::LostMemory });
            world.asked.push_back(None);
        }
        world.record = Record::open(&setup, &subsystem_name, &mut made.files)?;

        let control = runtime::listen(&setup.control).map_err(wrong)?;
        made.files.push(setup.control.clone());
        let to_device = mail.clone();
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || control::serve(&control, |request| Message::ask(&to_device, request)))
            .map_err(wrong)?;
        let moments = Some(Moments(mail.clone()));
        let mut metrics_at = None;
        if let Some(MetricsSetup { address, names }) = setup.metrics.clone() {
            let listener = metrics::listen(address).map_err(|error| wrong(format!("--metrics {address}: {error}")))?;
            metrics_at = listener.local_addr().ok();
            std::thread::Builder::new()
                .name("metrics".into())
                .spawn(move || metrics::serve(&listener, &names, || Message::metrics(&mail)))
                .map_err(wrong)?;
        }
        // Hosts come last: what they find is ready.
        let sockets: Result<Vec<_>, _> =
            functions.into_iter().map(|(path, device, slot)| vfio_user::Server::start(path, device, slot)).collect();
        let sockets = sockets.map_err(wrong)?;
        made.keep();
        notify(Event::Ready(Ready {
            vfio_user: setup.vfio_user.clone(),
            nvme_tcp,
            metrics: metrics_at,
            peers: peers_at,
            moments,
            survives: survives(&setup.backing),
            memories,
        }));
        Ok(Server::new(firmware, clock, world, waker, sockets, setup, drive_setup, profile, identity))
    }
}
