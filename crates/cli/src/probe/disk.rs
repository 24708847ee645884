//! A real drive as the target of a probe: a block device or a file, past the host's page cache.

use crate::failure::{Failure, reason};
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;
use tidewater_base::{Duration, Rng};
use tidewater_probe::{About, CAPACITY_MIN, HostMemory, Lend, Op, Request, Target, TargetError, Timed};

/// Direct transfers are aligned to this in memory and in the file: no drive has larger blocks.
const ALIGN: usize = 4_096;
/// The most that one request moves: what every Linux driver takes at once.
const LARGEST: u64 = 128 << 10;

const IN_USE: &str = "the probe never writes to a drive in use, even with --destroy";

/// A file or block device that is opened past the page cache.
pub struct Disk {
    file: File,
    about: About,
    /// Why it must not be written to.
    kept: Result<(), String>,
    began: Instant,
    /// The kernel's attribute that lends the drive memory and takes it back, where it does: `1` is in it.
    lending: Option<PathBuf>,
    /// Data of writes: bytes that no drive can compress.
    noise: Vec<u8>,
}

impl Disk {
    /// Opens what is at `path`; to be written to only if `destroy` says that its data may be lost.
    ///
    /// # Errors
    /// When it is neither a file nor a block device, cannot be opened past the page cache, or is in use although its
    /// data may be lost.
    pub fn open(path: &Path, destroy: bool) -> Result<Disk, Failure> {
        let name = path.display().to_string();
        let wrong = |why: &str| Failure::usage(format_args!("{name}: {why}"));
        let metadata = std::fs::metadata(path).map_err(|error| wrong(&reason(&error)))?;
        let kind = match metadata.file_type() {
            kind if kind.is_block_device() => "block device",
            kind if kind.is_file() => "regular file",
            _ => return Err(wrong("is neither a file nor a block device")),
        };
        let device = kind == "block device";
        if destroy
            && device
            && let Some(use_) = in_use(path, metadata.rdev())
        {
            return Err(wrong(&use_).help(IN_USE));
        }
        use nix::fcntl::OFlag;
        // On a block device, O_EXCL: no other holder now or later.
        let alone = if destroy && device { OFlag::O_EXCL } else { OFlag::empty() };
        let mut file = OpenOptions::new()
            .read(true)
            .write(destroy)
            .custom_flags((OFlag::O_DIRECT | alone).bits())
            .open(path)
            .map_err(|error| {
                if error.raw_os_error() == Some(nix::libc::EBUSY) {
                    return wrong("is in use").help(IN_USE);
                }
                wrong(&format!("cannot be opened past the page cache (O_DIRECT): {}", reason(&error))).help(
                    "choose a file on a disk's file system that you may read; one in memory (tmpfs) has no drive \
                           behind it",
                )
            })?;
        let capacity = file.seek(SeekFrom::End(0)).map_err(|error| wrong(&reason(&error)))? / LARGEST * LARGEST;
        if capacity < CAPACITY_MIN {
            return Err(super::too_small(path));
        }
        // The kernel need not have read it: a table on disk is enough.
        if destroy && device && partition_table(&file).map_err(|error| wrong(&reason(&error)))? {
            return Err(
                wrong("has a partition table").help("if its data is not needed, remove the table with `wipefs -a`")
            );
        }
        let kept = if destroy {
            Ok(())
        } else {
            Err("it may hold data; --destroy DATA-LOSS-CONFIRMED allows the probe to overwrite all of it".to_owned())
        };
        let mut rng = Rng::new(std::process::id().into(), b"incompressible");
        let noise = (0..LARGEST as usize / 8 + ALIGN / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let about =
            About { name, kind: kind.into(), capacity, block: ALIGN as u64, largest: LARGEST, deallocates: true };
        let lending = if device { lending(metadata.rdev()) } else { None };
        Ok(Disk { file, about, kept, began: Instant::now(), lending, noise })
    }

    /// Does one request. `buffer` has room for the largest behind an aligned place.
    fn one(&self, request: &Request, buffer: &mut [u8]) -> std::io::Result<()> {
        let length = request.length as usize;
        match request.op {
            Op::Read => self.file.read_exact_at(&mut buffer[..length], request.offset),
            Op::Write => self.file.write_all_at(&buffer[..length], request.offset),
            Op::Flush => self.file.sync_data(),
            Op::Deallocate => {
                use nix::fcntl::{FallocateFlags, fallocate};
                let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                fallocate(&self.file, how, request.offset as i64, request.length as i64).map_err(std::io::Error::from)
            }
        }
    }

    /// Takes requests from the list until it is empty.
    fn worker(
        &self,
        requests: &[Request],
        next: &AtomicUsize,
        done: &Mutex<Vec<(usize, Timed)>>,
        together: &Barrier,
    ) -> Result<(), TargetError> {
        let mut memory = self.noise.clone();
        let skip = memory.as_ptr().align_offset(ALIGN);
        let buffer = &mut memory[skip..skip + LARGEST as usize];
        // To start a thread takes as long as to read a page: all begin at once.
        together.wait();
        let began = Instant::now();
        let mut own = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = requests.get(index) else { break };
            let submitted = began.elapsed();
            self.one(request, buffer)
                .map_err(|error| TargetError(format!("{:?} at {}: {}", request.op, request.offset, reason(&error))))?;
            own.push((index, Timed { submitted: time(submitted), ended: time(began.elapsed()) }));
        }
        done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(own);
        Ok(())
    }
}

fn time(real: std::time::Duration) -> Duration {
    Duration::from_ns(u64::try_from(real.as_nanos()).unwrap_or(u64::MAX / 1_000))
}

/// The attribute `hmb` of the NVMe controller behind a block device, while it says that memory is lent.
fn lending(rdev: u64) -> Option<PathBuf> {
    let (major, minor) = (nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev));
    let disk = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // Of a namespace, the controller; of a partition, the namespace lies between.
    ["device/hmb", "../device/hmb"]
        .map(|way| disk.join(way))
        .into_iter()
        .find(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "1"))
}

/// Who uses a block device: it, or a part of it, is mounted, swapped to, or part of another device.
fn in_use(path: &Path, rdev: u64) -> Option<String> {
    let canonical = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (major, minor) = (nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev));
    let lists = [("/proc/self/mounts", "is mounted"), ("/proc/swaps", "is swapped to")];
    let lists = lists.map(|(list, what)| (std::fs::read_to_string(list).unwrap_or_default(), what));
    let lists = lists.iter().map(|(text, what)| (text.as_str(), *what));
    used_as(&canonical, &PathBuf::from(format!("/sys/dev/block/{major}:{minor}")), lists)
}

/// Whether a partition table is at the start of a file that is open for direct access.
fn partition_table(file: &File) -> std::io::Result<bool> {
    let mut room = vec![0; 2 * ALIGN + ALIGN];
    let aligned = room.as_ptr().align_offset(ALIGN);
    let start = &mut room[aligned..aligned + 2 * ALIGN];
    file.read_exact_at(start, 0)?;
    Ok(is_partitioned(start))
}

/// Whether the first two blocks, of 512 or 4,096 bytes, are those of a disk with partitions: a GUID table's header is
/// in the second block; a master boot record ends with 55h AAh and has an entry with a type, a first block and blocks.
/// Code in front of a file system ends like that too, but seldom has such an entry: then the answer errs on the safe
/// side.
fn is_partitioned(start: &[u8]) -> bool {
    let guid = [512, ALIGN].iter().any(|&at| start.get(at..at + 8) == Some(b"EFI PART"));
    let record = start.get(510..512) == Some(&[0x55, 0xaa])
        && start[446..510].chunks_exact(16).any(|entry| {
            let is_set = |field: &[u8]| field.iter().any(|byte| *byte != 0);
            entry[0] & 0x7f == 0 && entry[4] != 0 && is_set(&entry[8..12]) && is_set(&entry[12..16])
        });
    guid || record
}

/// The same, from the kernel's directory of the device and its lists of devices, each with what stands in it.
fn used_as<'a>(device: &Path, sys: &Path, lists: impl IntoIterator<Item = (&'a str, &'static str)>) -> Option<String> {
    for entry in std::fs::read_dir(sys).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            return Some(format!("has partitions ({})", entry.file_name().to_string_lossy()));
        }
    }
    if std::fs::read_dir(sys.join("holders")).is_ok_and(|mut holders| holders.next().is_some()) {
        return Some("is part of another device (LVM, RAID or encryption)".into());
    }
    for (text, what) in lists {
        let used = text.lines().filter_map(|line| line.split_whitespace().next());
        if used.filter_map(|used| std::fs::canonicalize(used).ok()).any(|used| used == device) {
            return Some(what.into());
        }
    }
    None
}

impl Target for Disk {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn run(&mut self, requests: &[Request], depth: u32, timed: &mut Vec<Timed>) -> Result<(), TargetError> {
        if requests.iter().any(|request| matches!(request.op, Op::Write | Op::Deallocate)) {
            self.kept.clone().map_err(TargetError)?;
        }
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(requests.len())));
        let workers = (depth.clamp(1, 64) as usize).min(requests.len().max(1));
        let together = Barrier::new(workers);
        if workers == 1 {
            self.worker(requests, &next, &done, &together)?;
        } else {
            std::thread::scope(|scope| {
                let handles: Vec<_> =
                    (0..workers).map(|_| scope.spawn(|| self.worker(requests, &next, &done, &together))).collect();
                handles.into_iter().try_for_each(|handle| {
                    handle.join().unwrap_or_else(|_| Err(TargetError("a thread of the probe failed".into())))
                })
            })?;
        }
        let mut all = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.sort_unstable_by_key(|(index, _)| *index);
        timed.extend(all.into_iter().map(|(_, time)| time));
        Ok(())
    }

    fn idle(&mut self, time: Duration) -> Result<(), TargetError> {
        std::thread::sleep(std::time::Duration::from_nanos(time.as_ns()));
        Ok(())
    }

    fn now(&self) -> Duration {
        time(self.began.elapsed())
    }

    fn writable(&self) -> Result<(), String> {
        self.kept.clone()
    }

    fn host_memory(&self) -> HostMemory {
        match &self.lending {
            Some(attribute) if attribute.metadata().is_ok_and(|file| !file.permissions().readonly()) => {
                HostMemory::Switch
            }
            Some(attribute) => HostMemory::Cannot(format!("{} can only be changed by root", attribute.display())),
            None => HostMemory::Cannot(
                "the kernel has no attribute that takes the host's memory back from this target (`hmb` of an NVMe \
                 controller)"
                    .into(),
            ),
        }
    }

    fn set_host_memory(&mut self, lend: Lend) -> Result<(), TargetError> {
        let Some(attribute) = &self.lending else {
            return Err(TargetError("the kernel has no attribute for the host's memory of this target".into()));
        };
        let word = match lend {
            Lend::Nothing => "0",
            Lend::AsFound => "1",
            Lend::Bytes(_) => return Err(TargetError("the kernel lends all that a drive asks for, or nothing".into())),
        };
        std::fs::write(attribute, word)
            .map_err(|error| TargetError(format!("{}: {}", attribute.display(), reason(&error))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own on the disk that the sources are on: what is in memory knows no direct access.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let target = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"));
            let folder = target.join(format!("probe-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Folder(std::fs::canonicalize(folder).unwrap())
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_mounted_swapped_to_partitioned_or_held_is_in_use() {
        let folder = Folder::new("use");
        let (device, other, sys) = (folder.file("disk"), folder.file("other"), folder.file("sys"));
        for file in [&device, &other] {
            std::fs::write(file, "").unwrap();
        }
        std::os::unix::fs::symlink(&device, folder.file("by-id")).unwrap();
        for name in ["holders", "queue"] {
            std::fs::create_dir_all(sys.join(name)).unwrap();
        }
        let ask =
            |mounts: &str, swaps: &str| used_as(&device, &sys, [(mounts, "is mounted"), (swaps, "is swapped to")]);
        let line = |name: &str| format!("proc /proc proc rw 0 0\n{} /mnt ext4 rw 0 0\n", folder.file(name).display());
        assert_eq!(ask(&line("other"), ""), None);
        assert_eq!(ask(&line("disk"), "").as_deref(), Some("is mounted"));
        // By another name.
        assert_eq!(ask(&line("by-id"), "").as_deref(), Some("is mounted"));
        assert_eq!(ask(&line("other"), &line("disk")).as_deref(), Some("is swapped to"));
        std::fs::write(sys.join("holders/dm-0"), "").unwrap();
        assert!(ask("", "").unwrap().contains("part of another device"));
        std::fs::create_dir_all(sys.join("disk1")).unwrap();
        std::fs::write(sys.join("disk1/partition"), "1").unwrap();
        assert_eq!(ask("", "").as_deref(), Some("has partitions (disk1)"));
    }

    #[test]
    fn partition_tables_are_known_and_other_beginnings_are_not() {
        let mut start = vec![0; 2 * ALIGN];
        assert!(!is_partitioned(&start));
        // The code in front of a FAT file system.
        start[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert!(!is_partitioned(&start));
        start[446 + 16 + 4] = 0x83;
        start[446 + 16 + 8] = 8;
        start[446 + 16 + 13] = 1;
        assert!(is_partitioned(&start));
        for at in [512, ALIGN] {
            let mut start = vec![0; 2 * ALIGN];
            start[at..at + 8].copy_from_slice(b"EFI PART");
            assert!(is_partitioned(&start));
        }
        assert!(!is_partitioned(&[]));
    }

    #[test]
    fn without_leave_nothing_is_written() {
        let folder = Folder::new("leave");
        let path = folder.file("data");
        let data = vec![0xa5; 64 * LARGEST as usize];
        std::fs::write(&path, &data).unwrap();
        let requests = [Request::write(0, 4_096), Request::deallocate(0, 1 << 20)];
        let mut disk = Disk::open(&path, false).unwrap();
        assert!(disk.writable().unwrap_err().contains("--destroy DATA-LOSS-CONFIRMED"));
        for request in requests {
            assert!(disk.run(&[Request::read(0, 4_096), request], 1, &mut Vec::new()).is_err());
        }
        assert!(std::fs::read(&path).unwrap() == data, "it is as it was");
        let mut disk = Disk::open(&path, true).unwrap();
        disk.run(&requests[..1], 1, &mut Vec::new()).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert!(written[..4_096] != data[..4_096] && written[4_096..] == data[4_096..]);
        assert!(Disk::open(&folder.0, false).is_err() && Disk::open(&folder.file("none"), true).is_err());
    }
}
