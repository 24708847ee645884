//! The rooms of the firmware have an order: a file of `crates/core/src` uses only rooms below its own.

use std::collections::{BTreeMap, BTreeSet};

use tidewater_tests::{root, rust_files};

const CORE: &str = "crates/core/src/";

/// The rooms of `core` from the ground up (ARCHITECTURE.md, "The rooms of the firmware"). Those of one floor do not use
/// each other. `device` wires the rooms below it together; `subsystem` stands in front of it.
const FLOORS: &[&[&str]] = &[
    &["content", "events", "flaw", "owner", "saved"],
    &["buffer"],
    &["profile"],
    &["cost", "layout", "memory"],
    &["flash", "host"],
    &["border", "ftl"],
    &["caches", "context"],
    &["fast", "host_memory"],
    &["window"],
    &["block", "power"],
    &["device"],
    &["drive"],
    &["subsystem"],
];

/// Lines that `impl Device` may take, all its parts together: it wires rooms, and does not do their work.
const DEVICE_LINES: usize = 900;

/// The product code of a file: no comments, and nothing behind its tests.
fn product(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Files of `core`, by their path below `src`, with their product code.
fn core_files() -> Vec<(String, String)> {
    let files = rust_files().into_iter().filter_map(|(path, text)| {
        let path = path.to_str()?.strip_prefix(CORE)?.to_owned();
        let is_test = path.contains("/tests") || path.ends_with("tests.rs");
        (!is_test && path != "lib.rs").then(|| (path, product(&text)))
    });
    files.collect()
}

/// The room of a file: the folder, or the file itself.
fn room_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// The names behind each `crate::`, those of a group included.
fn used(code: &str) -> BTreeSet<&str> {
    let is_name = |c: char| !(c.is_alphanumeric() || c == '_');
    let first = |rest: &'_ str| rest.find(is_name).unwrap_or(rest.len());
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group.split('}').next().unwrap_or_default().split(',').map(|part| {
                let part = part.trim();
                &part[..first(part)]
            })),
            None => _ = names.insert(&rest[..first(rest)]),
        }
    }
    names
}

/// Arrows against the floors, each with the files that draw it.
fn against(files: &[(String, String)]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let floor = |room: &str| FLOORS.iter().position(|rooms| rooms.contains(&room));
    let rooms: BTreeSet<&str> = files.iter().map(|(path, _)| room_of(path)).collect();
    let mut arrows: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (path, code) in files {
        let room = room_of(path);
        let own = floor(room).unwrap_or_else(|| panic!("{CORE}{path}: `{room}` is on no floor of {}", file!()));
        for other in used(code).into_iter().filter(|other| *other != room && rooms.contains(other)) {
            if floor(other).is_none_or(|floor| floor >= own) {
                arrows.entry((room.to_owned(), other.to_owned())).or_default().insert(path.clone());
            }
        }
    }
    arrows
}

#[test]
fn rooms_use_only_what_is_below_them() {
    let wrong = against(&core_files());
    assert!(wrong.is_empty(), "rooms of core that use one above them, or beside them: {wrong:#?}");
}

#[test]
fn an_arrow_against_the_order_is_found() {
    let file = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    let clean = [file("flash/mod.rs", "use crate::events::Kind;"), file("events/mod.rs", "")];
    assert!(against(&clean).is_empty());
    let upward = [file("flash/mod.rs", "use crate::{events, ftl::Ftl};"), file("ftl/mod.rs", ""), clean[1].clone()];
    assert_eq!(against(&upward).keys().collect::<Vec<_>>(), [&("flash".to_owned(), "ftl".to_owned())]);
    assert!(against(&[file("flash/mod.rs", &product("// crate::ftl\n")), file("ftl/mod.rs", "")]).is_empty());
}

/// The parts of `impl Device` in a file.
fn device_parts(code: &str) -> Vec<&str> {
    let starts = code.match_indices("impl").filter(|(at, _)| {
        let head = code[*at..].split('{').next().unwrap_or_default();
        let is_line = *at == 0 || code[..*at].ends_with('\n');
        is_line && !head.contains(" for ") && head.split_whitespace().any(|word| word.starts_with("Device<"))
    });
    starts.map(|(at, _)| code[at..].split("\n}\n").next().unwrap_or_default()).collect()
}

/// What is wrong with the device: parts of it outside of its room, too many lines, fields that others reach into.
fn device_faults(files: &[(String, String)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut lines = 0;
    for (path, code) in files {
        let parts = device_parts(code);
        lines += parts.iter().map(|part| part.lines().count()).sum::<usize>();
        if room_of(path) != "device" && !parts.is_empty() {
            faults.push(format!("{path} has methods of `Device`"));
        }
        let fields = code.split("pub struct Device<").nth(1).and_then(|rest| rest.split("\n}\n").next());
        let fields = fields.into_iter().flat_map(str::lines).skip(1);
        faults.extend(fields.filter(|line| line.contains("pub")).map(|line| format!("{path}:{line}")));
    }
    if lines > DEVICE_LINES {
        faults.push(format!("`impl Device` has {lines} lines"));
    }
    faults
}

#[test]
fn the_device_wires_rooms_and_nothing_else() {
    let faults = device_faults(&core_files());
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn what_does_not_belong_to_the_device_is_found() {
    let file = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    let clean = file("device/mod.rs", "pub struct Device<M> {\n    ftl: Ftl<M>,\n}\n\nimpl<M> Device<M> {\n}\n");
    assert!(device_faults(&[clean]).is_empty());
    let wrong = [
        file("device/mod.rs", "pub struct Device<M> {\n    pub(crate) ftl: Ftl<M>,\n}\n"),
        file("fast/mod.rs", "\nimpl<M: Medium> Device<M> {\n    fn store(&mut self) {}\n}\n"),
        file("device/long.rs", &format!("impl Device<Nand> {{\n{}}}\n", "    fn f() {}\n".repeat(DEVICE_LINES))),
    ];
    assert_eq!(device_faults(&wrong).len(), 3, "{:#?}", device_faults(&wrong));
}

/// Files that parse an entry of a block command, or refuse a block that is not there.
fn judges(files: &[(String, String)]) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (path, code) in files {
        let parses = code.match_indices("Command::parse(").any(|(at, _)| {
            let before = &code[..at];
            !["Admin", "Io", "Window"].iter().any(|other| before.ends_with(other))
        });
        let refuses = code.contains("Status::LBA_OUT_OF_RANGE");
        found.extend(parses.then_some((path.as_str(), "parses")));
        found.extend(refuses.then_some((path.as_str(), "refuses")));
    }
    found
}

#[test]
fn commands_are_parsed_and_checked_in_one_file() {
    let expected = [("host/request.rs", "parses"), ("host/request.rs", "refuses")];
    assert_eq!(judges(&core_files()), expected);
    let second = [("subsystem/io.rs".to_owned(), "let command = nvme::Command::parse(&sqe)?;".to_owned())];
    assert_eq!(judges(&second), [("subsystem/io.rs", "parses")]);
}

/// The rows of the table "Where is …?": file and item.
fn whereabouts(text: &str) -> Vec<(&str, &str)> {
    let section = text.split("## Where is …?").nth(1).unwrap_or_default().split("### Where tests are").next();
    let rows = section.unwrap_or_default().lines().filter(|line| line.starts_with("| ") && line.contains(".rs`"));
    let rows = rows.filter_map(|row| {
        let mut cells = row.split('|').skip(2).map(|cell| cell.trim().trim_matches('`'));
        Some((cells.next()?, cells.next()?))
    });
    rows.collect()
}

#[test]
fn what_newcomers_look_for_is_where_the_architecture_says() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let rows = whereabouts(&text);
    assert!(rows.len() >= 40, "{} questions", rows.len());
    let is_there = |(file, item): &&(&str, &str)| {
        let code = std::fs::read_to_string(root().join("crates").join(file)).unwrap_or_default();
        product(&code)
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|word| item.ends_with(word) && !word.is_empty())
    };
    let gone: Vec<_> = rows.iter().filter(|row| !is_there(row)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md, \"Where is …?\", names what is not there: {gone:#?}");
}
