//! The devices that a log can be on: one, those of a group, of which the primary takes what is appended, or those that
//! etcd knows of.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewater_driver::vfio_user::Patience;

#[cfg(feature = "etcd")]
use super::cluster::{self, Cluster};
use super::device::PATIENCE;
use crate::LogError;
use crate::log_error::Tried;

const SCHEME: &str = "vfio-user:";
/// How long a program that opens a list of devices waits for a primary: as long as a promotion takes.
pub(super) const FOUND_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// How long each device of a list may take to answer: others may be primary.
const GREETING: Duration = Duration::from_secs(1);
/// How long all were asked in vain before they are asked again.
const AGAIN: Duration = Duration::from_millis(20);
/// The same, if etcd is asked first.
const AGAIN_BY_ETCD: Duration = Duration::from_millis(200);

/// Where a log can be.
#[derive(Clone, Debug)]
pub(super) enum Devices {
    /// Sockets that the target names.
    Listed(Arc<[PathBuf]>),
    /// A cluster of which etcd says which device is primary.
    #[cfg(feature = "etcd")]
    Cluster(Arc<Cluster>),
}

/// Whether numbers with commas between them have this one.
#[cfg(feature = "etcd")]
fn is_named(numbers: &str, user: u32) -> bool {
    numbers.split(',').any(|number| number.trim().parse() == Ok(user))
}

impl Devices {
    /// The devices that a target names: `vfio-user:SOCKET`, several of these with a comma between two, or
    /// `cluster:etcd=HOST:PORT,HOST:PORT/NAME`.
    ///
    /// # Errors
    /// `Target`; `NoCluster`, if certificates for etcd can't be used.
    pub(super) fn of(target: &str) -> Result<Devices, LogError> {
        let wrong = || LogError::Target(target.to_owned());
        #[cfg(feature = "etcd")]
        if let Some(rest) = target.strip_prefix(cluster::SCHEME) {
            return Ok(Devices::Cluster(Arc::new(Cluster::parse(rest)?.ok_or_else(wrong)?)));
        }
        #[cfg(not(feature = "etcd"))]
        if let Some(name) = target.strip_prefix("cluster:") {
            let why = "this program was built without the feature `etcd` of tidewater-client".to_owned();
            return Err(LogError::NoCluster { name: name.to_owned(), why });
        }
        let rest = target.strip_prefix(SCHEME).ok_or_else(wrong)?;
        // A comma within a path begins no target.
        let sockets: Vec<PathBuf> = rest.split(&format!(",{SCHEME}")).map(PathBuf::from).collect();
        if sockets.iter().any(|path| path.as_os_str().is_empty()) {
            return Err(wrong());
        }
        Ok(Devices::Listed(sockets.into()))
    }

    /// One device.
    pub(super) fn one(path: Option<&Path>) -> Devices {
        Devices::Listed(path.map(Path::to_owned).into_iter().collect())
    }

    /// The device, if it is one alone.
    pub(super) fn single(&self) -> Option<&Path> {
        match self {
            Devices::Listed(sockets) => match &sockets[..] {
                [path] => Some(path),
                _ => None,
            },
            #[cfg(feature = "etcd")]
            Devices::Cluster(_) => None,
        }
    }

    /// Whether the log may move from one to another.
    pub(super) fn are_several(&self) -> bool {
        match self {
            Devices::Listed(sockets) => sockets.len() > 1,
            #[cfg(feature = "etcd")]
            Devices::Cluster(_) => true,
        }
    }

    /// Those that may be primary now.
    ///
    /// # Errors
    /// `Cluster`, `NoCluster`: etcd names none.
    pub(super) fn now(&self) -> Result<Vec<PathBuf>, LogError> {
        match self {
            Devices::Listed(sockets) => Ok(sockets.to_vec()),
            #[cfg(feature = "etcd")]
            Devices::Cluster(cluster) => cluster.sockets(),
        }
    }

    /// Whether a device of this user may be taken: a client that writes in etcd could name one of its own. For
    /// programs whose options name no users, their environment does.
    ///
    /// # Errors
    /// `Cluster`.
    pub(super) fn check_user(&self, path: &Path, user: u32, owners: &[u32]) -> Result<(), LogError> {
        match self {
            Devices::Listed(_) => Ok(()),
            #[cfg(feature = "etcd")]
            Devices::Cluster(cluster) => {
                let own = nix::unistd::geteuid().as_raw();
                let named = std::env::var(cluster::ALLOW_OWNER).unwrap_or_default();
                if [0, own].contains(&user) || owners.contains(&user) || is_named(&named, user) {
                    Ok(())
                } else {
                    Err(cluster.foreign(path, user))
                }
            }
        }
    }

    /// That none was the one.
    fn error(&self, tried: Vec<Tried>) -> LogError {
        match self {
            Devices::Listed(_) => LogError::NoPrimary { tried },
            #[cfg(feature = "etcd")]
            Devices::Cluster(cluster) => cluster.error(&tried),
        }
    }

    fn again(&self) -> Duration {
        if matches!(self, Devices::Listed(_)) { AGAIN } else { AGAIN_BY_ETCD }
    }

    /// How long a device may take to answer.
    pub(super) fn patience(&self) -> Patience {
        if self.are_several() { Patience { greeting: GREETING, ..PATIENCE } } else { PATIENCE }
    }
}

/// Whether another device may be the one.
fn is_another(why: &LogError) -> bool {
    matches!(
        why,
        LogError::Unreachable { .. }
            | LogError::Gone
            | LogError::Taken
            | LogError::NoReply { .. }
            | LogError::Secondary
            | LogError::Stale
            | LogError::Deposed
            | LogError::Store { .. }
    )
}

/// Takes the first device that is the one, and asks all again until the time is over.
///
/// # Errors
/// `NoPrimary`, which names all and why; `Cluster` and `NoCluster`, with what etcd says; what a device says that is the
/// one, and can't be used.
pub(super) fn first<T>(
    devices: &Devices,
    time: Duration,
    mut open: impl FnMut(&Path) -> Result<T, LogError>,
) -> Result<T, LogError> {
    let start = Instant::now();
    loop {
        let why = match devices.now() {
            Ok(sockets) => {
                let mut tried = Vec::new();
                for path in sockets {
                    match open(&path) {
                        Err(why) if is_another(&why) => tried.push(Tried { path, why }),
                        other => return other,
                    }
                }
                devices.error(tried)
            }
            Err(why) => why,
        };
        if start.elapsed() >= time || matches!(why, LogError::NoCluster { .. }) {
            return Err(why);
        }
        std::thread::sleep(devices.again());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_one_device_or_several() {
        let is = |target: &str, all: &[&str]| {
            let found = Devices::of(target).expect("a target").now().expect("a list");
            assert_eq!(found, all.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        is("vfio-user:a/vfio.sock", &["a/vfio.sock"]);
        is("vfio-user:/a,b", &["/a,b"]);
        is("vfio-user:/a,vfio-user:/b,c,vfio-user:d", &["/a", "/b,c", "d"]);
        for wrong in ["", "a", "vfio-user:", "vfio-user:a,vfio-user:", "pci:0000:01:00.0"] {
            assert!(Devices::of(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn a_device_of_another_user_is_taken_where_that_is_said() {
        let (cluster, listed) = ("cluster:etcd=127.0.0.1:1/shop", "vfio-user:/a");
        let check = |target: &str, user: u32, owners: &[u32]| {
            let devices = Devices::of(target).expect("a target");
            devices.check_user(Path::new("/a/vfio.sock"), user, owners)
        };
        let own = nix::unistd::geteuid().as_raw();
        for user in [0, own] {
            assert!(check(cluster, user, &[]).is_ok(), "{user}");
        }
        let other = own + 70_000;
        let why = check(cluster, other, &[other + 1]).expect_err("etcd may lie").to_string();
        assert!(why.contains(&format!("--allow-owner {other}")) && why.contains("/a/vfio.sock"), "{why}");
        assert!(why.contains(&format!("TIDEWATER_ALLOW_OWNER={other}")), "{why}");
        assert!(check(cluster, other, &[other]).is_ok());
        assert!(is_named("7, 107", 107) && is_named("107", 107));
        assert!(["", "10", "1070", "postgres", "-107", "107;"].iter().all(|numbers| !is_named(numbers, 107)));
        assert!(check(listed, other, &[]).is_ok(), "the user has named it");
    }

    #[test]
    fn all_devices_that_were_tried_are_named_with_the_reason() {
        let all = Devices::Listed([PathBuf::from("a"), PathBuf::from("b")].into());
        let open = |path: &Path| match path.to_str() {
            Some("a") => Err::<(), _>(LogError::Secondary),
            _ => Err(LogError::Gone),
        };
        let said = first(&all, Duration::ZERO, open).expect_err("none is primary").to_string();
        assert!(
            said.contains("a: the device is a secondary") && said.contains("b: the device has disconnected"),
            "{said}"
        );
        let busy = first(&all, Duration::from_secs(9), |_| Err::<(), _>(LogError::Busy { lane: 0 }));
        assert!(matches!(busy, Err(LogError::Busy { lane: 0 })), "it is the one, and in use");
    }
}
