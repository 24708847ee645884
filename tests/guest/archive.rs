//! The folder of jobs as a guest reads it: a cpio archive ("newc", cpio(5)) on a disk of its own.

use std::fs;
use std::io;
use std::path::Path;

/// Bytes of the disk, whatever the archive's length: the same for every job. The `tidewater` command takes 76 MB of it
/// where its build is not optimized.
const DISK_LEN: usize = 128 << 20;

/// Kind bits of a mode, as in inode(7).
const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// An archive in the making.
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// An archive without files.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), entries: 0 }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let len = u32::try_from(content.len()).expect("a job's file is small");
        let name_len = u32::try_from(name.len() + 1).expect("names are short");
        // inode, mode, user, group, links, time, length, device (2), special device (2), length of the name, checksum
        // (unused).
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds a file, which may be run.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE, content);
    }

    /// Adds the shell scripts of a folder and of those in it, under `prefix`.
    pub fn scripts(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        let mut found = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        found.sort();
        for path in found {
            let name = path.file_name().and_then(|name| name.to_str()).expect("names of jobs are text");
            let name = format!("{prefix}{name}");
            if path.is_dir() {
                self.entry(&name, FOLDER, &[]);
                self.scripts(&path, &format!("{name}/"))?;
            } else if path.extension().is_some_and(|extension| extension == "sh") {
                self.file(&name, &fs::read(&path)?);
            }
        }
        Ok(())
    }

    /// Adds a folder with all that is in it, but for what version control keeps; a link becomes the file that it leads
    /// to.
    pub fn folder(&mut self, folder: &Path, name: &str) -> io::Result<()> {
        self.entry(name, FOLDER, &[]);
        let mut found = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        found.sort();
        for path in found {
            let Some(file) = path.file_name().and_then(|file| file.to_str()).filter(|file| *file != ".git") else {
                continue;
            };
            let name = format!("{name}/{file}");
            if path.is_dir() {
                self.folder(&path, &name)?;
            } else if let Ok(content) = fs::read(&path) {
                self.file(&name, &content);
            }
        }
        Ok(())
    }

    /// Writes the disk.
    pub fn write(mut self, disk: &Path) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, &[]);
        assert!(self.bytes.len() <= DISK_LEN, "the jobs need {} bytes, their disk has {DISK_LEN}", self.bytes.len());
        fs::write(disk, &self.bytes)?;
        fs::OpenOptions::new().write(true).open(disk)?.set_len(DISK_LEN as u64)
    }
}
