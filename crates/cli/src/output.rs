//! Results on their way out: whole or not at all.
//!
//! A file is written under another name beside its place, and takes its place when it is complete. What is no regular
//! file (a device, a pipe) is written directly.

use crate::failure::{Failure, printable, reason};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Files that are being written, so that a second Ctrl-C can remove them.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the files that are not complete, because the program is about to end without having completed them.
pub fn remove_unfinished() {
    // A thread that failed while it held the lock leaves a list that is still good.
    let files = std::mem::take(&mut *UNFINISHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    for file in files {
        let _ = fs::remove_file(file);
    }
}

/// Refuses the endings of tables and documents for a page: a program would read its HTML as one.
///
/// # Errors
/// Such an ending.
pub fn page_ending(path: &Path) -> Result<(), Failure> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    if !["csv", "tsv", "parquet", "arrow", "feather", "json", "txt", "md"].contains(&&*ending) {
        return Ok(());
    }
    let failure = Failure::usage(format_args!("{}: an HTML page is written here, not .{ending}", path.display()));
    Err(failure.help("name it .html; `tidewater report FILE --table runs -o FILE.csv` writes a table"))
}

/// Where a result goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    name: String,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Stdout,
    /// A device or a pipe.
    Direct(PathBuf),
    /// A regular file, or one that is not there yet; links are resolved.
    File(PathBuf),
}

impl Target {
    /// The place that a command line names; `-` is standard output.
    ///
    /// # Errors
    /// When nothing can be written there: better before a long run than after it.
    pub fn new(path: &Path) -> Result<Target, Failure> {
        let name = path.display().to_string();
        if path.as_os_str() == "-" || path == Path::new("/dev/stdout") {
            return Ok(Target { name: "standard output".into(), place: Place::Stdout });
        }
        let refuse = |why: &str| Failure::usage(format_args!("cannot write {name}: {why}"));
        let link = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink).map(|link| link.uid());
        if let Some(user) = link.filter(|user| ![0, nix::unistd::geteuid().as_raw()].contains(user)) {
            return Err(refuse(&format!("it is a symbolic link of user {user}, which is not followed")));
        }
        let place = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(refuse("it is a directory")),
            Ok(metadata) if !metadata.is_file() => Place::Direct(path.to_owned()),
            Ok(_) => Place::File(fs::canonicalize(path).map_err(|error| refuse(&reason(&error)))?),
            Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                return Err(refuse("the name ends like a directory's, and there is no such directory"));
            }
            Err(_) => Place::File(not_there_yet(path)),
        };
        if let Place::File(file) = &place {
            if file.file_name().is_none() {
                return Err(refuse("it has no file name"));
            }
            let unfinished = Unfinished::create(file).map_err(|error| {
                let failure = refuse(&reason(&error));
                let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
                match folder.filter(|folder| !folder.is_dir()) {
                    Some(folder) => failure.help(format_args!("mkdir -p {}", folder.display())),
                    None => failure,
                }
            })?;
            drop(unfinished);
        }
        Ok(Target { name, place })
    }

    /// The same, where there is a place at all.
    ///
    /// # Errors
    /// As [`Target::new`].
    pub fn maybe(path: Option<&PathBuf>) -> Result<Option<Target>, Failure> {
        path.map(|path| Target::new(path)).transpose()
    }

    /// The same for a page.
    ///
    /// # Errors
    /// As [`Target::new`] and [`page_ending`].
    pub fn page(path: Option<&PathBuf>) -> Result<Option<Target>, Failure> {
        path.map_or(Ok(()), |path| page_ending(path))?;
        Target::maybe(path)
    }

    /// How the user named it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is standard output, which then holds nothing else.
    pub fn is_stdout(&self) -> bool {
        self.place == Place::Stdout
    }

    /// Whether it is this file.
    pub fn is_file(&self, file: &Path) -> bool {
        match (&self.place, fs::canonicalize(file)) {
            (Place::File(place), Ok(file)) => *place == file,
            _ => false,
        }
    }

    /// Whether it is a file, whose name can say how it is written.
    pub fn is_a_file(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    /// Begins to write.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(&self) -> Result<Writer, Failure> {
        let wrong = |error: io::Error| self.unwritten(&error);
        let sink = match &self.place {
            Place::Stdout => Sink::Stdout(io::stdout()),
            Place::Direct(path) => Sink::Direct(OpenOptions::new().write(true).open(path).map_err(wrong)?),
            Place::File(path) => Sink::File(Unfinished::create(path).map_err(wrong)?),
        };
        Ok(Writer { target: self.clone(), out: BufWriter::with_capacity(1 << 16, sink) })
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// When it cannot be written; then nothing is left.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        self.write_bytes(text.as_bytes())
    }

    /// The same for what is no text.
    ///
    /// # Errors
    /// As [`Target::write`].
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut writer = self.open()?;
        writer.write_all(bytes).map_err(|error| self.unwritten(&error))?;
        writer.finish()
    }

    /// Why a result is not there. Only of a file nothing is left: what went out through a pipe is gone.
    pub fn unwritten(&self, error: &io::Error) -> Failure {
        let failure = Failure::write(&self.name, error);
        match (&self.place, failure.help) {
            (Place::File(_), Some(help)) => Failure { help: Some(help + "; nothing half-written was left"), ..failure },
            (_, help) => Failure { help, ..failure },
        }
    }
}

/// Where a path leads, however it is spelled: the file that is there, or the place of one that is not.
pub fn place(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| not_there_yet(path))
}

/// Where a file will be that is not there yet: as for one that is, in the folder that is meant, and behind the links
/// that lead to it. So one place has one name, however it is spelled.
fn not_there_yet(path: &Path) -> PathBuf {
    /// As many as the system follows (path_resolution(7)).
    const LINKS_MAX: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = fs::read_link(&path) else { break };
        path.set_file_name(to);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Refuses results that would overwrite each other, or the input.
///
/// # Errors
/// When two of them are the same place.
pub fn distinct(targets: &[Option<&Target>], input: Option<&Path>) -> Result<(), Failure> {
    let targets: Vec<&Target> = targets.iter().copied().flatten().collect();
    for (i, target) in targets.iter().enumerate() {
        if targets[..i].iter().any(|other| other.place == target.place) {
            return Err(Failure::usage(format_args!("two results cannot both go to {}", target.name))
                .help("give each a file of its own"));
        }
        if input.is_some_and(|input| target.is_file(input)) {
            return Err(Failure::usage(format_args!("{} is the input, and would be overwritten", target.name))
                .help("give the result another name"));
        }
    }
    Ok(())
}

/// A result that is being written. Dropped without [`Writer::finish`], it leaves nothing.
pub struct Writer {
    target: Target,
    out: BufWriter<Sink>,
}

enum Sink {
    Stdout(io::Stdout),
    Direct(File),
    File(Unfinished),
}

impl Writer {
    /// Completes it: what was written is in its place from now on.
    ///
    /// # Errors
    /// When the rest cannot be written; then nothing is left.
    pub fn finish(self) -> Result<(), Failure> {
        let Writer { target, out } = self;
        let finish = || match out.into_inner().map_err(io::IntoInnerError::into_error)? {
            Sink::Stdout(mut out) => out.flush(),
            Sink::Direct(mut file) => file.flush(),
            Sink::File(file) => file.complete(),
        };
        finish().map_err(|error| target.unwritten(&error))
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stdout(out) => out.write(bytes),
            Sink::Direct(file) => file.write(bytes),
            Sink::File(file) => file.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Stdout(out) => out.flush(),
            Sink::Direct(file) => file.flush(),
            Sink::File(file) => file.file.flush(),
        }
    }
}

/// A file beside its place, removed unless it is completed.
struct Unfinished {
    file: File,
    path: PathBuf,
    place: PathBuf,
    complete: bool,
}

impl Unfinished {
    fn create(place: &Path) -> io::Result<Unfinished> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        // A long name and our ending may pass what a file system allows for a name.
        let name: String = name.chars().take(60).collect();
        // Other users may write the folder: they can't foresee the name, and what has it already is not opened.
        let path = place.with_file_name(format!(".{name}.{:016x}.unfinished", RandomState::new().hash_one(&name)));
        // In the list before it is there: a Ctrl-C in between removes it.
        UNFINISHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(path.clone());
        let file = File::create_new(&path);
        if file.is_err() {
            forget(&path);
        }
        let file = file?;
        // The new file may be read by whom the old one could be.
        if let Ok(old) = fs::metadata(place) {
            let _ = file.set_permissions(old.permissions());
        }
        Ok(Unfinished { file, path, place: place.to_owned(), complete: false })
    }

    fn complete(mut self) -> io::Result<()> {
        // Some file systems tell only now that the disk is full.
        self.file.sync_data()?;
        fs::rename(&self.path, &self.place)?;
        self.complete = true;
        forget(&self.path);
        Ok(())
    }
}

fn forget(path: &Path) {
    UNFINISHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).retain(|other| other != path);
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.complete {
            let _ = fs::remove_file(&self.path);
            forget(&self.path);
        }
    }
}

/// A result on its way to a place: the words before its name, the place, and how it is written.
pub type Delivery<'a> = (String, &'a Target, Box<dyn FnOnce() -> Result<(), Failure> + 'a>);

/// Hands the results of a run over: the summary is printed first, and every file is tried, so that one that cannot be
/// written does not lose what a long run has found. Where one of them goes to standard output, that holds nothing else.
///
/// # Errors
/// When one cannot be written; of several, all are reported.
pub fn deliver(summary: &str, files: Vec<Delivery<'_>>) -> Result<(), Failure> {
    let silent = files.iter().any(|(_, target, _)| target.is_stdout());
    let mut outcome = if silent { Ok(()) } else { print(summary) };
    let mut text = String::new();
    for (what, target, write) in files {
        match write() {
            Ok(()) => text += &format!("{what}{}\n", printable(target.name())),
            Err(failure) => {
                if let Err(before) = std::mem::replace(&mut outcome, Err(failure)) {
                    before.tell();
                }
            }
        }
    }
    let printed = if silent || text.is_empty() { Ok(()) } else { print(&text) };
    outcome.and(printed)
}

/// Prints on standard error. A reader that has ended does not stop the work.
pub fn tell(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

impl Failure {
    /// Says it on standard error.
    pub fn tell(&self) {
        if self.message.is_empty() {
            return;
        }
        let mut text = format!("error: {}\n", printable(&self.message));
        if let Some(help) = &self.help {
            text += &format!("help: {}\n", printable(help));
        }
        tell(&text);
    }
}

/// Prints on standard output.
///
/// # Errors
/// When it cannot be written. A reader that went away gives a [`Failure`] without words.
pub fn print(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Writes bytes to standard output as they are.
///
/// # Errors
/// As [`print()`].
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::write("standard output", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidewater-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// `report run.json -o x.csv` wrote an HTML page of that name.
    #[test]
    fn a_page_has_no_ending_of_a_table() {
        for ending in ["csv", "CSV", "parquet", "arrow", "json"] {
            let refused = Target::page(Some(&PathBuf::from(format!("/nowhere/x.{ending}")))).unwrap_err();
            assert!(refused.message.starts_with("/nowhere/x.") && refused.message.contains("HTML"), "{refused:?}");
        }
        for name in ["x.html", "x.htm", "x", "a.csv/x"] {
            assert!(page_ending(Path::new(name)).is_ok(), "{name}");
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_is_there_only_when_it_is_complete() {
        let folder = folder("complete");
        let place = folder.join("r.html");
        let target = Target::new(&place).unwrap();
        assert_eq!(names(&folder), Vec::<String>::new());
        let mut writer = target.open().unwrap();
        writer.write_all(&[b'x'; 100_000]).unwrap();
        assert!(!place.exists());
        drop(writer);
        assert_eq!(names(&folder), Vec::<String>::new());
        target.write("old").unwrap();
        target.write("new").unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "new");
        assert_eq!(names(&folder), ["r.html"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_the_run() {
        let folder = folder("refused");
        let refused = |path: &Path| Target::new(path).unwrap_err();
        assert!(refused(&folder).message.contains("it is a directory"));
        let failure = refused(&folder.join("absent/r.html"));
        assert!(failure.help.as_deref().is_some_and(|help| help.starts_with("mkdir")), "{failure:?}");
        assert!(refused(&folder.join("none/")).message.contains("ends like a directory's"));
        let a = Target::new(&folder.join("a")).unwrap();
        assert!(distinct(&[Some(&a), None, Some(&a)], None).is_err());
        a.write("input").unwrap();
        let a = Target::new(&folder.join("a")).unwrap();
        assert!(distinct(&[Some(&a)], Some(&folder.join("a"))).is_err());
        assert!(distinct(&[Some(&a)], Some(&folder.join("b"))).is_ok());
        // Of a file that is not there yet, too, one name is as good as another.
        let [new, same] = ["new", "./new"].map(|name| Target::new(&folder.join(name)).unwrap());
        assert!(distinct(&[Some(&new), Some(&same)], None).unwrap_err().message.contains("two results"));
        fs::create_dir(folder.join("below")).unwrap();
        let same = Target::new(&folder.join("below/../new")).unwrap();
        assert!(distinct(&[Some(&new), Some(&same)], None).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_of_a_file_nothing_half_written_is_left() {
        let full = io::Error::from_raw_os_error(28);
        let help = |path: &str| Target::new(Path::new(path)).unwrap().unwritten(&full).help.unwrap();
        let folder = folder("unwritten");
        assert!(help(&folder.join("r.json").to_string_lossy()).contains("nothing half-written was left"));
        assert_eq!(help("-"), "free some space and run again");
        assert_eq!(help("/dev/null"), "free some space and run again");
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_a_device_is_written_directly() {
        let folder = folder("link");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Target::new(&link).unwrap().write("new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        // One that leads to what is not there yet leads there afterwards.
        let (new, early) = (folder.join("new"), folder.join("early"));
        std::os::unix::fs::symlink("new", &early).unwrap();
        Target::new(&early).unwrap().write("made").unwrap();
        assert!(fs::symlink_metadata(&early).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&new).unwrap(), "made");
        Target::new(Path::new("/dev/null")).unwrap().write("gone").unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
