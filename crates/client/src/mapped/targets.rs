//! The devices that a log can be on: one, or those of a group, of which the primary takes what is appended.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidewater_driver::vfio_user::Patience;

use super::device::PATIENCE;
use super::log::Log;
use super::options::Options;
use super::ring::Recovered;
use crate::LogError;

const SCHEME: &str = "vfio-user:";
/// How long a program that opens a list of devices waits for a primary: as long as a promotion takes.
pub(super) const FOUND_WITHIN: Duration = Duration::from_secs(5);
/// How long each device of a list may take to answer: others may be primary.
const GREETING: Duration = Duration::from_secs(1);
/// How long all were asked in vain before they are asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// A device of a list that is not the one, and why.
#[derive(Debug)]
pub struct Tried {
    /// Its socket.
    pub path: PathBuf,
    /// Why it was not taken.
    pub why: LogError,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            // It has the path already.
            why @ LogError::Unreachable { .. } => why.fmt(f),
            why => write!(f, "{}: {why}", self.path.display()),
        }
    }
}

/// The sockets that a target names: `vfio-user:SOCKET`, or several of these with a comma between two.
///
/// # Errors
/// `Target`.
pub(super) fn sockets(target: &str) -> Result<Vec<PathBuf>, LogError> {
    let wrong = || LogError::Target(target.to_owned());
    let rest = target.strip_prefix(SCHEME).ok_or_else(wrong)?;
    // A comma within a path begins no target.
    let sockets: Vec<PathBuf> = rest.split(&format!(",{SCHEME}")).map(PathBuf::from).collect();
    if sockets.iter().any(|path| path.as_os_str().is_empty()) { Err(wrong()) } else { Ok(sockets) }
}

/// How long a device may take to answer, which is one of so many.
pub(super) fn patience(devices: usize) -> Patience {
    if devices > 1 { Patience { greeting: GREETING, ..PATIENCE } } else { PATIENCE }
}

/// Whether another device may be the one.
fn is_another(why: &LogError) -> bool {
    matches!(
        why,
        LogError::Unreachable { .. }
            | LogError::Gone
            | LogError::Taken
            | LogError::NoReply
            | LogError::Secondary
            | LogError::Stale
            | LogError::Deposed
    )
}

/// Takes the first device that is the one, and asks all again until the time is over.
///
/// # Errors
/// `NoPrimary`, which names all and why; what a device says that is the one, and can't be used.
pub(super) fn first<T>(
    sockets: &[PathBuf],
    time: Duration,
    mut open: impl FnMut(&Path) -> Result<T, LogError>,
) -> Result<T, LogError> {
    let start = Instant::now();
    loop {
        let mut tried = Vec::new();
        for path in sockets {
            match open(path) {
                Err(why) if is_another(&why) => tried.push(Tried { path: path.clone(), why }),
                other => return other,
            }
        }
        if start.elapsed() >= time {
            return Err(LogError::NoPrimary { tried });
        }
        std::thread::sleep(AGAIN);
    }
}

/// Opens the log on the primary of several devices.
///
/// # Errors
/// As [`first`].
pub(super) fn open(sockets: &[PathBuf], options: Options) -> Result<(Log, Recovered), LogError> {
    first(sockets, FOUND_WITHIN, |path| Log::open_one(path, sockets, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_one_device_or_several() {
        let named = |target: &str| sockets(target).map(|all| all.iter().map(|it| it.display().to_string()).collect());
        let is = |target: &str, all: &[&str]| assert_eq!(named(target).unwrap_or_else(|_: LogError| vec![]), all);
        is("vfio-user:a/vfio.sock", &["a/vfio.sock"]);
        is("vfio-user:/a,b", &["/a,b"]);
        is("vfio-user:/a,vfio-user:/b,c,vfio-user:d", &["/a", "/b,c", "d"]);
        for wrong in ["", "a", "vfio-user:", "vfio-user:a,vfio-user:", "pci:0000:01:00.0"] {
            assert!(sockets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_devices_that_were_tried_are_named_with_the_reason() {
        let all = [PathBuf::from("a"), PathBuf::from("b")];
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
