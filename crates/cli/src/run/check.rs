//! `tidewater check`, and what to do about files whose last bytes are on another log.

use crate::args::files::{Check, LaneOf};
use crate::failure::{Failure, printable, reason};
use crate::output::{self, tell};
use tidewater_files::{Foreign, Globs, Marker, markers, markers_of};

/// `tidewater check`.
///
/// # Errors
/// Files there have their last bytes on a log, or a folder can't be read.
pub fn check(given: &Check) -> Result<(), Failure> {
    let mut found = Vec::new();
    for folder in &given.folders {
        if !folder.is_dir() {
            let why = if folder.exists() { "is no folder" } else { "does not exist" };
            return Err(
                Failure::usage(format_args!("{}: {why}", folder.display())).help("name the folder of the files")
            );
        }
        found.extend(markers(folder).map_err(|(path, error)| {
            Failure::usage(format_args!("{}: {}", path.display(), reason(&error)))
                .help("run this as the user of the files: whether they are whole is not known")
        })?);
    }
    let Some((first, more)) = found.split_first() else {
        let all = given.folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        return output::print(&format!("{}: the files are whole without a log\n", printable(&all)));
    };
    for one in more.iter().rev() {
        tell(&format!("note: {}\n", printable(&one.to_string())));
    }
    Err(Failure::run(first).help(help(&found, false)))
}

/// The device of a marker, as options.
fn options(marker: &Marker) -> String {
    let lane = LaneOf { device: marker.target.clone(), lane: marker.lane };
    match lane.lane {
        0 => format!("--device {}", lane.shown()),
        number => format!("--device {} --lane {number}", lane.shown()),
    }
}

/// Advice about markers. `starts`: a program was to be started on another log.
pub fn help(all: &[Foreign], starts: bool) -> String {
    let adopt = match starts {
        true => "to start here with the files as they are, without those bytes: --adopt",
        false => "to start without those bytes: `tidewater run --adopt`",
    };
    match all.iter().find_map(|one| Some((one.is_copy, one.marker.as_ref()?))) {
        Some((true, marker)) => {
            format!("`tidewater drain {}` and take a new copy of the original; {adopt}", options(marker))
        }
        Some((false, marker)) => format!(
            "start that device as it was started before, and `tidewater recover {0}` (or `tidewater run {0} …`); \
             {adopt}",
            options(marker)
        ),
        None => format!("look at the file, and remove it if it is not yours; {adopt}"),
    }
}

/// Whether files of a set have their last bytes on a log.
pub fn depends(globs: &Globs) -> bool {
    !markers_of(globs).is_empty()
}

/// Advice where their device is not there.
pub fn depends_help(globs: &Globs) -> String {
    let all = markers_of(globs);
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!("start the device as it was started before: {}", names.join("; "))
}
