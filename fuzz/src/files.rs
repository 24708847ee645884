//! Files: traces, profiles, images, input logs.

use super::memories::{self, Rich};
use super::reader::Reader;
use std::sync::LazyLock;
use tidewater_core::device::{self, Output};
use tidewater_core::fast::Content;
use tidewater_core::profile::Profile;
use tidewater_core::subsystem::input_log::{Entries, MAGIC, MAGIC_1};
use tidewater_core::{Device, Options};
use tidewater_nand::{Nand, Recorder};
use tidewater_serve::engine::{DriveSetup, NamespaceSetup, rerun};
use tidewater_serve::image::{Image, ImageOptions, MemoryStorage, Target, format};
use tidewater_sim::trace::{self, Input, Trace};
use tidewater_sim::workload::Source;

/// Requests of a trace that are read, at most.
const REQUESTS_MAX: usize = 10_000;
/// First bytes of gzip and zstd: what comes out of them may be far longer than the input, so it is not read twice.
const COMPRESSED: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];
/// Events that finding the map of a drive of some MiB takes, at most.
const RECOVERY_EVENTS_MAX: u32 = 100_000;
/// Changes of an image that one input makes, at most.
const CHANGES_MAX: usize = 64;

/// A trace of any format.
pub fn traces(data: &[u8]) {
    let compressed = COMPRESSED.iter().any(|magic| data.starts_with(magic));
    for skip_bad in [false, true] {
        let options = trace::Options { skip_bad, scan: !compressed, ..trace::Options::default() };
        let Ok(mut trace) = Trace::open(&Input::from_bytes("fuzz", data), &options) else { continue };
        for _ in 0..REQUESTS_MAX {
            match trace.next() {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    assert!(!error.to_string().is_empty());
                    break;
                }
                None => break,
            }
        }
    }
}

/// A profile: what is accepted is shown, and read again, as the same.
pub fn profiles(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Profile::parse(text, "fuzz") {
        Ok(profile) => {
            let shown = profile.show();
            assert_eq!(Profile::parse(&shown, "shown").as_ref(), Ok(&profile), "{shown}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An image of a new drive.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("tidewater-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let path = folder.join("drive");
    let options = Options { stamps: true, payload: true, ..Options::default() };
    let made =
        Image::create(Target::Path(&path), &memories::smaller(&[]), options, ImageOptions::default(), |nand: Nand| {
            nand
        });
    drop(made.expect("a new image"));
    let bytes = std::fs::read(&path).expect("it was made");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    bytes
});

/// An image with memories.
static RICH: LazyLock<Rich> = LazyLock::new(Rich::new);

/// The bytes of an image: as they are, or as changes of a good one, with memories or without. What opens is powered on.
pub fn images(data: &[u8]) {
    let mut reader = Reader(data);
    let how = reader.byte();
    let is_good = reader.is_empty() && matches!(how & 3, 1 | 2);
    let bytes = match how & 3 {
        0 => reader.0.to_vec(),
        kind => {
            let mut bytes = if how & 4 == 0 { IMAGE.clone() } else { RICH.bytes.clone() };
            for _ in 0..CHANGES_MAX {
                if reader.is_empty() {
                    break;
                }
                if how & 12 == 12 {
                    RICH.change(&mut bytes, &mut reader);
                    continue;
                }
                let (at, len) = (reader.number(3) as usize % bytes.len(), usize::from(reader.byte() % 16) + 1);
                let change = reader.bytes(len);
                let change = &change[..change.len().min(bytes.len() - at)];
                bytes[at..at + change.len()].copy_from_slice(change);
            }
            if kind == 3 {
                bytes.truncate(reader.number(3) as usize % (bytes.len() + 1));
            } else if kind == 2 {
                // Forged: the superblock's checksum is that of what it holds now.
                let sum = format::checksum(0, 0, &bytes[16..format::HEADER]);
                bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            }
            bytes
        }
    };
    let target = Target::Storage(Box::new(MemoryStorage::from_bytes(bytes)), "fuzz");
    match Image::open(target, None, ImageOptions::default(), |nand: Nand| nand) {
        Ok(opened) => {
            if let Ok(mut device) = Device::power_on(&opened.profile, opened.remains) {
                recover(&mut device);
            }
        }
        Err(error) => assert!(!is_good && !error.to_string().is_empty(), "{error}"),
    }
}

/// Lets a drive find its map again. What it wants to read for its window is not there.
fn recover(device: &mut Device<Recorder<Nand>>) {
    for _ in 0..RECOVERY_EVENTS_MAX {
        while let Some(output) = device.poll() {
            if let Output::WindowLoad { lpn, .. } = output {
                let fill = device::Input::WindowFill { lpn, content: Content::Absent(0) };
                device.handle(device.now(), fill).expect("it asked");
            }
        }
        let Some(at) = device.deadline().filter(|_| device.is_recovering()) else { return };
        device.handle(at, device::Input::Timer).expect("nothing is refused");
    }
    panic!("it does not recover: {}", device.describe_outstanding());
}

/// What an input log of a tiny drive begins with.
static LOG: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let setup = DriveSetup {
        profile: memories::smaller(&[]).show(),
        capacity: 0,
        seed: 1,
        namespaces: vec![NamespaceSetup { bytes: None, block_shift: 12 }],
        functions: 1,
        fabrics: 2,
    };
    let text = serde_json::to_vec(&setup).expect("plain values");
    // Sums would end each changed log at its first change.
    [&MAGIC_1[..], &(text.len() as u32).to_le_bytes(), &text].concat()
});

/// An input log: its first bytes as they are, or entries behind a good header, which are read, or run.
pub fn input_logs(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    if how & 1 != 0 {
        let log = [LOG.as_slice(), rest].concat();
        let entries = Entries::new(&log, LOG.len());
        assert!(entries.take_while(Result::is_ok).count() <= rest.len(), "every entry has bytes of its own");
        // Few forged logs agree with what the drive says; these and what comes before the first difference are run.
        if how & 2 != 0
            && let Err(error) = rerun(&log)
        {
            assert!(!error.to_string().is_empty());
        }
        return;
    }
    // A good header would be any drive, of any size.
    let log = [&MAGIC[..], &rest[..rest.len().min(64)]].concat();
    if let Err(error) = rerun(&log) {
        assert!(!error.to_string().is_empty());
    }
}
