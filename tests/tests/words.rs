//! Plain English: words that no page holds, old sentences that stay away, and a count for each part of the sources that
//! may only fall.

use std::collections::BTreeMap;
use std::path::Path;

use tidewater_tests::{files, root, rust_files, source};

/// Each has a plain word of the field that says it better: the actor's name, "is passed", "reports", "releases".
const WORDS: &[&str] = &[
    "whoever",
    "somebody",
    "nobody",
    "told",
    "hears",
    "lets go",
    "looks around",
    "in good order",
    "no business of",
    "by himself",
    "no fault is to come",
];

/// Names that hold one of [`WORDS`].
const NAMES: &[&str] = &["nobody:nogroup", "'nobody'"];

/// A piece of each sentence that was rewritten.
const OLD: &[&str] = &[
    "with the memories that four designs of the literature add",
    "says in a report for your browser how such a drive would serve it",
    "as another user they print the one line that does",
    "that needs nothing beside it",
    "what does a drive hide?",
    "they then tell of the queue",
    "are taken as written before, so that reading",
    "may not leave the house",
    "began empty and never had to collect",
    "the drive is small and every die has whole superblocks",
    "that were not flushed are lost on a power cut",
    "a BAR has one descriptor, and that is the ring's",
    "as far as the disk below keeps what fdatasync promises",
    "as far as the disk below the image keeps what",
    "no file came onto the log",
    "that is not the one that was written, or not yours",
    "of this user and of no other",
    "a file system may not be mounted",
    "why the others do not is known",
    "where the original is",
    "is all of it per unit of the first part",
    "count as no bytes of the host's",
    "a value that no run of the others reaches",
    "without it by the end of OUT's name",
    "took what that said for root's",
    "no fault is to come any more",
    "is no target",
    "serves there already",
    "makes the Tab key know it",
    "less the computer's own time",
];

/// How many of [`WORDS`] each part of the repository still has, in comments and strings of Rust and all of other files.
/// Lower a number when its part is rewritten; never raise one. What is not listed has none.
const STILL: &[(&str, usize)] = &[];

/// Where a file counts: a page by itself, other files with their crate or top-level folder.
fn part(file: &Path) -> String {
    let mut parts = file.iter().map(|part| part.to_str().unwrap_or_default());
    match (parts.next(), parts.next()) {
        _ if file.extension().is_some_and(|extension| extension == "md") => file.display().to_string(),
        (Some("crates"), Some(name)) => format!("crates/{name}"),
        (Some(folder), _) => folder.to_owned(),
        _ => unreachable!("a file has a name"),
    }
}

/// The words of a text in lower case, each with its line. Signs are no part of a word, so that marks of comments, line
/// breaks and quotes hide nothing.
fn words(text: &str) -> Vec<(String, usize)> {
    let lines = text.lines().enumerate();
    let of_line = |(index, line): (usize, &str)| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.map(|word| (word.to_lowercase(), index + 1)).collect::<Vec<_>>()
    };
    lines.flat_map(of_line).collect()
}

/// The lines on which `phrase` begins.
fn found(text: &[(String, usize)], phrase: &str) -> Vec<usize> {
    let phrase = words(phrase);
    let is_here = |here: &&[(String, usize)]| here.iter().zip(&phrase).all(|(one, other)| one.0 == other.0);
    text.windows(phrase.len()).filter(is_here).map(|here| here[0].1).collect()
}

/// The prose of each file of ours.
fn pages() -> Vec<(std::path::PathBuf, Vec<(String, usize)>)> {
    let is_ours = |file: &Path| {
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        ["rs", "md", "toml", "sh", "c", "h", "cc", "css", "service", "1", "3"].contains(&extension)
            || file == Path::new("Makefile")
    };
    let read = |file: std::path::PathBuf| {
        let text = std::fs::read_to_string(root().join(&file)).expect("a file of ours is text");
        let mut text = if file.extension().is_some_and(|it| it == "rs") { source::prose(&text) } else { text };
        for name in NAMES {
            text = text.replace(name, "");
        }
        let words = words(&text);
        (file, words)
    };
    // This file lists what is looked for.
    files().into_iter().filter(|file| is_ours(file) && !file.ends_with("tests/words.rs")).map(read).collect()
}

/// Parts with more of [`WORDS`] than `still` allows, with their places.
fn too_many(pages: &[(std::path::PathBuf, Vec<(String, usize)>)], still: &[(&str, usize)]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in pages {
        for word in WORDS {
            let lines = found(text, word).into_iter().map(|line| format!("{}:{line}: {word}", file.display()));
            places.entry(part(file)).or_default().extend(lines);
        }
    }
    let allowed = |part: &str| still.iter().find(|(name, _)| *name == part).map_or(0, |(_, count)| *count);
    let over = places.into_iter().filter(|(part, places)| places.len() > allowed(part));
    over.map(|(part, places)| format!("{part}: {}, at most {}: {places:?}", places.len(), allowed(&part))).collect()
}

#[test]
fn words_that_name_nothing_become_fewer() {
    let pages = pages();
    let wrong = too_many(&pages, STILL);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let parts: Vec<String> = pages.iter().map(|(file, _)| part(file)).collect();
    for (name, _) in STILL {
        assert!(parts.iter().any(|part| part == name), "{name} is in the table, and not in the repository");
    }
}

#[test]
fn old_sentences_stay_away() {
    let pages = pages();
    let mut wrong = Vec::new();
    for sentence in OLD {
        let places: Vec<String> = pages
            .iter()
            .flat_map(|(file, text)| found(text, sentence).into_iter().map(|line| format!("{}:{line}", file.display())))
            .collect();
        if !places.is_empty() {
            wrong.push(format!("\"{sentence}\": {places:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Lines of tests that sleep for a fixed time, or let time pass. Wait for an event instead (`tidewater_tests::wait`);
/// lower the number when one is gone, and never raise it.
const SLEEPS: usize = 60;

#[test]
fn tests_sleep_less_and_less() {
    let is_test = |file: &Path| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.iter().any(|part| part == "tests" || part == "bench" || part == "testkit") || name.ends_with("tests.rs")
    };
    let sleeps = |(file, text): &(std::path::PathBuf, String)| {
        let lines = text.lines().filter(|line| line.contains("thread::sleep(") || line.contains("wait::pass(")).count();
        if is_test(file) && !file.ends_with("tests/words.rs") { lines } else { 0 }
    };
    let count: usize = rust_files().iter().map(sleeps).sum();
    assert!(count <= SLEEPS, "{count} lines of tests sleep; {SLEEPS} did");
}

/// Doc comments that begin with "What": the noun or the verb that they hide is shorter. Lower the number when one is
/// gone, and never raise it.
const RIDDLES: usize = 510;

#[test]
fn comments_that_begin_with_what_become_fewer() {
    let is_one = |line: &&str| ["/// What ", "//! What "].iter().any(|begin| line.trim_start().starts_with(begin));
    let count: usize = rust_files().iter().map(|(_, text)| text.lines().filter(is_one).count()).sum();
    assert!(count <= RIDDLES, "{count} doc comments begin with \"What\"; {RIDDLES} did");
}

/// An operator looks a message up by its words.
#[test]
fn messages_of_the_runbook_are_in_the_sources() {
    let page = std::fs::read_to_string(root().join("docs/guide/runbook.md"))
        .expect("the file can be read")
        .replace("\n  ", " ");
    // A text over several lines is one.
    let lines = |source: String| source.split("\\\n").map(str::trim_start).collect::<String>();
    let sources: String = rust_files().into_iter().map(|(_, source)| lines(source)).collect();
    let messages: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next()).collect();
    assert!(messages.len() > 30, "{messages:?}");
    // Shorter pieces are brackets.
    let pieces = messages.iter().flat_map(|message| message.split('…')).map(str::trim).filter(|piece| piece.len() > 3);
    let missing: Vec<&str> = pieces.filter(|piece| !sources.contains(piece)).collect();
    assert!(missing.is_empty(), "no program prints {missing:#?}");
}

/// Each promise of the threat model names tests, and these are there.
#[test]
fn promises_of_the_threat_model_have_their_tests() {
    let page = std::fs::read_to_string(root().join("docs/internals/threat-model.md")).expect("the file can be read");
    let (promises, _) = page.split_once("\n## What is not covered").expect("what it does not promise");
    let sources: String = rust_files().into_iter().map(|(_, source)| source).collect();
    let mut count = 0;
    // What the user who runs it may do is no promise.
    for promise in promises.split("\n- ").skip(2) {
        let names = promise.rsplit_once("Tests:").or_else(|| promise.rsplit_once("*tests*"));
        let (_, names) = names.unwrap_or_else(|| panic!("no tests: {promise}"));
        let names = names.split("\n\n").next().unwrap_or_default();
        for name in names.split('`').skip(1).step_by(2) {
            assert!(sources.contains(&format!("fn {name}(")), "there is no test {name}");
            count += 1;
        }
    }
    assert!(count > 50, "{count} tests");
}

#[test]
fn a_word_is_found_over_line_breaks_and_marks() {
    let page = |text: &str| vec![(std::path::PathBuf::from("docs/page.md"), words(text))];
    for wrong in ["Whoever asks", "> who is\n> told", "it lets\n/// go of `x`", "nobody's", "**Nobody**"] {
        assert_eq!(too_many(&page(wrong), &[]).len(), 1, "{wrong}");
        assert_eq!(too_many(&page(wrong), &[("docs/page.md", 1)]).len(), 0, "{wrong}");
    }
    for right in ["untold", "lets it go", "nobodys", "a nobody_else identifier", "each controller"] {
        assert_eq!(too_many(&page(right), &[]).len(), 0, "{right}");
    }
    let sentence = words("they\nthen `tell` of the\n# queue, not");
    assert_eq!(found(&sentence, "they then tell of the queue"), [1]);
    assert_eq!(found(&sentence, "they then tell of the drive"), Vec::<usize>::new());
}

/// `tidewater` on PyPI is another project: ours is `tidewater-ssd`, on no index yet, imported as `tidewater_ssd`.
#[test]
fn install_lines_and_imports_name_our_python_package() {
    let (install, import) = (["pip", "install"].join(" "), ["import", "tidewater"].join(" "));
    let from = ["from", "tidewater"].join(" ");
    let mut wrong = Vec::new();
    for file in files() {
        let Ok(content) = std::fs::read_to_string(root().join(&file)) else { continue };
        for (index, line) in content.lines().enumerate() {
            let installs = line
                .split_once(&install)
                .is_some_and(|(_, rest)| rest.split("tidewater").skip(1).any(|after| !after.starts_with("_ssd-*.whl")));
            let imports = line.split(&import).skip(1).any(|after| !after.starts_with('_'))
                || line.split(&from).skip(1).any(|after| after.starts_with([' ', '.']) && after.contains("import "));
            if installs || imports {
                wrong.push(format!("{}:{}: {line}", file.display(), index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
