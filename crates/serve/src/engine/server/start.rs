//! From a setup to a device that is there: the image, recovery, sockets.

use super::Server;
use super::open::{self, Drive, Made, OpenedDrive};
use super::power::Power;
use crate::engine::{
    Backing, DeviceClock, DriveSetup, Engine, Event, Functions, Group, Hosts, InputLog, Message, MetricsSetup, Moments,
    Opened, Opening, Ready, Record, Rings, ServeError, Setup, Storage, wrong,
};
use crate::image::{Memory, MemoryKind, Payload};
use crate::inbox::Inbox;
use crate::ring::{MappedRing, has_led, is_counted_on};
use crate::vfio_user::{self, Waker};
use crate::{control, metrics, runtime};
use std::sync::Arc;
use std::time::Instant as Wall;
use tidewater_core::border::LogInput;
use tidewater_core::memory::{Note, Use};

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
            open::keep_ring(&mut setup.profile);
        }
        if setup.vfio_user.len() > 16 {
            return Err(wrong("a device has at most 16 PCIe functions; name fewer --vfio-user sockets"));
        }
        if let Some(directory) = &setup.runtime_directory {
            runtime::directory(directory).map_err(wrong)?;
        }
        let drive_setup = DriveSetup::of(&setup);
        let OpenedDrive { device, mut image, profile, next_version, state, is_new } =
            open::make(&setup, &drive_setup, notify)?;
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
        let unit_size = profile.ftl.unit_size;
        let drive = Drive { setup: drive_setup, profile, identity };
        let profile = &drive.profile;
        let mut firmware = drive.firmware(device, (next_version, state), log)?;
        let controllers = firmware.subsystem.options();
        let (nqn, transfer_max) = (controllers.nqn.clone(), controllers.transfer_max);
        let mut payload = Payload::new(image, firmware.subsystem.slots(), transfer_max, unit_size);
        open::recover(&mut firmware, &mut payload, notify)?;
        firmware.timing = profile.serve.timing;
        for text in open::kept(profile, firmware.subsystem.device().fast().functions()) {
            notify(Event::Note(text));
        }

        let waker = Arc::new(Waker::new().map_err(wrong)?);
        let mail: Inbox<Message> = Inbox::new(Arc::clone(&waker));
        let transfers = Inbox::new(Arc::clone(&waker));
        if setup.ring.as_ref().is_some_and(|ring| ring.needs_sync()) && payload.image_mut().sync().is_err() {
            return Err(wrong("the image can't be synced"));
        }
        let opening = Opening {
            profile,
            firmware: &firmware,
            image: payload.image(),
            waker: &waker,
            transfers: &transfers,
            several: setup.vfio_user.len() > 1,
        };
        let (mut functions, mut served, mut rings) = (Vec::new(), Vec::new(), Rings::default());
        for (i, path) in setup.vfio_user.iter().enumerate() {
            let serial = identity.wrapping_add(i as u64);
            let ring = open::ring(&setup, profile, i, payload.image(), &firmware, &mut made, notify)?;
            let Opened { function, device, slot, doorbell } =
                opening.function((i as u8, serial), pmrs[i], ring.as_ref())?;
            functions.push(function);
            served.push((path, device, slot));
            rings.add(ring, doorbell);
        }
        let controllers = firmware.subsystem.options();
        let target = setup.nvme_tcp.as_ref().map(|tcp| open::target(tcp, controllers)).transpose()?;
        let nvme_tcp = target.as_ref().and_then(|target| target.addresses().first().map(|at| (*at, nqn.clone())));
        let nbd = setup.nbd.as_ref().map(|address| open::nbd(address, controllers)).transpose()?;
        let nbd_at = nbd.as_ref().map(|nbd| nbd.address().clone());
        let connected =
            setup.peers.as_ref().map(|setup| open::peers(setup, payload.image(), &firmware, &waker)).transpose()?;
        let peers_at = connected.as_ref().and_then(|peers| peers.address());
        let mut forgetful = Vec::new();
        for (number, function) in firmware.subsystem.device().fast().functions().iter().enumerate() {
            let ring = rings.of(number);
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
        let clock = DeviceClock::new(firmware.timing, firmware.subsystem.device().now());
        let mut group = Group::new(setup.peers.as_ref().is_some_and(|peers| peers.holds_log));
        group.set_carrier(connected);
        let storage = Storage::new(payload, rings.is_used() && setup.input_log.is_none());
        let hosts = Hosts::new(Functions::new(functions, transfers), target, nbd);
        let mut engine = Engine::new(hosts, storage, group, rings, mail.clone());
        if let Some(bytes_per_second) = setup.peers.as_ref().and_then(|peers| peers.catch_up_rate) {
            for function in 0..firmware.subsystem.device().fast().functions().len() as u8 {
                engine.cx.push_log(function, LogInput::CatchUpRate { bytes_per_second });
            }
        }
        for function in forgetful {
            engine.group.lost_memory(&mut engine.cx, function);
        }
        engine.record = Record::open(&setup, &nqn, &mut made.files)?;

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
            metrics::serve(listener, names, move || Message::metrics(&mail)).map_err(wrong)?;
        }
        // Hosts come last: what they find is ready.
        let sockets: Result<Vec<_>, _> =
            served.into_iter().map(|(path, device, slot)| vfio_user::Server::start(path, device, slot)).collect();
        let sockets = sockets.map_err(wrong)?;
        made.keep();
        notify(Event::Ready(Ready {
            vfio_user: setup.vfio_user.clone(),
            nvme_tcp,
            nbd: nbd_at,
            metrics: metrics_at,
            peers: peers_at,
            moments,
            survives: open::survives(&setup.backing),
            memories,
        }));
        Ok(Server {
            firmware: Some(firmware),
            clock,
            engine,
            waker,
            sockets,
            setup,
            drive,
            power: Power::default(),
            started: Wall::now(),
            busy_at: Wall::now(),
            ending: None,
            turns: 0,
        })
    }
}
