//! Syncs seen by the library `tests/programs/spy.c`, and a loss of power by it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// All files of a folder get back what was really synced last, in place.
pub fn lose_power(files: &Path, shadow: &Path) {
    for entry in fs::read_dir(files).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        let about = path.metadata().expect("a file");
        // A marker is synced before it gets its name, where a file is renamed into the set by a call past the library.
        let is_marker = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tidewater-log-"));
        if !about.is_file() || is_marker {
            continue;
        }
        // An inode that is used again is another file's.
        let born =
            about.created().expect("the file system keeps birth times").duration_since(UNIX_EPOCH).expect("after 1970");
        let name = format!("{}-{}.{:09}", about.ino(), born.as_secs(), born.subsec_nanos());
        let kept = fs::read(shadow.join(name)).unwrap_or_default();
        let mut file = OpenOptions::new().write(true).truncate(true).open(&path).expect("the file can be written");
        file.write_all(&kept).expect("there is room");
    }
}
