#[path = "../../../../tests/src/markdown.rs"]
mod markdown;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// `docs/reference/profile.md`, from the checkout.
fn reference_path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/profile.md")
}

fn error(text: &str) -> String {
    Profile::parse(text, "drive.toml").unwrap_err().to_string()
}

/// The first conflict after some settings on the default drive.
fn refused(settings: &[(&str, &str)]) -> ProfileError {
    let mut profile = Profile::generic();
    for (key, value) in settings {
        profile.set(key, value).unwrap();
    }
    profile.check().unwrap_err()
}

/// Values of a kind that differ from each other, its bounds among them.
fn samples(kind: &Kind) -> Vec<String> {
    use tidewater_base::units::{format_bytes, format_duration, format_rate};
    match kind {
        Kind::Switch => vec!["true".into(), "false".into()],
        Kind::Integer { min, max } => vec![min.to_string(), max.to_string()],
        Kind::Bytes { min, max } => vec![format_bytes((*min).max(1)), format_bytes(*max)],
        Kind::Rate { min, max } => vec![format_rate(*min), format_rate(*max)],
        Kind::Time { min, max } => vec![format_duration(*min), format_duration(*max)],
        Kind::Share { min, max } | Kind::Number { min, max } => vec![min.to_string(), max.to_string()],
        Kind::Choice(choices) => choices.iter().map(|(word, _)| word.to_string()).collect(),
        Kind::Policy(names) => names().into_iter().map(String::from).collect(),
        Kind::Name => vec!["dram".into(), "x_1-Y".into()],
        Kind::Text => vec!["a \"quoted\" \\ text".into(), "é".into()],
        Kind::List { of, min, max } => {
            let items = samples(of);
            let cycle = |count: usize| items.iter().cycle().take(count).cloned().collect::<Vec<_>>().join("/");
            vec![cycle(*min), cycle(*max), items[0].clone()]
        }
    }
}

#[test]
fn the_default_drive_is_its_file_and_checks_out() {
    assert_eq!(builtin("generic").unwrap(), Profile::generic());
    assert_eq!(names().next(), Some("generic"));
    let downgrades = Profile::generic().check().unwrap();
    assert_eq!(downgrades.len(), 1, "only the volatile write cache: {downgrades:?}");
    assert_eq!(downgrades[0].key, "buffer.write_memory");
}

#[test]
fn every_built_in_profile_parses_checks_and_has_its_name() {
    for name in names() {
        let profile = builtin(name).unwrap();
        assert_eq!(profile.name, name);
        assert!(!profile.description.is_empty() && !profile.description.contains('|'), "{name}");
        // What a key says must not be said a second time by words that stay when the key is changed.
        for word in ["channels", "dies", "PCIe"] {
            assert!(!profile.description.contains(word), "{name}: {}", profile.description);
        }
        profile.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(builtin("nonesuch").is_none() && builtin_text("tiny").is_some());
    assert!(builtin("tlc-enterprise").unwrap().check().unwrap().is_empty());
}

#[test]
fn the_paper_s_drive_has_the_paper_s_numbers() {
    let drive = builtin("slc-cbm").unwrap();
    let page = u64::from(drive.nand.page_size + drive.nand.oob_size);
    assert_eq!(page * 1_000_000 / drive.nand.bus_rate, 100, "serial access to a page takes 100 us");
    let die = u64::from(drive.nand.planes * drive.nand.blocks_per_plane * drive.nand.pages_per_block) << 12;
    assert_eq!((die, die * u64::from(drive.nand.dies())), (2 << 30, 320 << 30));
}

#[test]
fn the_board_of_the_x_ssd_paper_has_its_numbers() {
    let board = builtin("villars").unwrap();
    let memory = |name: &str| board.memories.iter().find(|memory| memory.name == name).unwrap();
    assert_eq!((memory("sram").size, memory("sram").bandwidth), (128 << 10, 4_000_000_000));
    assert_eq!(memory("fast-dram").size + memory("dram").size, 1 << 30);
    assert_eq!(crate::cost::lane_bytes_per_second(board.link.generation) * u64::from(board.link.lanes), 2_000_000_000);
    // With two bits in a cell, which doubles the pages of a block.
    let blocks = u64::from(board.nand.dies()) * 8192;
    assert_eq!(blocks * 2 * u64::from(board.nand.pages_per_block) * u64::from(board.nand.page_size), 2 << 40);
}

#[test]
fn keys_are_unique_and_say_what_they_are() {
    let keys: BTreeSet<String> = Profile::keys().map(KeyInfo::key).collect();
    assert_eq!(keys.len(), Profile::keys().count());
    for info in Profile::keys() {
        assert!(info.doc.ends_with('.') && info.why.ends_with('.'), "{}", info.key());
        assert!(!info.kind.expected().is_empty());
    }
}

#[test]
fn every_key_can_be_set_to_its_bounds_and_round_trips() {
    for info in Profile::keys() {
        for text in samples(&info.kind) {
            let key = info.key().replace("NAME", "dram");
            let mut profile = Profile::generic();
            profile.set(&key, &text).unwrap_or_else(|error| panic!("{error}"));
            let value = profile.get(&key).unwrap();
            let mut again = Profile::generic();
            again.set(&key, &value).unwrap();
            assert_eq!(again, profile, "{key} = {value}");
            let shown = profile.show();
            assert_eq!(Profile::parse(&shown, "shown").unwrap(), profile, "{shown}");
            assert_eq!(Profile::from_settings(&profile.settings()).unwrap(), profile);
        }
    }
}

#[test]
fn built_in_profiles_round_trip() {
    for name in names() {
        let profile = builtin(name).unwrap();
        assert_eq!(Profile::parse(&profile.show(), name).unwrap(), profile);
        let stored = profile.stored();
        assert_eq!(Profile::parse(&stored, name).unwrap(), profile);
        // Those that have one of these give it to their images, which the last release does not open then.
        let has_newer = ["dc-ssd", "villars"].contains(&name);
        assert_eq!(stored.contains("\nread_ahead") || stored.contains("\nefficiency"), has_newer, "{stored}");
        assert_eq!(Profile::from_settings(&profile.settings()).unwrap(), profile);
    }
}

#[test]
fn a_file_takes_what_it_does_not_say_from_its_base() {
    let profile = Profile::parse("base = \"tiny\"\nname = \"mine\"\n[nand]\nchannels = 4\n", "drive.toml").unwrap();
    let mut expected = builtin("tiny").unwrap();
    expected.name = "mine".into();
    expected.nand.channels = 4;
    assert_eq!(profile, expected);
    assert_eq!(Profile::parse("", "empty.toml").unwrap(), Profile::generic());
    assert_eq!(
        error("base = \"tny\""),
        "drive.toml:1:8: base: expected the name of a built-in profile, found \"tny\"; did you mean `tiny`?"
    );
    assert!(error("base = 3").starts_with("drive.toml:1:8: base: expected the name"));
}

#[test]
fn the_outline_follows_the_values() {
    let mut profile = Profile::generic();
    assert_eq!(profile.outline(), "page-mapped TLC drive with DRAM, 8 channels x 8 dies, PCIe Gen4 x4");
    for (key, value) in [("nand.channels", "1"), ("nand.dies_per_way", "2"), ("link.generation", "3")] {
        profile.set(key, value).unwrap();
    }
    profile.description = String::new();
    assert_eq!(profile.outline(), "1 channel x 16 dies, PCIe Gen3 x4");
}

#[test]
fn a_file_tells_what_it_builds_on() {
    let name = |text: &str| base(text).map(|profile| profile.name);
    assert_eq!(name("name = \"mine\"").as_deref(), Some("generic"));
    assert_eq!(name("base = \"tiny\"\nname = \"mine\"").as_deref(), Some("tiny"));
    assert_eq!((name("base = \"absent\""), name("[")), (None, None));
}

#[test]
fn mistakes_are_told_with_their_place_and_a_suggestion() {
    assert_eq!(
        error("[nand]\nchanels = 4"),
        "drive.toml:2:1: [nand] chanels: there is no such key; did you mean `channels`?"
    );
    assert_eq!(
        error("[nand]\nqueues = 4"),
        "drive.toml:2:1: [nand] queues: there is no such key; did you mean `host.queues`?"
    );
    assert_eq!(
        error("[nnad]\nchannels = 4"),
        "drive.toml:1:2: \"nnad\": there is no such section; did you mean `nand`?"
    );
    assert_eq!(
        error("channels = 4"),
        "drive.toml:1:1: \"channels\": there is no such key; did you mean `nand.channels`?"
    );
    assert_eq!(
        error("[nand]\n\nchannels = 65"),
        "drive.toml:3:12: [nand] channels: expected an integer from 1 to 64, found \"65\""
    );
    assert_eq!(
        error("[nand]\nerase_time = 3"),
        "drive.toml:2:14: [nand] erase_time: expected a time from 1ns to 1s, found a number without a unit (known: ps, \
         ns, us, ms, s), in \"3\""
    );
    assert_eq!(
        error("[ftl]\ngc_victim = \"greedi\""),
        "drive.toml:2:13: [ftl] gc_victim: expected one of `greedy`, `cost-benefit`, found \"greedi\"; did you mean \
         `greedy`?"
    );
    let policy = error("[buffer]\nwrite_policy = true");
    assert!(policy.starts_with("drive.toml:2:16: [buffer] write_policy: expected one of `none`, `lru`, "), "{policy}");
    assert!(policy.ends_with(", found boolean without quotes"), "{policy}");
    assert!(error("[nand]\nchannels = ").starts_with("drive.toml:2:12: "));
    assert!(error("nand = 3").starts_with("drive.toml:1:8: nand: expected a table, `[nand]`, found integer"));
    assert!(error("[nand]\nread_time = [\"1us\", \"2us\"]").ends_with("found 2 values"));
    assert!(error("[nand.deep]\nchannels = 3").contains("[nand] deep: there is no such key"));
    assert!(error("[nand]\nchannels = -3").ends_with("found -3"));
    assert!(error("[nand]\nchannels = 3\nchannels = 4").starts_with("drive.toml:3:1: "));
}

#[test]
fn settings_on_the_command_line_are_told_the_same() {
    let mut profile = Profile::generic();
    profile.set("nand.channels", "4").unwrap();
    profile.set("nand.read_time", "25us").unwrap();
    profile.set("nand.program_time", "200us,300us,400us").unwrap();
    assert_eq!(profile.nand.channels, 4);
    assert_eq!(profile.get("nand.read_time").unwrap(), "25us/25us/25us");
    assert_eq!(profile.nand.program_time[1], Duration::from_us(300));
    let mut said = |key: &str, value: &str| profile.set(key, value).unwrap_err().to_string();
    assert_eq!(said("nand.chanels", "4"), "[nand] chanels: there is no such key; did you mean `nand.channels`?");
    assert_eq!(said("channels", "4"), "channels: there is no such key; did you mean `nand.channels`?");
    assert_eq!(said("nan.channels", "4"), "[nan] channels: there is no such key; did you mean `nand.channels`?");
    assert_eq!(
        said("size", "1g"),
        "size: there is no such key; did you mean `hmb.size`, `fast.size`, `window.size`, `slc.size`, \
         `memory.NAME.size`?"
    );
    assert_eq!(said("nand.channels", "many"), "[nand] channels: expected an integer from 1 to 64, found \"many\"");
    assert_eq!(
        said("memory.drm.size", "1g"),
        "[memory.drm] size: there is no memory of that name (a new one begins with its `kind`); did you mean `dram`?"
    );
    assert!(said("memory.dram.sice", "1g").ends_with("did you mean `memory.dram.size`?"));
    assert!(said("memory.\u{7}.kind", "nvm").contains("no memory of that name"));
    assert_eq!(suggestion("capacity").as_deref(), Some("drive.capacity"));
    assert_eq!((suggestion("nand.channels"), suggestion("xyzzy")), (None, None));
    for key in ["", ".", "..", "a.b.c.d", "memory", "memory.", "memory..size"] {
        said(key, "1");
    }
}

#[test]
fn memories_come_and_go() {
    let text = "[memory.nvm]\nsize = \"32MiB\"\nkind = \"nvm\"\n[memory.sram]\nsize = 0\n[memory.dram]\nsize = \"1g\"";
    let profile = Profile::parse(text, "drive.toml").unwrap();
    let names: Vec<_> = profile.memories.iter().map(|memory| memory.name.as_str()).collect();
    assert_eq!(names, ["dram", "nvm"]);
    assert_eq!(profile.memory("nvm").unwrap().write_latency, Duration::from_ns(40));
    assert!(profile.show().contains("[memory.sram]\n# This drive has none.\nsize = 0"));
    assert!(error("[memory.nvm]\nsize = \"1k\"").contains("[memory] nvm: there is no memory of that name"));
    assert!(error("[memory.nvm]\nkind = \"nvm\"").contains("a new memory needs a `size`"));
    assert!(error("[memory]\nnvm = 3").contains("expected a table"));
    assert!(error("[memory.\"a b\"]\nkind = \"nvm\"").contains("expected a name of letters"));
    let mut profile = Profile::generic();
    profile.set("memory.dram.kind", "nvm").unwrap();
    assert_eq!(profile.memory("dram").unwrap().survives, Survives::ByItself);
    assert_eq!(profile.memory("dram").unwrap().size, 1 << 30);
    profile.set("memory.sram.size", "0").unwrap();
    assert!(profile.memory("sram").is_none() && profile.set("memory.sram.size", "1k").is_err());
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    let said = |settings: &[(&str, &str)], text: &str| {
        let error = refused(settings).to_string();
        assert!(error.contains(text), "{error}");
    };
    said(&[("ftl.unit_size", "12KiB")], "[ftl] unit_size: expected a power of two, found 12KiB");
    said(&[("ftl.unit_size", "32KiB")], "a unit of 32KiB does not fit in a page of 16KiB");
    said(&[("ftl.unit_size", "2KiB"), ("host.block_size", "4096")], "a logical block of 4KiB does not fit");
    said(&[("host.block_size", "1024")], "expected 512 or 4096, found 1024");
    said(&[("host.transfer_max", "192KiB")], "MDTS");
    said(&[("host.transfer_max", "4KiB"), ("ftl.unit_size", "16KiB")], "4KiB is less than a unit of 16KiB");
    said(&[("ftl.gc_start", "2")], "[ftl] gc_start: collection must start before only the reserve is left");
    said(&[("host.queues", "1"), ("host.queue_priorities", "high,low")], "2 priorities for 1 queues");
    said(&[("link.lanes", "3")], "expected 1, 2, 4, 8 or 16, found 3");
    said(&[("link.payload_max", "300")], "a power of two from 128 to 4096");
    said(&[("nand.ecc_codeword", "3000")], "does not divide a page");
    said(&[("nand.rber_fresh", "0.01")], "fewer errors");
    said(&[("nand.rber_fresh", "0")], "or 0 for both: no errors");
    said(&[("nand.rber_worn", "0")], "fewer errors");
    let mut without_errors = Profile::generic();
    ["nand.rber_fresh", "nand.rber_worn"].iter().for_each(|key| without_errors.set(key, "0").unwrap());
    without_errors.check().expect("0 for both is no errors");
    said(&[("nand.blocks_per_plane", "7")], "too few blocks: 7 in a plane");
    said(&[("nand.blocks_per_plane", "16777216")], "an impossible geometry");
    said(&[("nand.blocks_per_plane", "100"), ("drive.capacity", "1TiB")], "need more flash than");
    said(&[("drive.capacity", "1000")], "are not a multiple of the unit");
    said(&[("memory.dram.survives", "by-itself")], "expected `nothing` or `by-capacitors` for kind `dram`");
    said(&[("memory.x.kind", "sram")], "a memory without bytes");
    said(&[("buffer.write_size", "2GiB")], "[memory.dram] size: [memory.dram] has 1GiB");
    said(&[("buffer.write_memory", "nvm")], "there is no [memory.nvm]");
    for key in ["buffer.read_memory", "fast.memory", "fast.queue_memory", "window.memory"] {
        said(&[(key, "nan")], "there is no [memory.nan] (there are: dram, sram)");
    }
    said(&[("buffer.write_policy", "none"), ("buffer.write_memory", "nvm")], "there is no [memory.nvm]");
}

#[test]
fn a_size_without_its_unit_is_refused_with_a_word_on_units() {
    let said = |settings: &[(&str, &str)], text: &str| {
        let error = refused(settings).to_string();
        assert!(error.contains(text) && error.contains("MiB"), "{error}");
    };
    said(&[("buffer.write_size", "16")], "[buffer] write_size: 16B are less than the 4KiB that the write buffer needs");
    said(&[("buffer.read_policy", "lru"), ("buffer.read_size", "16")], "[buffer] read_size: 16B are less than");
    said(&[("ftl.map_memory", "sram"), ("ftl.map_size", "16")], "[ftl] map_size: 16B are less than");
    let host = [("memory.h.kind", "host"), ("memory.h.size", "1MiB"), ("ftl.map_memory", "h"), ("ftl.map_floor", "64")];
    said(&host, "[ftl] map_floor: expected 0 or at least a mapping page (4KiB), found 64B (a number without a unit");
    said(&[("fast.size", "16")], "[fast] size: a ring of 16B");
    said(&[("window.size", "16")], "[window] size: expected a multiple of the unit of 4KiB, found 16B");
    said(&[("serve.cmb_size", "16")], "[serve] cmb_size: expected a multiple of 4KiB, found 16B");
    said(&[("drive.capacity", "64")], "[drive] capacity: 64B (a number without a unit");
    said(
        &[("buffer.write_policy", "cbm"), ("buffer.cbm_sequential", "512"), ("ftl.unit_size", "4KiB")],
        "[buffer] cbm_sequential: 512B",
    );
    let error = Profile::generic().set("fast.queue_size", "32").unwrap_err().to_string();
    assert!(error.ends_with("found \"32\", which counts bytes where it has no unit"), "{error}");
}

#[test]
fn values_that_no_key_would_take_are_refused() {
    let mut profile = Profile::generic();
    profile.nand.channels = 0;
    assert!(profile.check().unwrap_err().to_string().contains("[nand] channels: expected an integer from 1 to 64"));
    let mut profile = Profile::generic();
    profile.ftl.over_provisioning = f64::NAN;
    assert!(profile.check().is_err());
    let mut profile = Profile::generic();
    profile.memories.push(profile.memories[0].clone());
    assert!(profile.check().unwrap_err().to_string().contains("two memories have this name"));
}

#[test]
fn a_setting_without_effect_is_told() {
    let mut profile = Profile::generic();
    profile.set("host.queue_priorities", "urgent").unwrap();
    let downgrades = profile.check().unwrap();
    assert!(downgrades[1].to_string().contains("no effect under round-robin"), "{downgrades:?}");
    profile.set("host.arbitration", "weighted").unwrap();
    assert_eq!(profile.check().unwrap().len(), 1);

    profile = Profile::generic();
    profile.set("flash.read_priority", "false").unwrap();
    let notes = profile.check().unwrap();
    assert!(notes.iter().any(|one| one.key == "flash.suspend"), "nothing is suspended any more: {notes:?}");
    profile.set("flash.suspend", "false").unwrap();
    assert!(profile.check().unwrap().iter().all(|one| one.key != "flash.suspend"));
}

/// Probability that a Poisson variable of mean `mean` passes `bound`.
fn poisson_tail(mean: f64, bound: u32) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for k in 1..=bound {
        term *= mean / f64::from(k);
        sum += term;
    }
    (1.0 - sum).max(0.0)
}

#[test]
fn error_rates_and_ecc_are_in_proportion() {
    let nand = Profile::generic().nand;
    let words = f64::from(nand.page_size / nand.ecc_codeword);
    let retry = |rber: f64| words * poisson_tail(rber * f64::from(nand.ecc_codeword) * 8.0, nand.ecc_bits);
    assert!(retry(nand.rber_fresh) < 1e-12, "a fresh block never retries");
    let worn = retry(nand.rber_worn);
    assert!((0.005..0.03).contains(&worn), "a worn block retries now and then: {worn}");
    assert!(retry(nand.rber_worn * nand.retry_gain) < 1e-9, "one retry suffices at the end of the rated life");
    let parity = nand.page_size / nand.ecc_codeword * (nand.ecc_bits * 15).div_ceil(8);
    assert!(parity < nand.oob_size, "{parity} bytes of parity leave room for stamps");
    let retired = f64::from(nand.endurance)
        * (f64::from(nand.pages_per_block) * nand.program_fail_rate + nand.erase_fail_rate)
        + nand.factory_bad_rate;
    assert!(retired < Profile::generic().ftl.spare_blocks, "spares last for the rated life: {retired}");
}

#[test]
fn the_reference_page_is_up_to_date() {
    let (path, page) = (reference_path(), markdown::wrap(&reference()));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/profile.md is not what the table of keys says: run UPDATE_DOCS=1 cargo test -p tidewater-core \
         profile"
    );
}

#[test]
fn deep_nesting_is_an_error_not_a_full_stack() {
    for open in ["[", "{a=", "a."] {
        assert!(Profile::parse(&format!("x = {}", open.repeat(100_000)), "deep").is_err());
        assert!(Profile::parse(&open.repeat(100_000), "deep").is_err());
    }
    assert!(Profile::parse(&format!("{}x = 1", "a.".repeat(10_000)), "deep").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(profile) = Profile::parse(&text, "random") {
            let _ = profile.check();
        }
    }

    #[test]
    fn mutated_profiles_never_panic(
        which in 0usize..5,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<char>()), 1..12),
    ) {
        let text = match which {
            4 => Profile::generic().show(),
            which => builtin_text(names().nth(which + 1).unwrap()).unwrap().to_owned(),
        };
        let mut chars: Vec<char> = text.chars().collect();
        for (at, kind, new) in edits {
            let at = at.index(chars.len());
            match kind {
                0 => chars[at] = new,
                1 => { chars.remove(at); }
                2 => chars.insert(at, new),
                _ => chars[at] = char::from(b'0' + (u32::from(new) % 10) as u8),
            }
        }
        match Profile::parse(&chars.iter().collect::<String>(), "mutated") {
            Ok(profile) => { let _ = profile.check().map_err(|error| error.to_string()); }
            Err(error) => prop_assert!(error.at.is_some() && !error.to_string().is_empty()),
        }
    }

    #[test]
    fn random_settings_never_panic(
        key in any::<prop::sample::Index>(), name in "\\PC{0,12}", value in "\\PC{0,24}",
        digits in "[0-9.]{1,24}[a-zA-Z%/]{0,4}",
    ) {
        let mut profile = Profile::generic();
        let keys: Vec<String> = Profile::keys().map(|info| info.key().replace("NAME", "dram")).collect();
        for value in [&value, &digits] {
            let _ = profile.set(&keys[key.index(keys.len())], value);
        }
        let _ = (profile.set(&name, &value), profile.get(&name), profile.check());
        let from = Profile::from_settings(&profile.settings());
        prop_assert_eq!(from.ok(), Some(profile));
    }
}
