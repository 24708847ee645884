//! The files that `tidewater report` reads: those that are named, and the records of a sweep's directory.

use crate::failure::Failure;
use crate::output;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tidewater_base::units::plural;
use tidewater_study::read;

/// The index of a sweep, in its directory.
const INDEX: &str = "sweep.json";

/// A file, and what its run is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is; `-` is standard input.
    pub path: PathBuf,
    /// A name of its run that no other has.
    pub label: String,
}

impl SourceFile {
    /// Where the page of its run is, if it has one: beside the record.
    pub fn page(&self) -> PathBuf {
        self.path.with_extension("html")
    }
}

#[derive(Deserialize)]
struct Index {
    runs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    label: String,
    record: PathBuf,
}

/// The files of these arguments: of a directory, the records of its sweep.
///
/// # Errors
/// A directory without a sweep, or without a record.
pub fn all(arguments: &[PathBuf]) -> Result<Vec<SourceFile>, Failure> {
    let mut files = Vec::new();
    for (path, label) in arguments.iter().zip(names(arguments)) {
        if path.is_dir() {
            files.extend(sweep(path)?);
        } else {
            files.push(SourceFile { path: path.clone(), label });
        }
    }
    Ok(files)
}

fn sweep(folder: &Path) -> Result<Vec<SourceFile>, Failure> {
    let index = folder.join(INDEX);
    if !index.is_file() {
        return Err(Failure::usage(format_args!("{}: is a directory without {INDEX}", folder.display()))
            .help("give the directory that `tidewater sweep --out` names, or records"));
    }
    let index: Index = serde_json::from_str(&read(&index)?)
        .map_err(|error| Failure::usage(format_args!("{}: not the index of a sweep: {error}", index.display())))?;
    let of = index.runs.len();
    let files: Vec<SourceFile> = index
        .runs
        .into_iter()
        .map(|Entry { label, record }| SourceFile { path: folder.join(record), label })
        .filter(|file| file.path.is_file())
        .collect();
    if files.is_empty() {
        return Err(Failure::usage(format_args!("{}: none of its runs has a record", folder.display()))
            .help("`tidewater sweep` makes them; see runs/*.failed.json where they failed"));
    }
    if files.len() < of {
        let missing = plural((of - files.len()) as u64, "run");
        output::tell(&format!("note: {missing} of {of} failed or are still to be made: left out\n"));
    }
    Ok(files)
}

/// Names of these files' records: their file names, or, where those are not enough, their paths.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let different: BTreeSet<String> = paths.iter().map(short).collect();
    let enough = different.len() == paths.len();
    paths.iter().map(|path| if enough { short(path) } else { path.display().to_string() }).collect()
}

/// For each of as many runs, a link from the page at `output` to its own page, where there is one.
pub fn links(files: &[SourceFile], runs: usize, output: Option<&Path>) -> Vec<Option<String>> {
    // A file of several runs has no page for each.
    if files.len() != runs {
        return Vec::new();
    }
    let from =
        output.and_then(Path::parent).map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let link = |file: &SourceFile| {
        let page = file.page();
        if !page.is_file() || output == Some(&page) {
            return None;
        }
        Some(relative(&from?.canonicalize().ok()?, &page.canonicalize().ok()?))
    };
    files.iter().map(link).collect()
}

/// The way from a directory to a file, both without links, as a part of an address.
fn relative(from: &Path, to: &Path) -> String {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| "..".to_owned());
    let down = to.components().skip(common).map(|part| encoded(&part.as_os_str().to_string_lossy()));
    up.chain(down).collect::<Vec<_>>().join("/")
}

/// A part of an address (RFC 3986, section 2.3).
fn encoded(part: &str) -> String {
    let mut out = String::new();
    for byte in part.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_called_by_their_files() {
        let names = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["x/a.json", "b.json"]), ["a", "b"]);
        assert_eq!(names(&["x/a.json", "y/a.json"]), ["x/a.json", "y/a.json"]);
    }

    #[test]
    fn a_link_leads_from_a_page_to_a_run() {
        assert_eq!(relative(Path::new("/a/b"), Path::new("/a/b/runs/1.html")), "runs/1.html");
        assert_eq!(relative(Path::new("/a/c d"), Path::new("/a/b x/1?.html")), "../b%20x/1%3F.html");
    }

    #[test]
    fn a_directory_holds_the_records_of_its_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || all(&[folder.path().to_owned()]).unwrap_err();
        assert!(refused().message.contains("without sweep.json"));
        let index =
            r#"{"version":"1","runs":[{"label":"a=1","record":"runs/x.json"},{"label":"a=2","record":"runs/y.json"}]}"#;
        std::fs::write(folder.path().join(INDEX), index).unwrap();
        assert!(refused().message.contains("none of its runs has a record"));
        std::fs::create_dir(folder.path().join("runs")).unwrap();
        std::fs::write(folder.path().join("runs/y.json"), "{}").unwrap();
        let files = all(&[folder.path().to_owned()]).unwrap();
        assert_eq!((files.len(), &*files[0].label), (1, "a=2"));
        assert_eq!(links(&files, 1, Some(&folder.path().join("page.html"))), [None]);
        std::fs::write(files[0].page(), "").unwrap();
        assert_eq!(links(&files, 1, Some(&folder.path().join("page.html"))), [Some("runs/y.html".to_owned())]);
    }
}
