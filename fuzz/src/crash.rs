//! Files of crash tests: the image of a mount, and a failure that replays.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tidewater_base::checksum::crc32c;
use tidewater_crash::{Image, ImageError, Kept, Tree};

/// Where images lie; one for each thread.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("tidewater-fuzz-crash-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder
});

/// The first line of an image.
static HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = FOLDER.join("new");
    Image::open(&path, Tree::default()).expect("a new image");
    let bytes = std::fs::read(&path).expect("it was made");
    std::fs::remove_file(&path).expect("it is ours");
    let end = bytes.iter().position(|byte| *byte == b'\n').expect("a line");
    bytes[..=end].to_vec()
});

/// The image of a mount: as it is, behind a good first line, or as the lines of two good batches. What opens has the
/// same content when it is opened again.
pub fn mount_images(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let batch = |lines: &[u8]| [format!("batch {} {:08x}\n", lines.len(), crc32c(lines)).as_bytes(), lines].concat();
    let (one, other) = rest.split_at(rest.len() * usize::from(how >> 2) / 64);
    let bytes = match how & 3 {
        0 => rest.to_vec(),
        1 => [&HEAD, rest].concat(),
        2 => [HEAD.clone(), batch(one), batch(other)].concat(),
        // The first is whole; of the second as many bytes are cut off as the first has.
        _ => {
            let mut bytes = [HEAD.clone(), batch(one), batch(other)].concat();
            bytes.truncate(bytes.len().saturating_sub(one.len()));
            bytes
        }
    };
    let thread = format!("{:?}", std::thread::current().id());
    let path = FOLDER.join(thread.replace(['(', ')'], ""));
    std::fs::write(&path, bytes).expect("the temporary folder is writable");
    if let Ok(tree) = opened(&path) {
        let again = opened(&path).expect("it was written anew");
        assert_eq!(again.operations(), tree.operations());
    }
    std::fs::remove_file(&path).expect("it is ours");
}

fn opened(path: &Path) -> Result<Tree, ImageError> {
    let opened = Image::open(path, Tree::default());
    opened.map(|(_, tree)| tree).inspect_err(|error| assert!(!error.to_string().is_empty()))
}

/// The file of a failing state: what is read is built, described and written.
pub fn crash_failures(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Kept::read(text) {
        Ok(mut kept) => {
            let tree = kept.volume.build(&kept.state, kept.tear);
            assert!((0..kept.volume.end()).all(|number| !kept.volume.described(number).is_empty()));
            kept.volume.prepare();
            assert_eq!(kept.volume.build(&kept.state, kept.tear).operations(), tree.operations());
            // Files of the beginning that have no name are not written.
            let written =
                |kept: &Kept| Kept::text(&kept.volume, &kept.state, kept.tear, &kept.check, "").expect("plain values");
            let text = written(&kept);
            assert_eq!(written(&Kept::read(&text).expect("it was written")), text);
        }
        Err(error) => assert!(!error.is_empty()),
    }
}
