//! The one table of commands and flags: help, man pages, completions and `docs/reference/cli.md` follow from it.

pub mod cluster;
pub mod crash;
mod examples;
pub mod faults;
pub mod files;
mod groups;
pub mod hardware;
pub mod keeper;
mod load;
pub mod log_device;
mod pages;
pub mod peers;
mod profile;
pub mod report;
pub mod served;
pub mod sweep;
mod values;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;
use tidewater_base::Duration;
use tidewater_core::ftl::Precondition;
use tidewater_sim::trace::Format;
use tidewater_sim::trace::convert::OutputFormat;
use tidewater_sim::workload::JobSpec;

pub use groups::command;
use load::OF_TRACES;
pub use load::{Drive, Load, Reading, Watch};
pub use pages::{Completions, Man};
pub use profile::ProfileCommand;
pub use report::{Report, TableName};
use tidewater_study::{LoadSpec, Setting, Variation};
use values::{formats, output_formats};

/// Command line of `tidewater`.
#[derive(Debug, Parser)]
#[command(
    name = "tidewater",
    version = env!("TIDEWATER_VERSION"),
    about = "A software SSD: simulate how a drive serves a workload, or serve the drive itself as an NVMe device",
    after_help = examples::TIDEWATER,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace or a job on a drive
    ///
    /// Replays a recorded trace or a fio-like job on a simulated drive and prints a summary. Options write a record
    /// (JSON), a report (one HTML page) and the latency of every request (CSV).
    #[command(after_help = examples::REPLAY)]
    Replay(Box<Replay>),
    /// Run the same load on several drives and compare them
    ///
    /// Runs the same trace or job once for each value of a setting and prints one table. Several --vary run every
    /// combination, up to 64 runs. The first run is the baseline of the comparison.
    #[command(after_help = examples::COMPARE)]
    Compare(Box<Compare>),
    /// Make any number of runs, kept in a folder, and one table of them
    ///
    /// Runs every combination of profiles, settings, loads and seeds that a plan asks for, on every processor. A record
    /// is written as its run ends, so a second start does what is missing, and several machines can share the folder.
    /// DIR/table.parquet has a row for each run.
    #[command(after_help = examples::SWEEP)]
    Sweep(Box<sweep::Sweep>),
    /// List, show, compare and check drive profiles
    #[command(subcommand, after_help = examples::PROFILE)]
    Profile(ProfileCommand),
    /// Inspect, convert and generate traces
    #[command(subcommand, after_help = examples::TRACE)]
    Trace(TraceCommand),
    /// Compare the commit latency of a database log on each side of a drive
    ///
    /// Simulates workers whose transactions append to one log, with group commit, on a drive with a fast side. The log
    /// goes to the fast side, to the conventional side, to the host's own persistent memory, or nowhere: one line of a
    /// table for each.
    #[command(after_help = examples::LOG)]
    Log(Log),
    /// Repeat the experiments of published papers and check the results against them
    #[command(subcommand, after_help = examples::EXPERIMENT)]
    Experiment(ExperimentCommand),
    /// Infer a drive's caches and layout from timing alone
    ///
    /// Finds the read cache, the write buffer, the mapping cache and whose memory they are. The target is a simulated
    /// drive, a block device or a file. Stages that only read run on any target. Stages that write or deallocate run on
    /// a simulated drive; on a real one they need --destroy, and all data on it is lost.
    #[command(after_help = examples::PROBE)]
    Probe(Probe),
    /// Serve the drive as a real NVMe device to virtual machines and remote hosts
    ///
    /// Runs the same firmware as in simulation, with real data in an image file. A virtual machine attaches the drive
    /// as a PCIe device over vfio-user, a remote host over NVMe/TCP.
    #[command(after_help = examples::SERVE)]
    Serve(Box<served::Serve>),
    /// Serve a log device for databases, with everything that it needs in one folder
    ///
    /// Creates a small drive with a log side (profile `log`) in DIR, or opens the one that is there, and serves it to
    /// programs of this machine: `tidewater run --device DIR` puts a database's log files on it.
    #[command(after_help = examples::LOG_DEVICE)]
    LogDevice(log_device::LogDevice),
    /// Show the state of a served device
    #[command(after_help = examples::STATUS)]
    Status(served::StatusOf),
    /// Inject faults into a served device or a mount: errors, delays, stalls, power cuts
    #[command(after_help = examples::FAULT)]
    Fault(faults::FaultArgs),
    /// Mount a file system that forgets on a power cut what was not synced
    ///
    /// `tidewater fault power-cut --device DIR` or a kill cuts the power; Ctrl-C and SIGTERM unmount, and lose nothing.
    #[command(after_help = examples::MOUNT)]
    Mount(crash::Mount),
    /// Prove that a program survives power cuts, by the states that they can leave
    ///
    /// Runs COMMAND once in a mount that records all operations. Then it makes the files that power cuts at many points
    /// would have left, runs --check on each, and shrinks a failure to the smallest cut. The program acknowledges what
    /// must survive by a line with an id on descriptor 3, or in the file that TIDEWATER_ACK names.
    #[command(after_help = examples::CRASH_TEST)]
    CrashTest(Box<crash::CrashTest>),
    /// Replicate logs between devices: groups, automatic failover, certificates
    #[command(subcommand, after_help = examples::CLUSTER)]
    Cluster(cluster::ClusterCommand),
    /// Old name of `cluster group`.
    #[command(hide = true)]
    Group(peers::GroupArgs),
    /// Old name of `cluster keeper`.
    #[command(hide = true)]
    Keeper(keeper::KeeperArgs),
    /// Read an NVMe device: identify data, log pages, its fast side and byte window
    #[command(after_help = examples::NVME)]
    Nvme(served::Nvme),
    /// Old name of `nvme fast`.
    #[command(subcommand, hide = true)]
    Fast(hardware::FastCommand),
    /// Old name of `nvme window`.
    #[command(subcommand, hide = true)]
    Window(hardware::WindowCommand),
    /// Replay the input log of a served device in virtual time and compare its outputs
    #[command(after_help = examples::RERUN)]
    Rerun(served::Rerun),
    /// Run an unmodified program with its log files on a served device's fast side
    ///
    /// Starts CMD with a preloaded library. Writes to files that match --log go into the device's ring and, by the
    /// normal call, into the page cache; fsync of these files waits for the log instead. An earlier run's log is
    /// recovered first. When CMD and all its child processes have ended, every file is complete and synced, and the log
    /// is empty. Signals are forwarded, and the exit status is CMD's.
    #[command(after_help = examples::RUN)]
    Run(files::Run),
    /// Time an unmodified program with and without its log files on a device
    ///
    /// Runs CMD in turns, with its files where they are and under `tidewater run`, and prints how long it took: what a
    /// device is worth for a workload of your own, on your disk.
    #[command(after_help = examples::BENCH)]
    Bench(files::Bench),
    /// Bring files up to date from the log of a program that crashed
    ///
    /// Replays the log that `tidewater run` left on a device onto the files, syncs them, and empties the log. It is
    /// safe to run twice. It follows no symbolic link, and changes only files you own and that are the ones originally
    /// written. Root changes a file only if it has the same owner as its directory; from a log whose ring or device
    /// belongs to another user, only files of that user, unless --allow-owner names others.
    ///
    /// With --onto, the log is replayed onto a copy of the files on another machine: a copy that is older than the log,
    /// or lacks a file, is refused by name. Root makes missing files the directory's owner's. On the way to NEW, only
    /// symbolic links of yours or of root are followed.
    #[command(after_help = examples::RECOVER)]
    Recover(files::Recover),
    /// Write everything on the log to its files and empty the log
    #[command(after_help = examples::DRAIN)]
    Drain(files::Drain),
    /// Check that files are whole without a log, before a plain start of their program
    ///
    /// Looks for the markers that `tidewater run` and the layers leave beside files whose last bytes may be on a log,
    /// in DIR and below. No device has to be there. Exit status 0: there are none, and the files are whole; 1: there
    /// are, and what to do about it; 2: a folder can't be read.
    #[command(after_help = examples::CHECK)]
    Check(files::Check),
    /// Read the log of a replica while it arrives
    ///
    /// Prints one line a record, or its bytes. A replica has what its primary's programs append, so its machine can
    /// read the log without the primary's. If a promotion cuts bytes that were read, the command ends and names them.
    #[command(after_help = examples::TAIL)]
    Tail(files::Tail),
    /// Make a page, a table or a figure from records of earlier runs
    ///
    /// Reads records that `replay --json` or `compare --json` wrote: one record gives its summary or report, several
    /// give a comparison, and so does the directory of a sweep. Documents of `experiment run --json` give one page or
    /// their checks, the document of `probe --json` its page or verdicts, and that of `log --json` its page or table.
    /// Each figure of a page can be written alone, for a paper.
    #[command(after_help = examples::REPORT)]
    Report(Report),
    /// Print the completion script of a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(Completions),
    /// Print the manual page, or write all manual pages into a directory
    #[command(after_help = examples::MAN)]
    Man(Man),
}

/// `tidewater replay`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("load").args(["trace", "job", "fio"]).required(true).multiple(true))]
pub struct Replay {
    /// The load.
    #[command(flatten)]
    pub load: Load,
    /// Run the jobs of fio's own command line, given behind --, as in --fio -- --name=a --rw=read --size=1g
    #[arg(long, requires = "fio_line", conflicts_with = "job", conflicts_with_all = OF_TRACES, help_heading = "Load")]
    pub fio: bool,
    /// fio's command line, without the name of the program
    #[arg(last = true, conflicts_with_all = ["trace", "job"], value_name = "ARGS", help_heading = "Load")]
    pub fio_line: Vec<String>,
    /// The drive.
    #[command(flatten)]
    pub drive: Drive,
    /// Write the run record as JSON; without FILE, on standard output alone
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath,
        help_heading = "Results"
    )]
    pub json: Option<PathBuf>,
    /// Write the report, one self-contained HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub report: Option<PathBuf>,
    /// Write a row for each request: a line of CSV, or of a table if FILE ends with .parquet or .arrow
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub requests: Option<PathBuf>,
    /// The live page.
    #[command(flatten)]
    pub watch: Watch,
}

impl Replay {
    /// The load in the words of studies: fio's command line is a job.
    pub fn load_spec(&self) -> LoadSpec {
        let job = self.fio.then(|| JobSpec::command_line(&self.fio_line));
        let load = self.load.spec();
        LoadSpec { job: job.or(load.job), ..load }
    }
}

/// `tidewater log`.
#[derive(Debug, Args)]
pub struct Log {
    /// Where the log goes; several, separated by commas, are run one after the other
    #[arg(
        long,
        value_name = "SIDE",
        value_delimiter = ',',
        default_value = "fast,conventional",
        value_parser = sides(),
        help_heading = "Load"
    )]
    pub to: Vec<String>,
    /// Transaction mix, which sets the size of each append
    #[arg(
        long,
        value_name = "MIX",
        default_value = "tpcc",
        value_parser = mixes(),
        conflicts_with = "log",
        help_heading = "Load"
    )]
    pub mix: String,
    /// Bytes that a transaction appends; only for the mix `fixed` [default: 1KiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with = "log", help_heading = "Load")]
    pub bytes: Option<u64>,
    /// A log of your own: lines of time,size (plain, gzip or zstd); - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Load")]
    pub log: Option<PathBuf>,
    /// Unit of the times in that file, if its header does not name it
    #[arg(long, value_name = "UNIT", value_parser = ["s", "ms", "us", "ns"], requires = "log", help_heading = "Load")]
    pub time_unit: Option<String>,
    /// Workers, each on a core; all append to one log, which is written through one lane
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=1_024),
        help_heading = "Load"
    )]
    pub workers: u32,
    /// Processor time of a transaction of a mix
    #[arg(
        long,
        value_name = "TIME",
        default_value = "26.667us",
        value_parser = values::time,
        conflicts_with = "log",
        help_heading = "Load"
    )]
    pub transaction_time: Duration,
    /// A group is committed when it has so many bytes, or 5 ms after its first transaction
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = values::size, help_heading = "Load")]
    pub group_bytes: u64,
    /// A worker waits until its transaction is durable before it begins the next
    #[arg(long, help_heading = "Load")]
    pub wait: bool,
    /// Simulated seconds that are measured
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.2,
        value_parser = tidewater_study::factor,
        conflicts_with = "log",
        help_heading = "Load"
    )]
    pub seconds: f64,
    /// Simulated seconds before that
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.02,
        value_parser = tidewater_study::factor,
        conflicts_with = "log",
        help_heading = "Load"
    )]
    pub warm_up: f64,
    /// The drive: a name from `tidewater profile list`, or a TOML file
    #[arg(
        long,
        value_name = "PROFILE",
        default_value = "villars",
        value_hint = ValueHint::FilePath,
        help_heading = "Drive"
    )]
    pub profile: PathBuf,
    /// Change one setting of the profile, such as fast.queue_size=8KiB; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other, help_heading = "Drive")]
    pub set: Vec<Setting>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Drive")]
    pub seed: u64,
    /// Write the figures as JSON, one object for each side; without FILE, on standard output alone
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath,
        help_heading = "Results"
    )]
    pub json: Option<PathBuf>,
    /// Write one self-contained HTML page: latencies by side, and the state of the fast side's log at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub report: Option<PathBuf>,
}

fn sides() -> PossibleValuesParser {
    PossibleValuesParser::new(tidewater_sim::host::LogTo::ALL.map(|(name, _)| name))
}

fn mixes() -> PossibleValuesParser {
    PossibleValuesParser::new(tidewater_sim::workload::log::mixes().map(|(name, _)| name))
}

/// `tidewater compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// The setting and its values: a profile key (buffer.write_policy=none,lru), or profile, queue-depth, speedup,
    /// precondition, power-cut or seed. Whole numbers take ranges: seed=1..5 is 1 to 5, nand.channels=1..64*2 doubles
    /// from 1 to 64. May be given several times
    #[arg(long, value_name = "KEY=V1,V2,...", required = true, value_hint = ValueHint::Other)]
    pub vary: Vec<Variation>,
    /// The load.
    #[command(flatten)]
    pub load: Load,
    /// The drive.
    #[command(flatten)]
    pub drive: Drive,
    /// Run so many at once, if memory allows [default: one for each processor]; results do not depend on it
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Write all records as one JSON array of {label, record}; without FILE, on standard output alone
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath,
        help_heading = "Results"
    )]
    pub json: Option<PathBuf>,
    /// Write a line for each run as CSV: what varies, and every figure with its unit in the column's name; - writes to
    /// standard output alone
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub csv: Option<PathBuf>,
    /// Write the same as a table: FILE ends with .parquet, .arrow or .csv
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub table: Option<PathBuf>,
    /// Where seeds vary, write a table of each figure over seeds: n, mean, median, 95 % confidence interval, and a
    /// paired test against the first variant; FILE ends with .parquet, .arrow or .csv
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub statistics: Option<PathBuf>,
    /// Write the comparison as one self-contained HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub report: Option<PathBuf>,
}

/// `tidewater trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Summarize a trace: requests, mix, sizes, footprint
    #[command(after_help = examples::TRACE_INFO)]
    Info {
        /// A file (plain, gzip or zstd), - for standard input, or the name of a bundled sample
        #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
        trace: PathBuf,
        /// How to read it.
        #[command(flatten)]
        reading: Reading,
        /// Also report how near requests are to recent ones in time and place, which takes longer
        #[arg(long)]
        locality: bool,
        /// Write the figures as JSON; without FILE, on standard output alone
        #[arg(
            long,
            value_name = "FILE",
            num_args = 0..=1,
            default_missing_value = "-",
            value_hint = ValueHint::FilePath
        )]
        json: Option<PathBuf>,
    },
    /// Write a trace in another format
    #[command(after_help = examples::TRACE_CONVERT)]
    Convert {
        /// A file (plain, gzip or zstd), - for standard input, or the name of a bundled sample
        #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
        trace: PathBuf,
        /// Where to write it; - is standard output
        #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
        out: PathBuf,
        /// The format to write [default: from OUT's extension: .iolog and .fio give fio3, .spc gives spc, anything else
        /// mqsim; .csv is ambiguous and rejected]
        #[arg(long, value_name = "FORMAT", value_parser = output_formats(), ignore_case = true)]
        to: Option<OutputFormat>,
        /// The file or device that a fio log names
        #[arg(long, value_name = "NAME", default_value = "/dev/nvme0n1")]
        fio_file: String,
        /// How to read it.
        #[command(flatten)]
        reading: Reading,
    },
    /// Generate a trace with given statistics
    #[command(after_help = examples::TRACE_SYNTH)]
    Synth(Synth),
}

/// `tidewater trace synth`.
#[derive(Debug, Args)]
pub struct Synth {
    /// Where to write it; - is standard output
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    /// The format to write [default: from OUT's extension: .iolog and .fio give fio3, .spc gives spc, anything else
    /// mqsim; .csv is ambiguous and rejected]
    #[arg(long, value_name = "FORMAT", value_parser = output_formats(), ignore_case = true)]
    pub to: Option<OutputFormat>,
    /// Start from the statistics of a published workload (financial, msnfs, exchange, camwebdev), or of a trace
    ///
    /// The names are those of the table in the CBM paper (MSST 2014), and so are mean size, write share, sequential
    /// share and interval. Writes: financial 18 % (as in UMass Financial2, which mostly reads; the write-heavy
    /// Financial1 is another trace), msnfs 33 %, exchange 72 %, camwebdev 99 %. Footprint, length and locality are not
    /// in the table, and are assumptions.
    #[arg(long, value_name = "NAME|TRACE", value_hint = ValueHint::FilePath)]
    pub like: Option<PathBuf>,
    /// The format of the trace that --like names
    #[arg(long, value_name = "FORMAT", value_parser = formats(), ignore_case = true, requires = "like")]
    pub format: Option<Format>,
    /// Requests [default: 20000]
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Mean size of a request in KiB, 0.5 to 1024 [default: 8]
    #[arg(long, value_name = "KIB")]
    pub mean_kib: Option<f64>,
    /// Share of writes in percent [default: 40]
    #[arg(long, value_name = "PERCENT")]
    pub write_percent: Option<f64>,
    /// Share of requests that begin where the one before ended, in percent [default: 5]
    #[arg(long, value_name = "PERCENT")]
    pub sequential_percent: Option<f64>,
    /// Mean time between requests in milliseconds, exponentially distributed [default: 0.5]
    #[arg(long, value_name = "MS")]
    pub mean_interarrival_ms: Option<f64>,
    /// Distinct 4 KiB pages touched, in MiB [default: 64]
    #[arg(long, value_name = "MIB")]
    pub footprint_mib: Option<f64>,
    /// Exponent of the Zipf distribution of popularity, 0 (uniform) to 3 [default: 0.9]
    #[arg(long, value_name = "THETA")]
    pub skew: Option<f64>,
    /// Share of requests that begin where a recent one of their kind began, in percent of those that are neither
    /// sequential nor to new places [default: 0]
    #[arg(long, value_name = "PERCENT")]
    pub again_percent: Option<f64>,
    /// Share of requests that begin where a recent one of their kind ended, in percent of the same [default: 0]
    #[arg(long, value_name = "PERCENT")]
    pub onward_percent: Option<f64>,
    /// Seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// `tidewater experiment`.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// List the experiments, one a line, the name first
    #[command(after_help = examples::EXPERIMENT_LIST)]
    List,
    /// Print every statement of the papers with its verdict
    ///
    /// Verdicts follow from the last whole run of all experiments that was recorded, or from the results in a file.
    #[command(after_help = examples::EXPERIMENT_LEDGER)]
    Ledger(ExperimentLedger),
    /// Run experiments and check each statement of the paper
    ///
    /// Runs experiments on every processor and prints, for each statement of the paper, the expected value, the
    /// measured value, and whether the statement holds.
    #[command(after_help = examples::EXPERIMENT_RUN)]
    Run(ExperimentRun),
    /// Print an experiment's file to begin with
    ///
    /// An experiment of your own is a file: what is run, as a sweep's plan; what is read off each run; what is stated
    /// of that; and figures.
    #[command(after_help = examples::EXPERIMENT_TEMPLATE)]
    Template,
}

/// `tidewater experiment ledger`.
#[derive(Debug, Args)]
pub struct ExperimentLedger {
    /// The statements of this source alone [default: all]
    #[arg(long, value_name = "SOURCE", value_parser = sources())]
    pub source: Option<String>,
    /// Decide the statements by the results that `experiment run --json` wrote into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub from: Option<PathBuf>,
    /// Print the counts alone
    #[arg(long, conflicts_with = "json")]
    pub counts: bool,
    /// Print one JSON array, an object for each statement
    #[arg(long)]
    pub json: bool,
}

/// `tidewater experiment run`.
#[derive(Debug, Args)]
pub struct ExperimentRun {
    /// Names from `tidewater experiment list`, or files of your own (`experiment template` prints one)
    #[arg(value_name = "NAME|FILE.toml", required_unless_present = "all", value_parser = experiments())]
    pub names: Vec<String>,
    /// Run every experiment
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Use so many processors [default: all]; results do not depend on it
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Measure a tenth, for a first look: some checks that hold in a full run may fail
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Measure all of cbm/map, cbm/openssd, cbm/setups, hmb/fig5, hmb/fig8 and hmb/fig10, of which a part is measured
    /// otherwise: it takes hours
    #[arg(long)]
    pub full: bool,
    /// Seed of every random choice: the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Change a parameter of built-in experiments (repeats=20), or a setting of all their drives (host.queues=4)
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
    pub set: Vec<Setting>,
    /// Directory of public block traces, for the experiments that use them (cbm/real, cbm/sanity); missing traces are
    /// skipped and counted [default: the environment variable TIDEWATER_TRACES]
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub traces: Option<PathBuf>,
    /// Directory in which MQSim ran experiments/mqsim/loads.xml, for the experiment mqsim [default: the results of
    /// MQSim that it is built with]
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub mqsim: Option<PathBuf>,
    /// Write raw rows, checks and figures as JSON, for several experiments as one array; without FILE, on standard
    /// output alone
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath,
        help_heading = "Results"
    )]
    pub json: Option<PathBuf>,
    /// Write one self-contained HTML page with all figures, the paper beside ours
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub report: Option<PathBuf>,
}

/// `tidewater probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// The drive: a name from `tidewater profile list` or a TOML file is simulated; a block device or any other file is
    /// real
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub target: PathBuf,
    /// The stages to run, separated by commas [default: all that the target allows]
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stages())]
    pub stages: Vec<String>,
    /// The largest cache or buffer to search for; write buffers are searched for up to 256 KiB at least
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = values::size)]
    pub largest_cache: u64,
    /// Print what would be done, and do nothing
    #[arg(long, alias = "plan", conflicts_with_all = ["json", "report"])]
    pub dry_run: bool,
    /// Allow stages that write or deallocate on a real target: ALL DATA ON IT IS LOST. A device that is mounted,
    /// partitioned or otherwise in use is refused all the same
    #[arg(long, value_name = "CONFIRMATION", value_parser = ["DATA-LOSS-CONFIRMED"])]
    pub destroy: Option<String>,
    /// Seed of every random choice: of a simulated drive, the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Change one setting of the profile, such as buffer.read_size=2MiB; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other, help_heading = "Simulated drive")]
    pub set: Vec<Setting>,
    /// Usable size of the simulated drive [default: what its profile says, else 8 GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Simulated drive")]
    pub capacity: Option<String>,
    /// The state the simulated drive starts in [default: filled]
    #[arg(
        long,
        value_name = "STATE",
        value_parser = values::PreconditionParser,
        hide_possible_values = true,
        help_heading = "Simulated drive"
    )]
    pub precondition: Option<Precondition>,
    /// Write the findings and their measurements as JSON, again after each stage; without FILE, on standard output
    /// alone
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath,
        help_heading = "Results"
    )]
    pub json: Option<PathBuf>,
    /// Write one self-contained HTML page with the plots
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub report: Option<PathBuf>,
}

/// Names of the stages of a probe.
fn stages() -> PossibleValuesParser {
    PossibleValuesParser::new(tidewater_probe::STAGES.iter().map(|stage| stage.name))
}

/// Names of experiments, as a list that help and completions can show, or the path of a file of one's own.
fn experiments() -> impl clap::builder::TypedValueParser<Value = String> {
    #[derive(Clone)]
    struct Experiments(PossibleValuesParser);
    impl clap::builder::TypedValueParser for Experiments {
        type Value = String;

        fn parse_ref(
            &self,
            command: &clap::Command,
            arg: Option<&clap::Arg>,
            value: &std::ffi::OsStr,
        ) -> Result<String, clap::Error> {
            match value.to_str().filter(|name| name.ends_with(".toml")) {
                Some(file) => Ok(file.to_owned()),
                None => self.0.parse_ref(command, arg, value),
            }
        }

        fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
            self.0.possible_values()
        }
    }
    Experiments(PossibleValuesParser::new(tidewater_papers::names()))
}

/// Names of the ledger's sources, as a list that help and completions can show.
fn sources() -> PossibleValuesParser {
    PossibleValuesParser::new(tidewater_papers::ledger::sources().iter().map(|source| &*source.key))
}

#[cfg(test)]
mod tests;
