//! Machines: network namespaces without a name, which go with the test, each with one interface to the relay.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns, unshare};

use super::relay::{Fired, Relay, Weather};
use super::tun;

/// Machines, and what joins them.
pub struct Machines {
    namespaces: Vec<File>,
    relay: Arc<Relay>,
    carrier: Option<JoinHandle<()>>,
}

/// A namespace with one interface, that has the address of a machine.
fn machine(number: u8) -> Result<(File, File), String> {
    let made = std::thread::spawn(move || {
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| failed("no network namespaces", &error))?;
        let namespace = File::open("/proc/thread-self/ns/net").map_err(|error| failed("no namespace", &error))?;
        let interface = tun::open().map_err(|error| failed("no TUN interface", &error))?;
        let address = format!("{}/24", Machines::address(number));
        for line in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &address, "dev", tun::NAME],
            &["link", "set", tun::NAME, "up"],
        ] {
            let output = Command::new("ip").args(line).output().map_err(|error| failed("no `ip`", &error))?;
            if !output.status.success() {
                return Err(failed("ip", &String::from_utf8_lossy(&output.stderr)));
            }
        }
        Ok((namespace, interface))
    });
    made.join().expect("no panic")
}

impl Machines {
    /// Machines of which each reaches each.
    ///
    /// # Errors
    /// Why there can be none here, in words.
    pub fn new(number: u8, seed: u64) -> Result<Machines, String> {
        let (namespaces, interfaces) = (0..number).map(machine).collect::<Result<(Vec<_>, Vec<_>), _>>()?;
        let relay = Arc::new(Relay::new(usize::from(number), seed));
        let of = Arc::clone(&relay);
        // An IPv4 packet has its destination at byte 16; ours end in the machine's number, from 1.
        let receiver = |packet: &[u8]| match packet {
            [0x45, ..] if packet.get(16..19) == Some(&[10, 77, 0]) => packet.get(19)?.checked_sub(1).map(usize::from),
            _ => None,
        };
        let carrier = std::thread::spawn(move || of.run(&interfaces, receiver));
        Ok(Machines { namespaces, relay, carrier: Some(carrier) })
    }

    /// The address of a machine.
    pub fn address(machine: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, machine + 1)
    }

    /// Does something on a machine, as far as its network is concerned: processes that it starts are there for good.
    pub fn within<T: Send>(&self, machine: u8, act: impl FnOnce() -> T + Send) -> T {
        let namespace = &self.namespaces[usize::from(machine)];
        std::thread::scope(|scope| {
            let on_it = scope.spawn(|| {
                setns(namespace, CloneFlags::CLONE_NEWNET).expect("the namespace can be entered");
                act()
            });
            on_it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Sets the faults of packets from one machine to another.
    pub fn weather(&self, from: u8, to: u8, weather: Weather) {
        self.relay.set(from, to, weather);
    }

    /// Sets the faults of packets between two machines.
    pub fn between(&self, one: u8, other: u8, weather: Weather) {
        self.weather(one, other, weather);
        self.weather(other, one, weather);
    }

    /// Sets the faults of all packets between some machines.
    pub fn among(&self, machines: impl Iterator<Item = u8> + Clone, weather: Weather) {
        for from in machines.clone() {
            machines.clone().for_each(|to| self.weather(from, to, weather));
        }
    }

    /// A machine is reached by none, and reaches none.
    pub fn isolate(&self, machine: u8, weather: Weather) {
        (0..self.namespaces.len() as u8).for_each(|other| self.between(machine, other, weather));
    }

    /// Faults that packets from one machine to another have met.
    pub fn fired(&self, from: u8, to: u8) -> Fired {
        self.relay.fired(from, to)
    }

    /// Faults that all packets have met.
    pub fn fired_in_all(&self) -> Fired {
        let mut all = Fired::default();
        let number = self.namespaces.len() as u8;
        (0..number).for_each(|from| (0..number).for_each(|to| all += self.fired(from, to)));
        all
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.relay.end();
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}
