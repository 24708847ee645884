//! `include/tidewater.h` is what the source says: `UPDATE_HEADER=1 cargo test -p tidewater-capi header` writes it. The
//! manual pages name all of it.

use std::path::Path;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("the configuration is valid");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(folder().join("src/lib.rs")).generate();
    let mut text = Vec::new();
    bindings.expect("a header can be made of the source").write(&mut text);
    let text = String::from_utf8(text).expect("it is UTF-8");
    // What Rust calls a caller's duty is said in the manual page.
    let mut header = String::new();
    let mut skipping = false;
    for line in text.lines() {
        skipping = (skipping || line.trim() == "// # Safety") && line.starts_with("//");
        if skipping {
            while header.ends_with("//\n") {
                header.truncate(header.len() - 3);
            }
        } else {
            header.push_str(line);
            header.push('\n');
        }
    }
    header
}

#[test]
fn the_header_is_what_the_source_says() {
    let path = folder().join("include/tidewater.h");
    let generated = generated();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::create_dir_all(folder().join("include")).expect("the folder can be made");
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the header is there");
    assert!(
        committed == generated,
        "tidewater.h is not what src/lib.rs says: UPDATE_HEADER=1 cargo test -p tidewater-capi header"
    );
}

/// The functions that the header declares.
fn functions(header: &str) -> Vec<&str> {
    let names = header.lines().filter(|line| !line.starts_with("//") && line.contains('('));
    let mut names: Vec<&str> = names
        .filter_map(|line| {
            let head = line.split('(').next()?;
            let start = head.find("tidewater_")?;
            let name = head.rsplit([' ', '*']).next()?;
            (start > 0 && name.starts_with("tidewater_")).then_some(name)
        })
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn the_manual_page_names_every_function_constant_and_error() {
    let header = std::fs::read_to_string(folder().join("include/tidewater.h")).expect("the header is there");
    let pages = ["tidewater", "tidewater_files", "tidewater_window"];
    let pages = pages.map(|page| std::fs::read_to_string(folder().join(format!("man/{page}.3"))));
    let page = pages.map(|page| page.expect("the page is there")).concat();
    let functions = functions(&header);
    assert!(functions.len() >= 20, "{functions:?}");
    let sources = ["lib", "files", "window"];
    let sources = sources.map(|source| std::fs::read_to_string(folder().join(format!("src/{source}.rs"))));
    let exported = |source: String| source.matches("#[unsafe(no_mangle)]").count();
    let exported: usize = sources.map(|source| exported(source.expect("the source is there"))).iter().sum();
    assert_eq!(functions.len(), exported, "the header declares what the library exports");
    let constants = header.lines().filter_map(|line| line.strip_prefix("#define TIDEWATER_"));
    let constants: Vec<String> =
        constants.filter_map(|line| Some(format!("TIDEWATER_{}", line.split_once(' ')?.0))).collect();
    assert!(constants.len() >= 10, "{constants:?}");
    let errors = [
        "EAGAIN",
        "ENOSPC",
        "ENXIO",
        "ETIMEDOUT",
        "EPIPE",
        "EHOSTDOWN",
        "ESTALE",
        "EIO",
        "EINVAL",
        "ENOTSUP",
        "EBUSY",
        "EBADF",
        "ENFILE",
    ];
    let names = functions.iter().copied().chain(constants.iter().map(String::as_str)).chain(errors);
    let missing: Vec<&str> = names.filter(|name| !page.contains(name)).collect();
    assert!(missing.is_empty(), "tidewater(3) says nothing of {missing:?}");
}
