//! Changes that a layer keeps of files on the log: they are in the file before that is synced, read, cut or closed, and
//! those that a process had kept when it died come back from the log.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidewater_files::{Changed, EmbeddedFiles, FilesError};
use tidewater_tests::ring::Device;

const LOG: [&str; 2] = ["--set", "fast.on_wrap=wait-for-trim"];

/// Bytes, and where they go.
type Piece = (u64, Vec<u8>);

/// A layer that writes behind: it keeps pieces, and writes them when it is asked to.
struct Layer {
    files: EmbeddedFiles,
    number: usize,
    path: PathBuf,
    kept: Arc<Mutex<Vec<Piece>>>,
    refuses: Arc<AtomicBool>,
}

impl Layer {
    fn new(device: &Device, path: &Path) -> Layer {
        let files = device.files();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
        let number = files.enter(path).expect("the file can join the set");
        let (kept, refuses) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (its_kept, its_refusal) = (Arc::clone(&kept), Arc::clone(&refuses));
        let bring = move || {
            if its_refusal.load(Ordering::Relaxed) {
                return false;
            }
            let pieces: Vec<Piece> = std::mem::take(&mut *its_kept.lock().unwrap());
            pieces.iter().all(|(offset, bytes)| file.write_all_at(bytes, *offset).is_ok())
        };
        files.defer(number, Arc::new(bring)).expect("the number is the file's");
        Layer { files, number, path: path.to_owned(), kept, refuses }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<Changed, FilesError> {
        self.files.write(self.number, offset, bytes, || {
            self.kept.lock().unwrap().push((offset, bytes.to_vec()));
            true
        })
    }

    fn in_file(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("a file")
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i / 251 + i * 7) as u8 | 1).collect()
}

#[test]
fn what_is_kept_is_in_the_file_for_who_reads_cuts_closes_or_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let path = folder.path().join("log");
    let all = content(3000);

    let layer = Layer::new(&device, &path);
    layer.write(0, &all[..1000]).expect("there is room");
    layer.files.sync(layer.number).expect("the log accepts it");
    assert!(layer.in_file().is_empty(), "nothing is kept, so nothing is shown");
    layer.files.catch_up(None).expect("the kept changes can be written");
    assert!(layer.in_file() == all[..1000]);

    layer.write(1000, &all[1000..]).expect("there is room");
    let cut = layer.files.truncate(layer.number, 2000, || {
        assert!(layer.in_file() == all, "cut before it was there");
        File::options().write(true).open(&path).and_then(|file| file.set_len(2000)).is_ok()
    });
    assert_eq!(cut.expect("the log accepts it"), Changed::Done);

    // One that the system refuses leaves the file as it is, with what was kept.
    layer.write(2000, &all[2000..2200]).expect("there is room");
    let refused = layer.files.truncate(layer.number, 100, || false);
    assert_eq!(refused.expect("the log goes on"), Changed::Failed);
    assert!(layer.in_file() == all[..2200]);

    layer.write(2200, &all[2200..2500]).expect("the log goes on");
    layer.files.close(layer.number).expect("the kept changes can be written");
    assert!(layer.in_file() == all[..2500]);
    layer.files.finish().expect("the run can be ended");

    let layer = Layer::new(&device, &path);
    layer.write(2500, &all[2500..]).expect("there is room");
    layer.files.finish().expect("the run can be ended");
    assert!(std::fs::read(&path).expect("a file") == all);
}

/// The log wraps around, since it is trimmed behind what is synced: only what is kept at the end comes back from it.
#[test]
fn what_was_kept_by_a_process_that_died_comes_back_though_the_log_was_trimmed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let path = folder.path().join("log");
    let all = content(2 << 20);

    let layer = Layer::new(&device, &path);
    let (mut written, mut left) = (0, all.len());
    for piece in all.chunks(700) {
        layer.write(written as u64, piece).expect("the log is trimmed in time");
        written += piece.len();
        // The last checkpoint may have been just now, and have brought all.
        if written > all.len() / 2 {
            layer.files.sync(layer.number).expect("the log accepts it");
            if layer.in_file().len() < written {
                // From here on a checkpoint in the background brings nothing, as of a process that has died. One that
                // was faster has brought all: another round.
                layer.refuses.store(true, Ordering::Relaxed);
                left = layer.in_file().len();
                if left < written {
                    break;
                }
                layer.refuses.store(false, Ordering::Relaxed);
            }
        }
    }
    let all = &all[..written];
    assert!(left < all.len(), "nothing is kept, so nothing is shown");
    assert!(left > 0, "twice as much as the log holds is on it");
    // It dies: nothing is brought any more.
    drop(layer.files);
    assert!(std::fs::read(&path).expect("a file").len() < all.len());

    let files = device.files();
    assert!(std::fs::read(&path).expect("a file") == all, "promised bytes are lost");
    files.finish().expect("the run can be ended");
}

#[test]
fn what_cannot_be_brought_stays_on_the_log_and_nothing_is_promised_any_more() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let path = folder.path().join("log");
    let all = content(4000);
    type Wrong = fn(&Layer) -> Result<(), FilesError>;
    let ways: [Wrong; 4] = [
        |layer| layer.files.catch_up(Some(layer.number)),
        |layer| layer.files.close(layer.number),
        |layer| layer.files.truncate(layer.number, 10, || panic!("it is cut")).map(drop),
        // The layer can't write it, nor what it has kept.
        |layer| layer.files.write(layer.number, 4000, b"more", || false).map(drop),
    ];
    for wrong in ways {
        std::fs::write(&path, b"").expect("a folder");
        let layer = Layer::new(&device, &path);
        layer.write(0, &all).expect("there is room");
        layer.files.sync(layer.number).expect("the log accepts it");
        layer.refuses.store(true, Ordering::Relaxed);
        assert!(wrong(&layer).is_err());
        assert!(layer.files.order().is_err(), "it goes on");
        assert!(layer.write(4000, b"later").is_err() && layer.files.finish().is_err());
        assert!(std::fs::read(&path).expect("a file").is_empty());

        let files = device.files();
        let back = std::fs::read(&path).expect("a file");
        assert!(back.starts_with(&all), "promised bytes are lost");
        files.finish().expect("the run can be ended");
    }
}

/// A layer ends as if it were killed, and what the page cache had of its file is lost. The next open of the log brings
/// it back.
fn comes_back(device: &Device, path: &Path, then: impl FnOnce(&Layer)) -> Vec<u8> {
    let layer = Layer::new(device, path);
    layer.write(0, b"one ").expect("there is room");
    then(&layer);
    let last = layer.files.write(layer.number, 4, b"two", || true).expect("there is room");
    assert_eq!(last, Changed::Done);
    layer.files.sync(layer.number).expect("the log accepts it");
    drop(layer);
    let found = path.parent().expect("a folder").join("found");
    let left = if found.exists() { &found } else { path };
    File::options().write(true).open(left).and_then(|file| file.set_len(0)).expect("the file can be opened");
    device.files().finish().expect("the run can be ended");
    std::fs::read(left).expect("the file can be read")
}

#[test]
fn a_file_that_a_layer_renames_is_found_again_by_its_new_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let (path, found) = (folder.path().join("log"), folder.path().join("found"));
    let renamed = comes_back(&device, &path, |layer| {
        let rename = || {
            assert_eq!(layer.in_file(), b"one ", "what is kept goes to the file first");
            std::fs::rename(&path, &found).is_ok()
        };
        assert_eq!(layer.files.rename(&path, &found, rename).expect("the log accepts it"), Changed::Done);
    });
    assert_eq!(renamed, b"one two");
    // Renamed without a call of the layer, and entered by its new name then, as a log that is used again is.
    std::fs::remove_file(&found).expect("the file can be removed");
    let reused = comes_back(&device, &path, |layer| {
        std::fs::rename(&path, &found).expect("the rename succeeds");
        layer.files.enter(&found).expect("the file can be put on the log");
    });
    assert_eq!(reused, b"one two");
    // With the folder that it is in.
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    std::fs::create_dir(&first).expect("a new folder");
    let layer = Layer::new(&device, &first.join("log"));
    layer.write(0, b"moved").expect("there is room");
    layer.files.rename(&first, &second, || std::fs::rename(&first, &second).is_ok()).expect("the log accepts it");
    drop(layer);
    device.files().finish().expect("the run can be ended");
    assert_eq!(std::fs::read(second.join("log")).expect("the file can be read"), b"moved");
    // Over another file of the log, which is replaced.
    let over = comes_back(&device, &path, |layer| {
        layer
            .files
            .enter(&found)
            .and_then(|number| layer.files.write(number, 0, b"lost", || true))
            .expect("the file can join the set");
        layer.files.rename(&path, &found, || std::fs::rename(&path, &found).is_ok()).expect("the log accepts it");
    });
    assert_eq!(over, b"one two");
}

#[test]
fn a_file_of_a_layer_that_loses_one_of_its_names_is_not_missed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &LOG);
    let (path, other) = (folder.path().join("log"), folder.path().join("other"));
    let layer = Layer::new(&device, &path);
    layer.write(0, b"kept").expect("there is room");
    std::fs::hard_link(&path, &other).expect("the file exists");
    let removed = layer.files.remove(&path, || std::fs::remove_file(&path).is_ok());
    assert_eq!(removed.expect("the log accepts it"), Changed::Done);
    assert_eq!(
        std::fs::read(&other).expect("the file can be read"),
        b"kept",
        "it left the log, and what was kept went to it"
    );
    drop(layer);
    device.files().finish().expect("the run can be ended");
}
