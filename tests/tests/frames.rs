//! Frames: what a layer writes in two parts comes to the file as one, and back from the log.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidewater_base::rng::Rng;
use tidewater_files::Changed;
use tidewater_tests::ring::Device;

const LOG: [&str; 2] = ["--set", "fast.on_wrap=wait-for-trim"];

fn new_file(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file")
}

/// Bytes of which some differ from those before, as a page's do.
fn change(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..if bytes.is_empty() { 0 } else { rng.below(6) } {
        let at = rng.below(bytes.len() as u64) as usize;
        let to = (at + 1 + rng.below(100) as usize).min(bytes.len());
        bytes[at..to].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
    }
}

/// The layer writes behind, and dies: what it had not written comes back from the log.
#[test]
fn frames_of_all_sizes_are_told_as_one_and_come_back_from_the_log() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let path = folder.path().join("log");
    let mut rng = Rng::new(11, b"frames");
    let mut left_to_the_log = 0;
    // As SQLite's, with nothing in a part, too small and too large to be compared, and the larger part first.
    for (head, body) in [(24, 4096), (0, 4096), (4096, 0), (24, 60), (0, 0), (24, 8192), (24, 65536), (3000, 100)] {
        let file = Arc::new(new_file(&path));
        let files = device.files();
        let number = files.enter(&path).expect("the file can join the set");
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (its_kept, its_file) = (Arc::clone(&kept), Arc::clone(&file));
        let bring = move || {
            let kept: Vec<(u64, Vec<u8>)> = std::mem::take(&mut *its_kept.lock().unwrap());
            kept.iter().all(|(offset, bytes)| its_file.write_all_at(bytes, *offset).is_ok())
        };
        files.defer(number, Arc::new(bring)).expect("the number is the file's");
        let (mut one, mut other) = (vec![1; head], vec![2; body]);
        let mut expected = Vec::new();
        for turn in 0..60u64 {
            change(&mut rng, &mut one);
            // For a while all of it is new each time: then nothing is compared.
            if (10..40).contains(&turn) {
                other.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
            } else {
                change(&mut rng, &mut other);
            }
            let offset = expected.len() as u64;
            let real = |bytes: &[u8]| {
                assert!(bytes == [one.as_slice(), &other].concat(), "turn {turn} of {head} + {body}");
                kept.lock().unwrap().push((offset, bytes.to_vec()));
                true
            };
            let done = files.write_frame(number, offset, [&one, &other], real);
            assert_eq!(done.expect("there is room"), Changed::Done);
            expected.extend_from_slice(&one);
            expected.extend_from_slice(&other);
        }
        files.sync(number).expect("the log accepts it");
        drop(files);
        left_to_the_log += kept.lock().unwrap().len();

        let files = device.files();
        assert!(std::fs::read(&path).expect("a file") == expected, "{head} + {body} do not come back");
        files.finish().expect("the run can be ended");
    }
    assert!(left_to_the_log > 0, "all of it was in the files: nothing is shown");
}

#[test]
fn of_a_frame_that_the_system_wrote_in_part_the_log_has_what_the_file_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let path = folder.path().join("log");
    let mut rng = Rng::new(12, b"frames");
    let file = new_file(&path);
    let files = device.files();
    let number = files.enter(&path).expect("the file can join the set");
    let (mut head, mut page) = ([3; 24], [4; 4096]);
    for turn in 0..200 {
        change(&mut rng, &mut head);
        change(&mut rng, &mut page);
        let part = (turn % 3 == 0).then(|| rng.below(4120) as usize);
        let offset = 4120 * rng.below(20);
        let real = |bytes: &[u8]| {
            file.write_all_at(&bytes[..part.unwrap_or(bytes.len())], offset).expect("there is room");
            part.is_none()
        };
        let done = files.write_frame(number, offset, [&head, &page], real).expect("there is room");
        assert_eq!(done, if part.is_some() { Changed::Failed } else { Changed::Done });
    }
    files.sync(number).expect("the log accepts it");
    let expected = std::fs::read(&path).expect("a file");
    drop(files);

    let files = device.files();
    assert!(
        std::fs::read(&path).expect("a file") == expected,
        "the log leads to what was meant, and not to what was done"
    );
    files.finish().expect("the run can be ended");
}

#[test]
fn a_frame_of_a_file_without_a_name_is_written_and_no_more() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let path = folder.path().join("log");
    let file = new_file(&path);
    let files = device.files();
    let number = files.enter(&path).expect("the file can join the set");
    files.remove(&path, || std::fs::remove_file(&path).is_ok()).expect("the log accepts it");
    let write = |bytes: &[u8]| file.write_all_at(bytes, 0).is_ok();
    let done = files.write_frame(number, 0, [b"head", b"and page"], write);
    assert_eq!(done.expect("the file can be accessed"), Changed::Done);
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 0).expect("the file can be read");
    assert_eq!(&found, b"headand page");
    assert_eq!(
        files.write_frame(number, 0, [b"head", b"page"], |_| false).expect("the file can be accessed"),
        Changed::Failed
    );
    files.finish().expect("the run can be ended");
}
