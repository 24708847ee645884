//! `docs/reference/nvme.md` lists what the code has: every opcode, log page, feature and named status, no more and no
//! less.

use tidewater_wire::nvme::{Status, admin_opcode, feature, log_page, opcode};

/// The lines of the reference between a heading and the next.
fn section(heading: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/nvme.md");
    let text = std::fs::read_to_string(path).expect("the reference can be read");
    let after = text.lines().skip_while(|line| *line != heading).skip(1);
    after.take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect()
}

/// The cells of the rows of a section's table, without its two header lines.
fn rows(heading: &str, cells: usize) -> Vec<String> {
    let lines = section(heading).into_iter().filter(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.split('|').skip(1).take(cells).map(str::trim).collect::<Vec<_>>().join(" | ")).collect()
}

#[test]
fn codes_are_in_step() {
    for (heading, named) in [
        ("## Opcodes", opcode::NAMED),
        ("## Admin opcodes", admin_opcode::NAMED),
        ("## Log pages", log_page::NAMED),
        ("## Features", feature::NAMED),
    ] {
        let code: Vec<String> = named.iter().map(|(code, name)| format!("{code:02X}h | {name}")).collect();
        assert_eq!(rows(heading, 2), code, "{heading}");
    }
}

#[test]
fn status_codes_are_in_step() {
    let row = |&(status, name): &(Status, &str)| {
        format!("{} | {:02X}h | {} | {name}", status.sct(), status.sc(), if status.dnr() { "yes" } else { "no" })
    };
    let code: Vec<String> = Status::NAMED.iter().map(row).collect();
    assert_eq!(rows("## Status codes", 4), code, "expected rows:\n| {} |", code.join(" |\n| "));
}
