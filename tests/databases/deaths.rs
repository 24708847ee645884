//! A device that is killed while commits wait for it: how soon each program knows. `NAME/death`.

use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidewater_tests::databases::device::{Device, Memory};
use tidewater_tests::databases::group::Group;
use tidewater_tests::databases::process::{kill_tree, signal};
use tidewater_tests::databases::{Around, Database, Flush, Level};

use crate::campaign::Campaign;

/// How long commits have waited when the device is killed.
const WAITED: Duration = Duration::from_millis(150);
/// A wait that ends by its own time-out takes 30 s: a sync of `tidewater run`, of a layer and of the C library.
const TOO_LATE: Duration = Duration::from_secs(15);

/// The level that commits wait for, and where the ring lies; without a memory: on the first of three machines.
type How = (Level, Option<Memory>);

const HOWS: [How; 6] = [
    (Level::Ring, Some(Memory::Volatile)),
    (Level::Ring, Some(Memory::Copied)),
    (Level::Destaged, Some(Memory::Volatile)),
    (Level::Destaged, Some(Memory::Copied)),
    (Level::RemoteRing, None),
    (Level::RemoteDestaged, None),
];

/// How soon a program knew.
pub struct Times {
    database: &'static str,
    times: Vec<(How, Vec<Duration>)>,
}

impl Times {
    /// Those that ended by a time-out.
    pub fn late(&self) -> usize {
        self.times.iter().flat_map(|(_, times)| times).filter(|time| **time > TOO_LATE).count()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:32} after (ms, the longest)", format!("{}/death", self.database))?;
        for (at, ((level, memory), times)) in self.times.iter().enumerate() {
            let copied = if *memory == Some(Memory::Copied) { " with a copy" } else { "" };
            let longest = times.iter().max().unwrap_or(&Duration::ZERO).as_millis();
            write!(f, "{}{}{copied} {longest}", if at > 0 { ", " } else { " " }, level.name())?;
        }
        if self.late() > 0 { write!(f, "\n  FAILED: {} by a time-out", self.late()) } else { Ok(()) }
    }
}

/// The devices of a round.
enum Devices {
    One(Device),
    Three(Group),
}

impl Devices {
    fn first(&self) -> &Device {
        match self {
            Devices::One(device) => device,
            Devices::Three(group) => group.device(0),
        }
    }

    /// The process that answers commits stands still.
    fn stop(&self) {
        match self {
            Devices::One(device) => signal(device.process(), Signal::SIGSTOP),
            Devices::Three(group) => group.signal_replicas(Signal::SIGSTOP),
        }
    }

    fn kill(&mut self) {
        match self {
            Devices::One(device) => device.kill(),
            Devices::Three(group) => group.kill_primary(),
        }
    }
}

/// One death. How long after it the program's commit failed.
fn round(campaign: &mut Campaign, database: &dyn Database, (level, memory): How) -> Result<Duration, String> {
    let place = campaign.place(database)?;
    let mut devices = match memory {
        None => Devices::Three(Group::start(campaign.tidewater(), &place, false)?),
        Some(memory) => {
            let mut device = Device::new(campaign.tidewater(), &place, &place.device().join("ring"), "4MiB", memory);
            device.start(None)?;
            Devices::One(device)
        }
    };
    let around = Around { device: Some((devices.first(), level)), ..Around::default() };
    let mut server = database.start(&place, Flush::Real, around)?;
    // Kept: another one would begin anew.
    server.contents()?;
    let mut client = server.client()?;
    for number in 1..=8 {
        client.commit(0, number).map_err(|why| format!("{why}: {}", place.said(database.speaks_as())))?;
    }
    devices.stop();
    let known = std::thread::spawn(move || {
        let mut number = 9;
        while client.commit(0, number).is_ok() {
            number += 1;
        }
        Instant::now()
    });
    std::thread::sleep(WAITED);
    let at = Instant::now();
    devices.kill();
    let known = known.join().map_err(|_| "the client panicked")?;
    kill_tree(&[server.root().id()]);
    let _ = server.root().wait();
    match devices {
        Devices::Three(group) => {
            group.signal_replicas(Signal::SIGCONT);
            group.remove()?;
        }
        Devices::One(_) => std::fs::remove_dir_all(place.folder()).map_err(|error| error.to_string())?,
    }
    known.checked_duration_since(at).ok_or_else(|| "its commits failed before the device died".to_owned())
}

/// So many deaths at each level.
///
/// # Errors
/// A program that does not start, or fails before.
pub fn check(campaign: &mut Campaign, database: &dyn Database, rounds: usize) -> Result<Times, String> {
    let mut times = Vec::new();
    for how in HOWS {
        let all: Result<Vec<Duration>, String> = (0..rounds).map(|_| round(campaign, database, how)).collect();
        times.push((how, all.map_err(|why| format!("{how:?}: {why}"))?));
    }
    Ok(Times { database: database.name(), times })
}
