//! Files of an identity that are replaced while the device runs: a thread looks at them, since a disk may not answer,
//! and the device's thread takes up what it finds.

use super::identity::{CA_FILE, CERTIFICATE_FILE, Identity, KEY_FILE, date};
use crate::inbox::Inbox;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate of a device, as its status and its metrics have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityState {
    /// Until when the certificate in use is valid, in seconds since 1970.
    pub expires: u64,
    /// Renewed files that were taken up since the device started.
    pub renewals: u64,
    /// Why the files that are there now are not used, in words.
    pub refused: Option<String>,
}

impl IdentityState {
    /// That instant in UTC.
    pub fn expires_on(&self) -> String {
        date(self.expires)
    }
}

/// Result of a look at the files.
pub(super) enum Found {
    /// An identity to be used from now on.
    Renewed(Box<Identity>),
    /// Files that can't be used, for this reason.
    Unusable(String),
    /// The files of the identity in use, again.
    Mended,
}

/// Tells one content of the three files from another without reading them: device, inode, size, and when they were
/// changed.
type Stamp = [Option<[i64; 5]>; 3];

/// The files of an identity, and which of them have been seen.
pub(super) struct Files {
    folder: PathBuf,
    cluster: String,
    node: u8,
    /// The content that is in use.
    content: u64,
    /// Whether the certificate in use was valid when it was read.
    in_time: bool,
    /// Content that needs no more reading.
    read: Option<Stamp>,
    /// Result of the last look. Files that change between two looks may be half-written, and a change within one tick
    /// of the file system's clock is seen by the second look.
    last: Option<Stamp>,
    /// Why the files are not used.
    refused: Option<String>,
}

impl Files {
    /// The files that `identity` was read from.
    pub(super) fn new(folder: PathBuf, cluster: &str, node: u8, identity: &Identity) -> Files {
        Files {
            folder,
            cluster: cluster.to_owned(),
            node,
            content: identity.content,
            in_time: identity.in_time,
            read: None,
            last: None,
            refused: None,
        }
    }

    fn stamp(&self) -> Stamp {
        [CA_FILE, CERTIFICATE_FILE, KEY_FILE].map(|file| {
            let about = std::fs::metadata(self.folder.join(file)).ok()?;
            let changed = [about.ctime(), about.ctime_nsec()];
            Some([about.dev() as i64, about.ino() as i64, about.size() as i64, changed[0], changed[1]])
        })
    }

    /// Looks at the files, and reads them if they have changed. Whole ones are used at once; a fault in them is named
    /// once two looks have seen the same files.
    pub(super) fn look(&mut self) -> Option<Found> {
        let stamp = self.stamp();
        if self.read == Some(stamp) {
            return None;
        }
        let is_settled = self.last.replace(stamp) == Some(stamp);
        let why = match Identity::load(&self.folder, &self.cluster, self.node) {
            // A certificate that is not valid yet may come to be so: it is read again.
            Ok(new) if !new.in_time && self.in_time && new.content != self.content => new.note,
            Ok(new) => {
                self.read = is_settled.then_some(stamp);
                self.in_time = new.in_time;
                let was_refused = self.refused.take().is_some();
                if std::mem::replace(&mut self.content, new.content) != new.content {
                    return Some(Found::Renewed(Box::new(new)));
                }
                return was_refused.then_some(Found::Mended);
            }
            Err(error) => {
                self.read = is_settled.then_some(stamp);
                Some(error.to_string())
            }
        };
        let why = why.filter(|why| is_settled && self.refused.as_ref() != Some(why))?;
        self.refused = Some(why.clone());
        Some(Found::Unusable(why))
    }
}

/// The way of what is found to the device's thread. The thread that looks ends when this is dropped.
pub(super) struct Renewals {
    found: Inbox<Found>,
    _lives: Sender<()>,
    /// State for the status.
    pub(super) taken: u64,
    pub(super) refused: Option<String>,
}

impl Renewals {
    /// Begins to look at files.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start(files: Files, found: Inbox<Found>) -> io::Result<Renewals> {
        let (lives, ends) = channel();
        let to = found.clone();
        std::thread::Builder::new().name("identity".into()).spawn(move || watch(files, &to, &ends))?;
        Ok(Renewals { found, _lives: lives, taken: 0, refused: None })
    }

    /// The next thing that was found.
    pub(super) fn take(&self) -> Option<Found> {
        self.found.take()
    }
}

fn watch(mut files: Files, to: &Inbox<Found>, ends: &Receiver<()>) {
    while ends.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if let Some(found) = files.look() {
            to.send(found);
        }
    }
}
