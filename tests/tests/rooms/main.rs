//! Rooms have an order: a file uses only rooms below its own, and few files import each other in a circle.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use imports::{Imports, product};
use tidewater_tests::{root, rust_files};

/// A folder whose rooms have an order. A room is a folder or a file in it.
struct Place {
    /// Below the checkout.
    folder: &'static str,
    /// The rooms from the ground up. Those of one floor do not use each other.
    floors: &'static [&'static [&'static str]],
}

/// Files that may import each other in one circle.
const CIRCLE_MAX: usize = 2;

/// Places in the order of ARCHITECTURE.md, "The rooms of the firmware" and "The rooms of the served device".
const PLACES: &[Place] = &[
    Place {
        folder: "crates/core/src",
        // `device` wires the rooms below it together; `subsystem` stands in front of it.
        floors: &[
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
        ],
    },
    Place {
        folder: "crates/core/src/subsystem",
        // `route` wires the rooms below it together; `rooms` lends those of admin commands.
        floors: &[
            &["faults", "interface", "namespaces", "sanitize", "self_test", "share", "smart"],
            &["features", "input_log", "logs", "options", "queues", "tokens"],
            &["identify", "slots", "state", "timers"],
            &["context"],
            &["blocks", "controllers"],
            &["erase", "health", "host_memory", "pointers"],
            &["rooms"],
            &["admin", "window"],
            &["admin_data"],
            &["route"],
        ],
    },
    Place {
        folder: "crates/core/src/ftl",
        // `page` and `hybrid` are placements; `mod.rs` owns a store and one of them.
        floors: &[
            &["deal", "journal", "map", "precondition", "space", "statistics"],
            &["rows"],
            &["store"],
            &["placement"],
            &["checkpoint", "done", "hybrid", "page", "read", "recover", "rewrite"],
            &["sizing"],
        ],
    },
    Place {
        folder: "crates/serve/src",
        floors: &[
            &["clock", "image", "metrics", "nvme_tcp", "runtime"],
            &["commands", "control", "nbd", "trace", "vfio_user"],
            &["inbox", "ring"],
            &["peers"],
            &["engine"],
        ],
    },
    Place {
        folder: "crates/serve/src/engine",
        // `route` wires the rooms below it together.
        floors: &[
            &["clock", "mail", "setup"],
            &["events", "firmware"],
            &["context", "rerun"],
            &["faults", "record", "storage"],
            &["group", "hosts"],
            &["rings"],
            &["route"],
            &["views"],
            &["server"],
        ],
    },
    Place {
        folder: "crates/client/src",
        floors: &[
            &["error", "level"],
            &["operation", "log_error"],
            &["lane", "window", "writers"],
            &["record", "watch"],
            &["read", "region", "write"],
            &["hardware", "mapped"],
        ],
    },
    Place {
        folder: "crates/client/src/mapped",
        // `attached` is a log on one device; `place` goes from one to the next.
        floors: &[
            &["cluster", "cut", "inode", "stores", "thread"],
            &["memory"],
            &["disk", "lent", "options", "owner"],
            &["device", "ring"],
            &["commands", "copy"],
            &["targets"],
            &["attached", "reader"],
            &["place"],
            &["log"],
        ],
    },
    Place {
        folder: "crates/files/src",
        // `run` is the supervisor of other processes, `embedded` that of its own.
        floors: &[
            &["backing", "compare", "fcntl_locks", "glob", "hand_over", "handle", "position", "system"],
            &["content", "marker", "report", "unwritten"],
            &["access", "entries", "interlock", "table"],
            &["deferred", "delta", "error", "loss"],
            &["redo", "set"],
            &["marks", "onto", "paths", "replay", "reread", "unrecorded", "write"],
            &["members", "run"],
            &["embedded"],
        ],
    },
    Place {
        folder: "crates/shim/src",
        floors: &[&["memory", "real", "text"], &["descriptors", "paths"], &["process"], &["calls"]],
    },
    Place {
        folder: "crates/shim/src/calls",
        // `raw` passes system calls to what stands for them.
        floors: &[
            &["children", "members"],
            &["begin", "change", "mapped", "names", "sync"],
            &["refused", "rewrite"],
            &["descriptors", "printed"],
            &["open"],
            &["write"],
            &["raw"],
        ],
    },
    Place {
        folder: "crates/sim/src",
        // Jobs, logs and the modelled PCIe have their types beside what reads them.
        floors: &[
            &["cluster", "host_memory", "oracle", "pcie", "pool", "request"],
            &["metrics", "probe", "trace"],
            &["workload"],
            &["host", "run"],
        ],
    },
    Place {
        folder: "crates/crash/src",
        // `content` holds the bytes of files: a store of blocks can stand in its place.
        floors: &[
            &["content", "operation"],
            &["tree"],
            &["image", "unpack", "volume"],
            &["state"],
            &["control", "kept", "shrink"],
            &["mount"],
        ],
    },
    Place {
        folder: "crates/cli/src",
        // `args` is the table of all commands; those of a floor do not call each other.
        floors: &[
            &["args", "failure", "notify", "profile_schema"],
            &["output", "socket", "text"],
            &["completions", "drive", "fault", "figure", "generate", "group", "interrupt", "logging", "nvme", "page"],
            &["drive_image"],
            &["bench", "keeper", "mount", "progress", "run", "served", "status", "tail"],
            &["cluster", "crash_test", "experiment", "log", "log_device", "probe", "replay", "sweep", "trace"],
            &["compare", "report"],
            &["dry"],
        ],
    },
];

/// A type that wires rooms, and does not do their work.
struct Wiring {
    name: &'static str,
    /// The place, and the room in it that alone has methods of it.
    place: &'static str,
    room: &'static str,
    /// Lines that its methods may take, all parts of it together.
    lines_max: usize,
    /// No other file may reach into it.
    is_closed: bool,
}

const WIRING: &[Wiring] = &[
    Wiring { name: "Device", place: "crates/core/src", room: "device", lines_max: 900, is_closed: true },
    Wiring { name: "Subsystem", place: "crates/core/src/subsystem", room: "route", lines_max: 1400, is_closed: true },
    Wiring { name: "Engine", place: "crates/serve/src/engine", room: "route", lines_max: 230, is_closed: false },
    Wiring { name: "Server", place: "crates/serve/src/engine", room: "server", lines_max: 670, is_closed: true },
];

/// Files of a folder, by their paths below it, with their product code.
fn files_of(folder: &str) -> Vec<(String, String)> {
    let files = rust_files().into_iter().filter_map(|(path, text)| {
        let path = path.to_str()?.strip_prefix(folder)?.strip_prefix('/')?.to_owned();
        let is_test = path.contains("tests/") || path.ends_with("tests.rs");
        (!is_test).then(|| (path, product(&text)))
    });
    files.collect()
}

/// The room of a file: the folder, or the file itself.
fn room_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// Arrows against the floors, each with the files that draw it. `files`: those of the crate, by their paths below
/// `src`; `inside`: the folder of the rooms there, with a slash behind it, or nothing.
fn against(
    files: &[(String, String)],
    inside: &str,
    floors: &[&[&str]],
) -> BTreeMap<(String, String), BTreeSet<String>> {
    let floor = |room: &str| floors.iter().position(|rooms| rooms.contains(&room));
    let mut arrows: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let room = |path: &'_ str| {
        let path = path.strip_prefix(inside).filter(|path| !["mod.rs", "lib.rs", "main.rs"].contains(path))?;
        let room = room_of(path);
        floor(room).unwrap_or_else(|| panic!("{inside}{path}: `{room}` is on no floor of {}", file!()));
        Some(room.to_owned())
    };
    files.iter().for_each(|(path, _)| _ = room(path));
    for (path, other) in Imports::of(files).all() {
        if let (Some(own), Some(used)) = (room(path), room(other))
            && own != used
            && floor(&used) >= floor(&own)
        {
            arrows.entry((own, used)).or_default().insert(path.to_owned());
        }
    }
    arrows
}

#[test]
fn rooms_use_only_what_is_below_them() {
    for Place { folder, floors, .. } in PLACES {
        let (before, inside) = folder.split_once("/src").expect("a folder of sources");
        let inside = inside.strip_prefix('/').map_or(String::new(), |inside| format!("{inside}/"));
        let wrong = against(&files_of(&format!("{before}/src")), &inside, floors);
        assert!(wrong.is_empty(), "rooms of {folder} that use one above them, or beside them: {wrong:#?}");
    }
}

#[test]
fn few_files_import_each_other_in_a_circle() {
    for Place { folder, .. } in PLACES.iter().filter(|place| place.folder.ends_with("/src")) {
        let imports = Imports::of(&files_of(folder));
        let large: Vec<_> = imports.circles().into_iter().filter(|circle| circle.len() > CIRCLE_MAX).collect();
        assert!(large.is_empty(), "circles of more than {CIRCLE_MAX} files in {folder}: {large:#?}");
    }
}

#[test]
fn an_arrow_against_the_order_is_found() {
    let floors: &[&[&str]] = &[&["events"], &["flash"], &["ftl"]];
    let file = |path: &str, code: &str| (path.to_owned(), product(code));
    let clean = [file("flash/mod.rs", "use crate::events::Kind;"), file("events/mod.rs", "")];
    assert!(against(&clean, "", floors).is_empty());
    for code in ["use crate::{events, ftl::Ftl};", "use super::ftl;", "fn f() { super::super::ftl::g(); }"] {
        let upward = [file("flash/mod.rs", ""), file("flash/die.rs", code), file("ftl/mod.rs", ""), clean[1].clone()];
        let found = against(&upward, "", floors);
        let expected = code.contains("super::ftl;");
        assert_eq!(found.is_empty(), expected, "{code}: {found:?}"); // There, `super` is the room itself.
    }
    assert!(against(&[file("flash/mod.rs", "// crate::ftl\n"), file("ftl/mod.rs", "")], "", floors).is_empty());
    let inner = [file("a/low.rs", "use super::high::Thing;"), file("a/high.rs", ""), file("b.rs", "use crate::a;")];
    assert_eq!(against(&inner, "a/", &[&["low"], &["high"]]).len(), 1);
}

/// The methods of a type in a file.
fn parts<'a>(code: &'a str, name: &str) -> Vec<&'a str> {
    let starts = code.match_indices("impl").filter(|(at, _)| {
        let head = code[*at..].split('{').next().unwrap_or_default();
        let is_line = *at == 0 || code[..*at].ends_with('\n');
        let is_it = |word: &str| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('<'));
        is_line && !head.contains(" for ") && head.split_whitespace().any(is_it)
    });
    starts.map(|(at, _)| code[at..].split("\n}\n").next().unwrap_or_default()).collect()
}

/// What is wrong with a type that wires rooms: parts of it outside of its room, too many lines, fields that others
/// reach into.
fn wiring_faults(files: &[(String, String)], wiring: &Wiring) -> Vec<String> {
    let Wiring { name, room, lines_max, is_closed, .. } = wiring;
    let mut faults = Vec::new();
    let mut lines = 0;
    for (path, code) in files {
        let parts = parts(code, name);
        lines += parts.iter().map(|part| part.lines().count()).sum::<usize>();
        if room_of(path) != *room && !parts.is_empty() {
            faults.push(format!("{path} has methods of `{name}`"));
        }
        let starts = [format!("pub struct {name}<"), format!("pub struct {name} {{")];
        let fields = starts.iter().find_map(|start| code.split(start.as_str()).nth(1)?.split("\n}\n").next());
        let fields = fields.into_iter().flat_map(str::lines).skip(1).filter(|_| *is_closed);
        faults.extend(fields.filter(|line| line.contains("pub")).map(|line| format!("{path}:{line}")));
    }
    if lines > *lines_max {
        faults.push(format!("`impl {name}` has {lines} lines"));
    }
    faults
}

#[test]
fn what_wires_rooms_does_nothing_else() {
    for wiring in WIRING {
        let faults = wiring_faults(&files_of(wiring.place), wiring);
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

#[test]
fn what_does_not_belong_to_the_device_is_found() {
    let device = &WIRING[0];
    let file = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    let clean = file("device/mod.rs", "pub struct Device<M> {\n    ftl: Ftl<M>,\n}\n\nimpl<M> Device<M> {\n}\n");
    assert!(wiring_faults(&[clean], device).is_empty());
    let wrong = [
        file("device/mod.rs", "pub struct Device<M> {\n    pub(crate) ftl: Ftl<M>,\n}\n"),
        file("fast/mod.rs", "\nimpl<M: Medium> Device<M> {\n    fn store(&mut self) {}\n}\n"),
        file("device/long.rs", &format!("impl Device<Nand> {{\n{}}}\n", "    fn f() {}\n".repeat(device.lines_max))),
    ];
    assert_eq!(wiring_faults(&wrong, device).len(), 3, "{:#?}", wiring_faults(&wrong, device));
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
    assert_eq!(judges(&files_of("crates/core/src")), expected);
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
        product(&code).split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == *item)
    };
    let gone: Vec<_> = rows.iter().filter(|row| !is_there(row)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md, \"Where is …?\", names what is not there: {gone:#?}");
}

/// Packages whose tests are programs of several files: cargo takes up only what their manifest and these files name.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let files = tidewater_tests::files();
    let mut missing = Vec::new();
    for manifest in files.iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = std::fs::read_to_string(root().join(manifest)).expect("a manifest is text");
        if !text.contains("autotests = false") {
            continue;
        }
        let folder = manifest.with_file_name("tests");
        let paths = text.lines().filter_map(|line| line.strip_prefix("path = \"tests/")?.strip_suffix('"'));
        let programs: Vec<&str> = paths.collect();
        let texts = programs.iter().map(|program| std::fs::read_to_string(root().join(&folder).join(program)));
        let named: String = texts.map(|text| text.expect("a program is text")).collect();
        for file in files.iter().filter_map(|file| file.strip_prefix(&folder).ok()) {
            let name = match file.to_str().expect("UTF-8").split_once('/') {
                None => file.file_stem().expect("a name").to_str().expect("UTF-8"),
                Some((name, "mod.rs")) => name,
                Some(_) => continue,
            };
            let is_program = programs.iter().any(|program| Path::new(program) == file);
            if !is_program && !named.lines().any(|line| line == format!("mod {name};")) {
                missing.push(folder.join(file));
            }
        }
    }
    assert!(missing.is_empty(), "in no program of tests, so never run: {missing:?}");
}
