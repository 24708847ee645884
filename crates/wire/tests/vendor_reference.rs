//! `docs/reference/vendor.md` is what the registry says: `UPDATE_DOCS=1 cargo test -p tidewater-wire vendor` writes it
//! anew.

#[path = "../../../tests/src/markdown.rs"]
mod markdown;

use std::fmt::Write;

use tidewater_wire::vendor::{
    DestagePriority, Direction, LAYOUTS, Layout, REGISTRY, Set, StampVersion, TransportStatus, status,
};

const HEAD: &str = "\
<!-- generated from crates/wire/src/vendor: UPDATE_DOCS=1 cargo test -p tidewater-wire vendor -->
# The fast side and the byte window: vendor specific commands, pages and formats

All that the NVM Express Base Specification (revision 1.4) leaves to the vendor, and that the fast side and the byte
window use. `crates/wire/src/vendor` holds the layouts, `crates/wire/src/log` those of what clients keep; this page is
generated from them. Why they are as they are is in [ADR 7](../adr/0007-the-fast-side.md),
[ADR 12](../adr/0012-the-byte-window.md) and, for the file of a mapped ring, [ADR 13](../adr/0013-mapped-rings.md).

- Integers are little-endian. Bytes that no field names are reserved: written as zero, ignored when read.
- Commands follow the common format for vendor specific commands: double word 10 is the number of double words of data
  (NDT) and has to be exact, double word 11 (NDM) is zero, fused operations and SGLs get Invalid Field in Command.
- A *lane* is one writer's byte stream, a *stream offset* names a byte of it for ever. A *function* has up to 16 lanes,
  one ring of logical pages, one replication group and one epoch.
- An *epoch* is 64 bits: a counter, and in the low 8 bits the node that made it.
- Below a command stand its double words, with their bits where they have several values. A field of a layout stands
  behind its bytes, with its type.
";

fn commands(page: &mut String, set: Set) {
    for entry in REGISTRY.iter().filter(|entry| entry.set == set) {
        let data = match (entry.direction, entry.data) {
            (Direction::None, _) => "none".to_owned(),
            (direction, data) => {
                let way = if direction == Direction::ToDevice { "to the device" } else { "to the host" };
                data.map_or(format!("bytes {way}"), |layout| format!("{} {way}", link(layout)))
            }
        };
        writeln!(page, "- {:02X}h **{}**. {} Data: {data}.", entry.code, entry.name, entry.doc.trim()).unwrap();
        for (place, what) in entry.dwords {
            writeln!(page, "  - {place}: {what}").unwrap();
        }
    }
}

fn link(layout: &Layout) -> String {
    format!("[{}](#{})", layout.name, layout.name.to_lowercase())
}

/// A doc comment without the markup that only rustdoc understands.
fn plain(doc: &str) -> String {
    let words = doc.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

fn layout(page: &mut String, layout: &Layout) {
    writeln!(page, "\n### {}\n\n{} {} bytes.\n", layout.name, plain(layout.doc), layout.bytes).unwrap();
    let mut fields: Vec<_> = layout.fields.iter().collect();
    fields.sort_by_key(|field| field.offset);
    for field in fields {
        let last = field.offset + field.bytes - 1;
        let bytes = if field.bytes == 1 { last.to_string() } else { format!("{}-{last}", field.offset) };
        let kind =
            LAYOUTS.iter().find(|layout| layout.name == field.kind).map_or(field.kind.to_owned(), |one| link(one));
        let kind = if field.times > 1 { format!("{} × {kind}", field.times) } else { kind };
        let codes: Vec<_> = field.codes.iter().map(|(code, name)| format!("{code} {name}")).collect();
        let codes = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
        writeln!(page, "- {bytes} `{}`, {kind}: {}{codes}", field.name, plain(field.doc)).unwrap();
    }
}

fn reference() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Admin commands\n\n");
    commands(&mut page, Set::Admin);
    page.push_str("\n## I/O commands\n\nFor carriers without BARs. The function is the controller's.\n\n");
    commands(&mut page, Set::Io);
    page.push_str("\n## Log pages\n\nThe log specific identifier names the function.\n\n");
    for entry in REGISTRY.iter().filter(|entry| entry.set == Set::LogPage) {
        let data = entry.data.map_or(String::new(), |layout| format!(" Layout: {}.", link(layout)));
        writeln!(page, "- {:02X}h **{}**. {}{data}", entry.code, entry.name, entry.doc.trim()).unwrap();
    }
    page.push_str("\n## Status codes\n\nStatus code type 7h. DNR: \"do not retry\" is set.\n\n");
    for (status, name, doc) in status::NAMED {
        let dnr = if status.dnr() { ", DNR" } else { "" };
        writeln!(page, "- {:02X}h{dnr}: **{name}**. {}", status.sc(), plain(doc)).unwrap();
    }
    page.push_str("\n## Status register\n\nThe three failures of the paper's section 7.1 are bits of their own.\n\n");
    page.push_str("| Bit | |\n|---|---|\n");
    for (bit, name) in TransportStatus::NAMED {
        writeln!(page, "| {} | {name} |", bit.0.trailing_zeros()).unwrap();
    }
    page.push_str("| 16 + lane | the stream of that lane is broken |\n");
    page.push_str(
        "\n## Consistency of the pages in BAR2\n\n\
        Every naturally aligned field of up to 64 bits is consistent by itself, if it is loaded or stored at once. \
        Counters only grow, so a host that polls one needs no more. Who wants several fields of one moment reads \
        `sequence` before and after: they are of one moment if both reads gave the same even value.\n",
    );
    page.push_str("\n## Layouts\n");
    for one in LAYOUTS {
        layout(&mut page, one);
    }
    let stamp = StampVersion { lane: 1, offset: 4032, valid: 4032 };
    write!(
        page,
        "\n### Stamp of a destaged page\n\n\
        The 64-bit `version` in the out-of-band stamp: lane (bits 63:60), stream offset (59:16), valid length (15:0). \
        Lane 1, bytes 4032 to 8063 give `{:016X}h`.\n",
        stamp.pack()
    )
    .unwrap();
    markdown::wrap(&page)
}

#[test]
fn the_reference_of_vendor_specifics_is_what_the_registry_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/vendor.md");
    let want = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, want).unwrap();
        return;
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == want,
        "docs/reference/vendor.md is not what the registry says: UPDATE_DOCS=1 cargo test -p tidewater-wire vendor"
    );
}

#[test]
fn names_of_codes_lead_back_to_them() {
    for priority in DestagePriority::ALL {
        assert_eq!(DestagePriority::from_code(*priority as u8), Some(*priority));
    }
    assert_eq!(DestagePriority::from_code(3), None);
}
