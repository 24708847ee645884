//! Logs with forged records, which no shim has made.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options};
use tidewater_files::identify;
use tidewater_wire::log::{FileBind, FileChange, FileChangeKind, FileSaid, FileSession};

/// Puts records on the log of a device without a client.
pub fn forge(target: &str, records: &[Vec<u8>]) {
    let log = Log::open(target, Options { level: Some(Level::Ring), ..Options::default() })
        .expect("the log has no other writer");
    for record in records {
        log.append(&[record]).expect("there is room");
    }
}

fn head(kind: FileChangeKind, len: u64) -> Vec<u8> {
    FileChange { kind, id: 1, len, ..FileChange::default() }.to_bytes().to_vec()
}

/// That the file with the number 1 is this one, and has this name.
pub fn bind(file: &Path, name: &Path) -> Vec<u8> {
    bound(file, name, FileSaid::Unsaid)
}

/// That this file has come into the set, empty, with the number 1.
pub fn entered(file: &Path) -> Vec<u8> {
    bound(file, file, FileSaid::Entered)
}

fn bound(file: &Path, name: &Path, said: FileSaid) -> Vec<u8> {
    let is = identify(File::open(file).expect("the file can be opened").as_fd()).expect("the file has an identity");
    let name = name.as_os_str().as_bytes();
    let is = FileBind { path_bytes: name.len() as u16, said, ..is };
    [&head(FileChangeKind::Bind, 0)[..], &is.to_bytes(), name].concat()
}

/// That a run begins.
pub fn session() -> Vec<u8> {
    [&head(FileChangeKind::Session, 0)[..], &FileSession::default().to_bytes()].concat()
}

/// That these bytes were written to the begin of the file with the number 1.
pub fn write(bytes: &[u8]) -> Vec<u8> {
    [&head(FileChangeKind::Write, bytes.len() as u64)[..], bytes].concat()
}
