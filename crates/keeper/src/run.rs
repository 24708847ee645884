//! A keeper at work: it looks at its device and at etcd, decides, and carries that out.

use crate::decide::{Action, Decision, Memory, View, decide};
use crate::device::{self, Control, Device};
use crate::epoch::Epoch;
use crate::job::{At, Keep};
use crate::kept::{Kept, Known};
use crate::keys::{Cluster, Intent, Leader, Member};
use crate::page::Page;
use crate::program::Order;
use crate::program::client::{self, Program};
use crate::store::{Shared, Store, watch};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewater_base::units::printable;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The version of this keeper.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How soon it looks again at what is about to change.
const SOON: Duration = Duration::from_millis(20);

/// Keeps a device until it is ended by a signal.
///
/// # Errors
/// In words, when it can't begin.
pub async fn run(at: At, keep: Keep) -> Result<(), String> {
    keep.check()?;
    let page = open_page(&keep, &at)?;
    let folder = keep.state.parent().unwrap_or(&keep.state).to_owned();
    if !folder.exists() {
        // The device makes it; until then a signal ends this process.
        let _ = writeln!(std::io::stderr(), "keeper: waits for the device, whose folder is {}", folder.display());
        while !folder.exists() {
            sleep(keep.loop_wait()).await;
        }
    }
    let (kept, known) = Kept::open(&keep.state)?;
    let known = if keep.new_etcd { Known::default() } else { known };
    let changed = Arc::new(Notify::new());
    let store = Store::new(&at, keep.retry_timeout());
    tokio::spawn(keep_watching(at.clone(), store.tls(), keep.clone(), Arc::clone(&changed)));
    let failed = |error: std::io::Error| format!("can't wait for signals: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut keeper = Keeper {
        control: Control { path: keep.control.clone(), function: at.function, patience: keep.retry_timeout() },
        store,
        started: Instant::now(),
        memory: Memory::default(),
        unkept: None,
        note: String::new(),
        node: None,
        page,
        renewed: None,
        program: keep.program.clone().map(|socket| Program::new(socket, keep.ttl())),
        kept,
        known,
        keep,
    };
    if let Some(program) = &mut keeper.program {
        program.order(&Order::Look).await;
    }
    loop {
        let soon = keeper.turn().await;
        tokio::select! {
            () = sleep(if soon { SOON } else { keeper.keep.loop_wait() }) => {}
            () = changed.notified() => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    keeper.say("ends; a primary acknowledges until its deadline: start the keeper again, or pause the cluster before");
    Ok(())
}

/// Serves the public side of this cluster, where that was asked for; says where it is.
fn open_page(keep: &Keep, at: &At) -> Result<Page, String> {
    let (title, cluster) = match at.function {
        0 => (format!("Cluster {}", at.cluster), at.cluster.clone()),
        function => (format!("Cluster {}, function {function}", at.cluster), format!("{}:{function}", at.cluster)),
    };
    let page = Page::default();
    if let Some(address) = keep.page {
        let address = page.open(address, &title).map_err(|error| format!("no page at {address}: {error}"))?;
        let _ = writeln!(std::io::stderr(), "keeper: watch it: http://{address}/");
    }
    if let Some(address) = keep.metrics {
        let failed = |error: std::io::Error| format!("no metrics at {address}: {error}");
        let address = page.answer(address, cluster).map_err(failed)?;
        let _ = writeln!(
            std::io::stderr(),
            "keeper: metrics: http://{address}/metrics; /primary there answers 200 while the device is primary"
        );
    }
    Ok(page)
}

/// Wakes the keeper when something changes. Without it, the keeper looks in turn.
async fn keep_watching(at: At, tls: Shared, keep: Keep, changed: Arc<Notify>) {
    for which in 0.. {
        // Why it ended, a read will say.
        let _ = watch(&at, &tls, which, keep.retry_timeout(), || changed.notify_one()).await;
        sleep(keep.loop_wait()).await;
    }
}

struct Keeper {
    keep: Keep,
    control: Control,
    store: Store,
    started: Instant,
    memory: Memory,
    kept: Kept,
    known: Known,
    /// Why the file of what it knows of etcd is old.
    unkept: Option<String>,
    /// What it said last.
    note: String,
    /// The device's number, once it is known.
    node: Option<u8>,
    /// The public side.
    page: Page,
    /// When etcd was last asked to renew the lease, and did.
    renewed: Option<Instant>,
    /// The program that follows the primary.
    program: Option<Program>,
}

impl Keeper {
    /// Looks, decides, and acts. True: something is about to change.
    async fn turn(&mut self) -> bool {
        // The device's clock is read before the lease is renewed: a deadline that is counted from it never outlasts the
        // lease, however long this process stands still from here on.
        let looked = Instant::now();
        let device = self.control.status().await;
        if let Ok(device) = &device {
            self.node = Some(device.node);
        }
        let certificate = self.store.look_at_certificates();
        let patience = self.keep.retry_timeout();
        let cluster = timeout(patience, self.ask_each(device.as_ref().ok())).await;
        let late = || format!("no answer within {} ms", patience.as_millis());
        let cluster = cluster.unwrap_or_else(|_| Err(late()));
        let view = View {
            now_ms: self.started.elapsed().as_millis() as u64,
            device: device.as_ref().map_err(String::as_str),
            cluster: cluster.as_ref().map_err(String::as_str),
            keep: &self.keep,
            program: None,
        };
        let trouble = self.program.as_ref().and_then(|program| program.trouble(self.keep.ttl()));
        let view = View { program: trouble.as_deref(), ..view };
        let decision = decide(&view, &mut self.memory);
        let order = client::order(&view, &decision);
        let Decision { actions, mut note, soon } = decision;
        if let Some(program) = &self.program {
            note = format!("{note}; {}", program.in_words());
        }
        if let Some(why) = &self.unkept {
            note = format!("{note}; {why}");
        }
        if let Some(why) = &certificate.refused {
            note = format!("{note}; the new files of its certificate are not used: {why}");
        }
        self.say(&note);
        self.page.certificate(certificate);
        let cluster = cluster.as_ref().map_err(String::as_str);
        self.page.take(&self.keep, (self.node, &self.note), cluster, self.renewed);
        self.page.look(device.as_ref().ok(), looked, self.keep.ttl());
        // The program is gone before another may lead; it is granted time once the device has taken it.
        if let Some(program) = &mut self.program
            && actions.iter().any(client::ends_leadership)
            && !program.is_stopped(self.keep.stop_ms).await
        {
            self.say(&format!("{note}; waits for the end of the program before it gives leadership up"));
            return true;
        }
        for action in actions {
            let deadline = match action {
                Action::Device(device::Order::Lead { for_ms, .. }) => Some(looked + Duration::from_millis(for_ms)),
                _ => None,
            };
            let done = self.carry_out(action).await;
            if let Some(deadline) = deadline.filter(|_| done == Ok(true)) {
                self.page.acknowledges_until(deadline);
            }
            match done {
                Ok(true) => {}
                // Another was faster.
                Ok(false) => return true,
                Err(why) => {
                    self.say(&format!("{note}; failed: {why}"));
                    return false;
                }
            }
        }
        if let Some(program) = &mut self.program {
            program.order(&order).await;
            self.page.program(program.report.as_ref().ok());
        }
        soon
    }

    /// Asks one member of etcd after the other.
    async fn ask_each(&mut self, device: Option<&Device>) -> Result<Cluster, String> {
        let mut failed = Vec::new();
        for _ in 0..self.store.members() {
            match self.look(device).await {
                Ok(cluster) => return Ok(cluster),
                Err(why) => failed.push(why),
            }
        }
        Err(failed.join("; "))
    }

    /// Renews the lease, and reads what there is of the cluster; writes how the device stands.
    async fn look(&mut self, device: Option<&Device>) -> Result<Cluster, String> {
        let asked = Instant::now();
        self.known.lease = self.store.renew(self.known.lease, self.keep.ttl()).await?;
        self.renewed = Some(asked);
        let lease = self.known.lease;
        let (mut cluster, seen) = self.store.read(lease).await?;
        if cluster.identity.is_none() && self.known.identity.is_none() {
            self.store.begin(self.store.keys.identity(), identity()?.into_bytes(), 0).await?;
            cluster = self.store.read(lease).await?.0;
        }
        // A keeper that refuses writes nothing: each write would raise the revision that it refuses by.
        self.known.check(seen, &cluster)?;
        self.unkept = match self.kept.store(&self.known) {
            // A full disk must not keep others from leading: this lease was renewed. A restart knows of an older etcd.
            Err(why) if self.kept.has_identity() => Some(why),
            stored => stored.map(|()| None)?,
        };
        if let Some(node) = self.node {
            let member = self.member(node, device);
            self.store.put(self.store.keys.member(node), &member, lease).await?;
            cluster.members.insert(node, member);
        }
        Ok(cluster)
    }

    fn member(&self, node: u8, device: Option<&Device>) -> Member {
        Member {
            node,
            address: self.keep.address.clone(),
            role: device.map(|device| device.role),
            epoch: device.map_or(Epoch::default(), |device| device.epoch),
            synced: device.map_or(Epoch::default(), |device| device.synced),
            promised: device.map_or(Epoch::default(), |device| device.promised),
            tail: device.map_or(Vec::new(), |device| device.tail.clone()),
            // A primary's flag may be of one of its replicas.
            stale: device.is_some_and(|device| device.stale && device.role == crate::device::Role::Secondary),
            frozen: device.is_some_and(Device::is_frozen),
            leaderless_ms: self.memory.leaderless_ms(self.started.elapsed().as_millis() as u64),
            version: match device.and_then(|device| device.version.as_deref()) {
                Some(device) if device != VERSION => format!("{VERSION}, its device {device}"),
                _ => VERSION.to_owned(),
            },
            disk: device.and_then(|device| device.disk.state.clone()),
            slow: self.memory.is_slow(self.started.elapsed().as_millis() as u64, &self.keep),
            note: self.note.clone(),
        }
    }

    /// False: the key is another's.
    async fn carry_out(&mut self, action: Action) -> Result<bool, String> {
        let (lease, node) = (self.known.lease, self.node.unwrap_or_default());
        let keys = self.store.keys.clone();
        match action {
            Action::Device(order) => self.control.order(&order).await.map(|()| true),
            Action::Acquire => {
                let leader = Leader { node, epoch: Epoch::default() };
                self.store.begin_with(keys.leader(), &leader, lease).await
            }
            Action::Release => self.store.remove_own(keys.leader(), lease).await,
            Action::NoteEpoch(epoch) => self.store.put_own(keys.leader(), &Leader { node, epoch }, lease).await,
            Action::NoteGroup(group) => self.store.begin_with(keys.group(), &group, 0).await,
            Action::Intend(to) => {
                // It vanishes with the time that the others stand back for.
                let lease = self.store.lease_once(self.keep.ttl()).await?;
                self.store.put(keys.intent(), &Intent { to: Some(to) }, lease).await.map(|()| true)
            }
            Action::EndIntent => self.store.remove(keys.intent()).await.map(|()| true),
            Action::EndReinit => self.store.remove(keys.reinit(node)).await.map(|()| true),
        }
    }

    /// Says what is new.
    fn say(&mut self, note: &str) {
        let note = &printable(note);
        if *note != self.note {
            note.clone_into(&mut self.note);
            let node = self.node.map_or_else(|| "keeper".to_owned(), |node| format!("keeper of node {node}"));
            // A reader that is gone is no reason to leave the device alone.
            let _ = writeln!(std::io::stderr(), "{node}: {note}");
        }
    }
}

/// A text that no other cluster has.
fn identity() -> Result<String, String> {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
