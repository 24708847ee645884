//! Files: traces, profiles, images, input logs.

use super::memories::Rich;
use super::reader::Reader;
use std::sync::LazyLock;
use tidewater_core::profile::{Profile, builtin};
use tidewater_core::subsystem::input_log::{Entries, MAGIC};
use tidewater_core::{Device, Options};
use tidewater_nand::Nand;
use tidewater_serve::engine::{DriveSetup, NamespaceSetup, rerun};
use tidewater_serve::image::{Image, ImageOptions, MemoryStorage, Target, format};
use tidewater_sim::trace::{self, Input, Trace};
use tidewater_sim::workload::Source;

/// Requests of a trace that are read, at most.
const REQUESTS_MAX: usize = 10_000;
/// First bytes of gzip and zstd: what comes out of them may be far longer than the input, so it is not read twice.
const COMPRESSED: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];
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

fn tiny() -> Profile {
    builtin("tiny").expect("there is a profile of this name")
}

/// An image of a new drive.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("tidewater-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let path = folder.join("drive");
    let options = Options { stamps: true, payload: true, ..Options::default() };
    let made = Image::create(Target::Path(&path), &tiny(), options, ImageOptions::default(), |nand: Nand| nand);
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
            let _ = Device::power_on(&opened.profile, opened.remains);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What an input log of a tiny drive begins with.
static LOG: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let setup = DriveSetup {
        profile: tiny().show(),
        capacity: 0,
        seed: 1,
        namespaces: vec![NamespaceSetup { bytes: None, block_shift: 12 }],
        functions: 1,
        fabrics: 2,
    };
    let text = serde_json::to_vec(&setup).expect("plain values");
    [&MAGIC[..], &(text.len() as u32).to_le_bytes(), &text].concat()
});

/// An input log: its first bytes as they are, or entries behind a good header. Entries are read, and not run: the firmware asserts
/// that answers answer something, which a log that was forged need not do.
pub fn input_logs(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    if how & 1 != 0 {
        let log = [LOG.as_slice(), rest].concat();
        let entries = Entries::new(&log, LOG.len());
        assert!(entries.take_while(Result::is_ok).count() <= rest.len(), "every entry has bytes of its own");
        return;
    }
    // A good header would be any drive, of any size.
    let log = [&MAGIC[..], &rest[..rest.len().min(64)]].concat();
    if let Err(error) = rerun(&log) {
        assert!(!error.to_string().is_empty());
    }
}
