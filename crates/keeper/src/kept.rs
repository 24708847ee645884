//! What a keeper remembers of etcd in a file of its own, so that it refuses one whose data is not what it was.

use crate::keys::Cluster;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// etcd's own number of its cluster.
    pub cluster_id: Option<u64>,
    /// The key `identity`.
    pub identity: Option<String>,
    /// The highest revision that was read.
    pub revision: i64,
    /// This keeper's lease; 0: none.
    pub lease: i64,
}

/// What a read of etcd says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number of its cluster.
    pub cluster_id: u64,
    /// Its revision.
    pub revision: i64,
}

impl Known {
    /// The memory of the keeper whose file this is, if there is one: for others than that keeper.
    pub fn of(path: &Path) -> Option<Known> {
        let text = path.is_file().then(|| std::fs::read(path).ok())??;
        serde_json::from_slice(&text).ok()
    }

    /// Takes in what etcd says of itself.
    ///
    /// # Errors
    /// In words, when it is another etcd, or an older one, than before.
    pub fn check(&mut self, seen: Seen, cluster: &Cluster) -> Result<(), String> {
        let wrong = |what: String| {
            Err(format!("{what}; nothing it says counts. If that is meant, start each keeper once with --new-etcd"))
        };
        if let Some(before) = self.cluster_id.filter(|&before| before != seen.cluster_id) {
            return wrong(format!(
                "etcd's cluster id was {before:x} and is {:x}: it is another etcd, or its data was wiped",
                seen.cluster_id
            ));
        }
        if seen.revision < self.revision {
            return wrong(format!(
                "etcd's revision went back from {} to {}: its data was wiped, or is an old snapshot's",
                self.revision, seen.revision
            ));
        }
        if self.identity.is_some() && self.identity != cluster.identity {
            return wrong("etcd has lost its keys of this cluster, or has another cluster's of this name".to_owned());
        }
        *self = Known {
            cluster_id: Some(seen.cluster_id),
            identity: cluster.identity.clone(),
            revision: seen.revision,
            lease: self.lease,
        };
        Ok(())
    }
}

/// The file, which one keeper has at a time.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    _lock: Flock<File>,
    stored: Known,
}

/// Revisions between two writes of the file that nothing else asks for.
const REVISIONS: i64 = 32;

impl Kept {
    /// Opens the file, or begins one.
    ///
    /// # Errors
    /// In words: it can't be read, or another keeper has it.
    pub fn open(path: &Path) -> Result<(Kept, Known), String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let lock = OpenOptions::new().create(true).append(true).open(path.with_extension("lock"));
        let lock = Flock::lock(lock.map_err(|error| at(&error))?, FlockArg::LockExclusiveNonblock)
            .map_err(|_| at(&"another keeper of this device runs"))?;
        let stored = match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                at(&format_args!("{error}; it is no keeper's memory: remove it, and start with --new-etcd"))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Known::default(),
            Err(error) => return Err(at(&error)),
        };
        Ok((Kept { path: path.to_owned(), _lock: lock, stored: Known::clone(&stored) }, stored))
    }

    /// Whether the file names the data that it is of: else an etcd that was replaced would not be noticed.
    pub fn has_identity(&self) -> bool {
        self.stored.identity.is_some()
    }

    /// Writes what is new, whole or not at all.
    ///
    /// # Errors
    /// In words.
    pub fn store(&mut self, known: &Known) -> Result<(), String> {
        let same = Known { revision: self.stored.revision, ..known.clone() } == self.stored;
        if same && (0..REVISIONS).contains(&(known.revision - self.stored.revision)) {
            return Ok(());
        }
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let text = serde_json::to_vec(known).map_err(|error| at(&error))?;
        let new = self.path.with_extension("new");
        // It is on the disk before it has the name: an empty file by that would be no keeper's memory.
        let file = File::create(&new).and_then(|mut file| file.write_all(&text).map(|()| file));
        file.and_then(|file| file.sync_all()).map_err(|error| at(&error))?;
        std::fs::rename(&new, &self.path).map_err(|error| at(&error))?;
        self.stored = known.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(identity: &str) -> Cluster {
        Cluster { identity: Some(identity.into()), ..Cluster::default() }
    }

    #[test]
    fn an_etcd_that_is_not_what_it_was_is_refused_by_name() {
        let mut known = Known::default();
        let seen = Seen { cluster_id: 0xabc, revision: 70 };
        assert_eq!(known.check(seen, &cluster("i")), Ok(()));
        assert_eq!(known.check(Seen { revision: 71, ..seen }, &cluster("i")), Ok(()));
        let before = known.clone();
        for (seen, identity, what) in [
            (Seen { cluster_id: 0xdef, revision: 90 }, "i", "cluster id was abc and is def"),
            (Seen { revision: 70, ..seen }, "i", "went back from 71 to 70"),
            (Seen { revision: 90, ..seen }, "j", "another cluster's"),
        ] {
            let refused = known.check(seen, &cluster(identity)).unwrap_err();
            assert!(refused.contains(what) && refused.contains("--new-etcd"), "{refused}");
            assert_eq!(known, before);
        }
        assert!(known.check(Seen { revision: 90, ..seen }, &Cluster::default()).is_err(), "wiped");
    }
}
