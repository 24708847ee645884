use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;
use tidewater_study::Range;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn replay(line: &str) -> Replay {
    match parse(&format!("tidewater replay {line}")).unwrap().command {
        Command::Replay(replay) => *replay,
        other => panic!("{other:?}"),
    }
}

fn refused(line: &str) -> crate::failure::Failure {
    crate::failure::from_clap(&parse(&format!("tidewater {line}")).unwrap_err())
}

#[test]
fn the_table_of_flags_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_measured_command_of_the_bench_parses() {
    let replay = replay(
        "--profile generic --set ftl.over_provisioning=7% --set nand.channels=4 \
         --job rw=randwrite,bs=4k,iodepth=32,size=16g,number_ios=10000000 --json -",
    );
    assert_eq!(replay.drive.set.len(), 2);
    assert_eq!(replay.drive.set[0], Setting { key: "ftl.over_provisioning".into(), value: "7%".into() });
    assert_eq!(replay.json.as_deref(), Some(std::path::Path::new("-")));
    assert!(tidewater_sim::workload::JobSpec::from_inline(&replay.load.origin.job.unwrap()).is_ok());
}

#[test]
fn the_command_line_of_fio_is_a_job() {
    let fio = replay("--capacity 1GiB --fio -- --name=a --rw=randwrite --bs 4k -size=1m --group_reporting");
    let job = fio.load_spec().job.unwrap();
    assert_eq!(job, "fio --name=a --rw=randwrite --bs 4k -size=1m --group_reporting");
    assert_eq!(tidewater_sim::workload::JobSpec::from_argument(&job).unwrap().threads[0].name, "a");
}

#[test]
fn defaults_are_what_help_says() {
    let replay = replay("--trace sample");
    assert_eq!(replay.drive.profile, std::path::Path::new("generic"));
    assert_eq!((replay.drive.seed, replay.load.warm_up), (1, 0));
    assert_eq!(replay.drive.precondition, Precondition::Fresh);
    let defaults = tidewater_sim::workload::SynthSpec::default();
    let help = Cli::command().find_subcommand_mut("trace").unwrap().find_subcommand_mut("synth").unwrap().render_help();
    let help: String = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for value in [
        defaults.requests as f64,
        defaults.mean_kib,
        defaults.write_percent,
        defaults.sequential_percent,
        defaults.mean_interarrival_ms,
        defaults.footprint_mib,
        defaults.skew,
        defaults.again_percent,
        defaults.onward_percent,
    ] {
        assert!(help.contains(&format!("[default: {value}]")), "{value} in {help}");
    }
}

#[test]
fn help_says_what_each_published_workload_writes() {
    let help =
        Cli::command().find_subcommand_mut("trace").unwrap().find_subcommand_mut("synth").unwrap().render_long_help();
    let help: String = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for name in tidewater_sim::workload::SynthSpec::CBM {
        let share = tidewater_sim::workload::SynthSpec::cbm(name).unwrap().write_percent;
        assert!(help.contains(&format!("{name} {share} %")), "{name}: {help}");
    }
}

#[test]
fn values_are_read() {
    let replay = replay("--trace t --slice 1_000..2_000 --precondition filled:80% --speedup 2.5 --format MQSIM64");
    assert_eq!(replay.load.reading.slice, Some(Range { start: 1000, end: 2000 }));
    assert_eq!(replay.drive.precondition, Precondition::Filled(0.8));
    assert_eq!(replay.load.speedup, Some(2.5));
    assert_eq!(replay.load.reading.format, Some(Format::Mqsim64));
    assert_eq!("..5".parse(), Ok(Range { start: 0, end: 5 }));
    assert_eq!("5..".parse(), Ok(Range { start: 5, end: u64::MAX }));
    assert_eq!(Range { start: 5, end: u64::MAX }.to_string(), "5..");
    for wrong in ["", "5", "5..5", "6..5", "a..b", "-1..5"] {
        assert!(wrong.parse::<Range>().is_err(), "{wrong}");
    }
    assert_eq!("a.b=1, 2".parse(), Ok(Variation { key: "a.b".into(), values: vec!["1".into(), "2".into()] }));
    assert_eq!(
        "seed=2..4".parse(),
        Ok(Variation { key: "seed".into(), values: ["2", "3", "4"].map(String::from).into() })
    );
    for (range, values) in [
        ("nand.channels=1..4", "1,2,3,4"),
        ("nand.channels=1..64*2", "1,2,4,8,16,32,64"),
        ("nand.ways=3..20*3,1", "3,9,1"),
        ("buffer.write_size=1MiB..8MiB*2", "1MiB,2MiB,4MiB,8MiB"),
        ("profile=../a.toml,b..c", "../a.toml,b..c"),
        ("power-cut=1s..3s", "1s,2s,3s"),
        ("ftl.over_provisioning=7%..28%+7%", "7%,14%,21%,28%"),
        ("nand.channels=1..8+3", "1,4,7"),
    ] {
        let read: Variation = range.parse().unwrap();
        assert_eq!(read.values.join(","), values, "{range}");
    }
    for wrong in [
        "nand.ways=0..8*2",
        "nand.ways=1..8*1",
        "nand.ways=4..2",
        "nand.ways=1..999999",
        "nand.ways=1..9+0",
        "a.b=1MiB..9MiB+2",
        "queue-depth=1..8*x",
    ] {
        assert!(wrong.parse::<Variation>().is_err(), "{wrong}");
    }
    for wrong in ["a.b", "=1", "a=", "a=1,,2", "a=1,1", "seed=3..2", "seed=a..b", "seed=0..9999999", "seed=1..3,2"] {
        assert!(wrong.parse::<Variation>().is_err(), "{wrong}");
    }
    assert_eq!("k=a=b".parse(), Ok(Setting { key: "k".into(), value: "a=b".into() }));
}

#[test]
fn a_wrong_command_line_is_refused_in_a_line_with_the_way_out() {
    for (line, said, way_out) in [
        ("replay", "--trace", "--help"),
        ("replay --trace a --job b", "cannot be used with", "--help"),
        ("replay --trace a --queue-depth 0", "65535", "--help"),
        ("replay --trace a --queue-depth 1 --speedup 2", "--speedup", "--help"),
        ("replay --trace a --speedup nan", "above 0", "--help"),
        ("replay --trace a --set nand.channels", "KEY=VALUE", "--help"),
        ("replay --trace a --format mqsin", "mqsin", "mqsim"),
        ("replay --tarce a", "--tarce", "--trace"),
        ("repaly", "repaly", "replay"),
        ("replay --job a --skip-bad", "--skip-bad", "--help"),
        ("replay --fio", "ARGS", "--help"),
        ("replay --trace a -- --name=a", "cannot be used with", "--help"),
        ("replay -- --name=a", "--fio", "--help"),
        ("replay --job a --fio -- --name=a", "cannot be used with", "--help"),
        ("replay --skip-bad --fio -- --name=a", "--skip-bad", "--help"),
        ("compare --trace a", "--vary", "--help"),
        ("trace convert a", "OUT", "--help"),
        ("completions tcsh", "tcsh", "zsh"),
    ] {
        let failure = refused(line);
        assert!(failure.message.contains(said), "{line}: {failure:?}");
        assert!(failure.help.as_ref().is_some_and(|help| help.contains(way_out)), "{line}: {failure:?}");
        assert!(!failure.message.contains('\n') && failure.status == crate::failure::Status::Usage);
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    for line in ["tidewater --help", "tidewater replay --help", "tidewater trace convert -h", "tidewater --version"] {
        let error = parse(line).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion));
    }
}

/// Names that were given up for one name for one thing: they work until 1.0, and help does not show them.
#[test]
fn old_names_still_work_and_are_not_shown() {
    for (old, new) in [
        ("serve --image d --size 1GiB --vfio-user s", "serve --image d --capacity 1GiB --vfio-user s"),
        ("replay --trace sample --live", "replay --trace sample --page"),
        ("replay --trace sample --live=127.0.0.1:8080", "replay --trace sample --page=127.0.0.1:8080"),
        ("sweep plan.toml --out study --live", "sweep plan.toml --out study --page"),
        ("replay --trace sample --device 1", "replay --trace sample --volume 1"),
        ("replay --trace sample --json -", "replay --trace sample --json"),
        ("compare --trace sample --vary seed=1,2 --json -", "compare --trace sample --vary seed=1,2 --json"),
        ("trace info sample --json -", "trace info sample --json"),
        ("experiment run x-ssd/fig9 --json -", "experiment run x-ssd/fig9 --json"),
        ("log --json -", "log --json"),
        ("probe generic --json -", "probe generic --json"),
        ("probe generic --plan", "probe generic --dry-run"),
        ("status --control a --json", "status --device a --json"),
        ("fault --control a clear", "fault clear --device a"),
        ("fault status --lba 1 --control a", "fault error --lba 1 --device a"),
        (
            "group form --members 0,1 --mode eager --control a",
            "cluster group form --members 0,1 --mode eager --device a",
        ),
        ("group status --log-end", "cluster group status --log-end"),
        ("keeper run --control a --ttl 20s", "cluster keeper run --device a --ttl 20s"),
        ("keeper --cluster shop status --json", "cluster keeper status --json --cluster shop"),
        ("cluster init certs --nodes 3", "cluster identity init certs --nodes 3"),
        ("cluster add-node certs --node 3 --renew", "cluster identity add-node certs --node 3 --renew"),
        ("fast append tcp:127.0.0.1:4420 f --json", "nvme fast append tcp:127.0.0.1:4420 f --json"),
        ("window sync pci:01:00.0 --entry 1", "nvme window sync pci:01:00.0 --entry 1"),
    ] {
        let read = |line: &str| format!("{:?}", parse(&format!("tidewater {line}")).unwrap().command);
        // An old command is one more variant, which leads to the same.
        let (was, is) = (read(old), read(new));
        let inner = |text: &str| text.trim_end_matches([')', ' ', '}']).to_owned();
        let same = was == is || inner(&is).ends_with(&inner(was.split_once('(').unwrap().1));
        assert!(same, "{old}: {was}\n{new}: {is}");
    }
    fn shown_aliases(command: &clap::Command) -> Vec<String> {
        let of_options =
            command.get_arguments().flat_map(|argument| argument.get_visible_aliases().unwrap_or_default());
        let all = of_options.chain(command.get_visible_aliases()).map(str::to_owned);
        all.chain(command.get_subcommands().flat_map(shown_aliases)).collect()
    }
    let command = Cli::command();
    assert_eq!(shown_aliases(&command), ["color"]);
    let hidden = command.get_subcommands().filter(|below| below.is_hide_set()).map(clap::Command::get_name);
    assert_eq!(hidden.collect::<Vec<_>>(), ["group", "keeper", "fast", "window"]);
}
