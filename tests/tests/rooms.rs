//! The rooms of the firmware have an order: a file of `crates/core/src` uses only rooms below its own.

use std::collections::{BTreeMap, BTreeSet};

use tidewater_tests::{root, rust_files};

const CORE: &str = "crates/core/src/";

/// The rooms of `core` from the ground up (ARCHITECTURE.md, "The rooms of the firmware"). Those of one floor do not use
/// each other. `device` wires the rooms below it together; `subsystem` stands in front of it.
const FLOORS: &[&[&str]] = &[
    &["content", "events", "owner", "profile", "saved"],
    &["cost", "layout", "memory"],
    &["buffer", "flash", "host"],
    &["ftl"],
    &["fast", "host_memory"],
    &["window"],
    &["block", "power"],
    &["device"],
    &["drive"],
    &["subsystem"],
];

/// Arrows that point up, each with its reason. A test fails when one of them is no longer needed, or another appears.
const UP: &[(&str, &str, &str)] = &[
    ("profile", "buffer", "the names of the policies, which are registered by one line there"),
    ("block", "device", "its functions are methods of `Device`"),
    ("power", "device", "its functions are methods of `Device`, and it makes one"),
    ("fast", "device", "its functions are methods of `Device`"),
    ("host_memory", "device", "its functions are methods of `Device`"),
    ("window", "device", "its functions are methods of `Device`"),
];

/// Files outside `device/` that have methods of `Device`. The list may only become shorter.
const DEVICE_METHODS: &[&str] = &[
    "block/command.rs",
    "block/destage.rs",
    "block/lookup.rs",
    "fast/commands.rs",
    "fast/intake.rs",
    "fast/replication.rs",
    "fast/status.rs",
    "host_memory/uses.rs",
    "power/mod.rs",
    "window/commands.rs",
    "window/gate.rs",
    "window/jobs.rs",
    "window/recovery.rs",
];

/// The product code of a file: no comments, and nothing behind its tests.
fn product(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Files of `core`, by their path below `src`, with their product code.
fn core_files() -> Vec<(String, String)> {
    let files = rust_files().into_iter().filter_map(|(path, text)| {
        let path = path.to_str()?.strip_prefix(CORE)?.to_owned();
        let is_test = path.contains("/tests") || path.ends_with("tests.rs") || path.ends_with("conformance.rs");
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
    let arrows = against(&core_files());
    let known = |(from, to): &(String, String)| UP.iter().any(|(f, t, _)| (f, t) == (&from.as_str(), &to.as_str()));
    let wrong: Vec<_> = arrows.iter().filter(|(arrow, _)| !known(arrow)).collect();
    assert!(wrong.is_empty(), "rooms of core that use one above them, or beside them: {wrong:#?}");
    let gone: Vec<_> = UP.iter().filter(|(f, t, _)| !arrows.contains_key(&((*f).into(), (*t).into()))).collect();
    assert!(gone.is_empty(), "no file needs these arrows any more: take them out of {}: {gone:#?}", file!());
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

#[test]
fn methods_of_the_device_stay_where_they_are_allowed() {
    let files = core_files();
    let has = |code: &str| code.contains("impl<M: Medium> Device<M> {");
    let found: Vec<_> = files.iter().filter(|(path, code)| room_of(path) != "device" && has(code)).collect();
    let found: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(found, DEVICE_METHODS, "files outside crates/core/src/device with methods of `Device`");
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
