//! A file that this process has locked, and that is on the log: whatever the library does with it, the locks stay. The
//! system gives them up where a process closes any descriptor of a file.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use tidewater_files::{Changed, EmbeddedFiles};
use tidewater_tests::ring::Device;
use tidewater_tests::wait;

fn lock(file: &File) {
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_SETLK(&whole)).expect("no other process has it");
}

/// Whether this process has a lock of a file.
fn has_lock(file: &File) -> bool {
    let (all, inode) = (std::fs::read_to_string("/proc/locks").expect("Linux"), file.metadata().expect("a file").ino());
    let (process, inode) = (std::process::id().to_string(), format!(":{inode}"));
    all.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.contains(&"POSIX") && words.contains(&process.as_str()) && words.iter().any(|word| word.ends_with(&inode))
    })
}

fn write(files: &EmbeddedFiles, number: usize, file: &File, offset: u64, bytes: &[u8]) {
    let real = || file.write_all_at(bytes, offset).is_ok();
    assert_eq!(files.write(number, offset, bytes, real).expect("there is room"), Changed::Done);
}

fn locked(path: &Path) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
    lock(&file);
    assert!(has_lock(&file));
    file
}

#[test]
fn locks_of_a_file_outlive_what_the_library_does_with_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &["--set", "fast.on_wrap=wait-for-trim"]);
    let files = device.files();

    // The control: as other files are treated, a lock is lost.
    let other = folder.path().join("other");
    let file = locked(&other);
    files.close(files.enter(&other).expect("the file can join the set")).expect("the number is the file's");
    assert!(!has_lock(&file), "nothing is lost, so nothing is shown");

    let path = folder.path().join("data");
    let file = locked(&path);
    let number = files.enter_locked(&path).expect("the file can join the set");
    // A second and a third connection come and go.
    for again in [files.enter_locked(&path), files.enter(&path)] {
        files.close(again.expect("the file can join the set")).expect("the number is the file's");
        assert!(has_lock(&file), "it was left");
    }
    // What a write that failed has made of the file is read back.
    file.write_all_at(b"half", 0).expect("there is room");
    assert_eq!(files.write(number, 0, b"half of it", || false).expect("it is read back"), Changed::Failed);
    assert!(has_lock(&file), "it was read");
    assert_eq!(files.remove(&path, || false).expect("it is refused"), Changed::Failed);
    assert!(has_lock(&file), "it was to be removed");
    // It is synced in the background.
    let mut at = 10;
    wait::until(
        || "nothing is synced".into(),
        || {
            write(&files, number, &file, at, b"more");
            at += 4;
            files.run().so_far().checkpoints >= 2
        },
    );
    assert!(has_lock(&file), "it was synced");
    files.close(number).expect("the number is the file's");
    assert!(has_lock(&file), "it was left");
    // The process dies, and its log leads to what the file had.
    let whole = std::fs::read(&path).expect("a file");
    drop(files);
    let files = device.files();
    assert!(std::fs::read(&path).expect("a file") == whole);
    files.finish().expect("the run can be ended");
}
