//! `tidewater mount`: a file system that forgets on a power cut what was not synced.

use crate::args::crash::Mount;
use crate::drive_image::OnDrive;
use crate::failure::Failure;
use crate::{fault, interrupt, notify, output};
use std::time::Duration;
use tidewater_crash as crash;

/// How often the command looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of changes that are not durable, at most: beyond, everything becomes durable, as memory pressure would do.
const LOG_MAX: u64 = 256 << 20;

/// `tidewater mount`.
///
/// # Errors
/// A directory that can't be mounted on, an image that can't be used, an unmount that failed.
pub fn command(of: &Mount) -> Result<(), Failure> {
    if fault::is_mount(&of.folder) {
        return Err(Failure::usage(format_args!("{} is mounted by another command", of.folder.display()))
            .help("give another directory, or end that command"));
    }
    let image = match of.image.as_ref().map(|image| (image, image.to_str().and_then(OnDrive::open))) {
        Some((image, Some(drive))) => Some(crash::Source::Blocks(image.display().to_string(), Box::new(drive?))),
        Some((image, None)) => Some(crash::Source::File(image.clone())),
        None => None,
    };
    let options =
        crash::Options { folder: of.folder.clone(), rules: of.rules, image, keep_log: false, log_max: LOG_MAX };
    let mount = crash::Mount::new(options).map_err(refused)?;
    let _running = interrupt::Running::silent();
    let folder = of.folder.display();
    let kept = match &of.image {
        Some(image) => format!("what is durable is in {}", image.display()),
        None => "in memory: its files are gone when this command ends (--image FILE keeps them)".into(),
    };
    let rules = match of.rules {
        crash::Rules::Strict => "strict: a file's bytes by fsync of the file, its name by fsync of its directory",
        crash::Rules::Ext4 => "ext4: names and sizes in order, a new file's name by its own fsync",
    };
    output::print(&format!(
        "mounted on {folder}; {kept}\nRules: {rules}\n\
         Cut the power: tidewater fault power-cut --device {folder}\nUnmount: Ctrl-C or SIGTERM\n"
    ))?;
    notify::ready();
    while !interrupt::requested() && !mount.is_gone() {
        std::thread::sleep(LOOK);
    }
    let struck = mount.struck();
    mount.end().map_err(|error| Failure::run(format_args!("{folder} can't be unmounted: {error}")))?;
    let struck = struck.map_or_else(String::new, |struck| format!("; faults that struck: {struck}"));
    output::print(&format!("unmounted {folder}{struck}\n"))
}

/// Why there is no mount, and what to do about it.
pub fn refused(error: crash::MountError) -> Failure {
    let failure = Failure::run(&error);
    match &error {
        crash::MountError::NoFuse(_) => failure
            .help("install fuse3, and modprobe fuse; a container needs --device /dev/fuse and --cap-add SYS_ADMIN"),
        crash::MountError::Denied(_) => {
            failure.help("run it as root, or have root open /dev/fuse to you (`ls -l /dev/fuse`)")
        }
        crash::MountError::Image(_, crash::ImageError::Damaged { .. } | crash::ImageError::NoImage) => {
            failure.help("give another file, or move this one away")
        }
        _ => failure,
    }
}
