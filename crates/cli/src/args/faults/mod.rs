//! `tidewater fault`: faults of a served drive and of a mount.

mod examples;

use super::served::Served;
use super::values;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::ops::Range;
use tidewater_base::Duration;
use tidewater_base::faults::{At, Fault, Kind, On};
use tidewater_crash::{Lose, Tear};

/// `tidewater fault`.
#[derive(Debug, Args)]
pub struct FaultArgs {
    /// The device.
    #[command(flatten)]
    pub served: Served,
    /// The subcommand.
    #[command(subcommand)]
    pub what: FaultCommand,
}

/// Subcommands of `tidewater fault`.
#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// Commands on these blocks fail with a status
    #[command(alias = "status", after_help = examples::FAULT_ERROR)]
    Error {
        /// Blocks A up to but not including B
        #[arg(long, value_name = "A..B", value_parser = blocks)]
        lba: Range<u64>,
        /// Namespace
        #[arg(long, value_name = "N", default_value_t = 1)]
        nsid: u32,
        /// Status code type and status code, such as 0x281 (Unrecovered Read Error) or 0x006 (Internal Error)
        #[arg(long, value_name = "CODE", default_value = "0x281", value_parser = status_code)]
        code: u16,
        /// Number of commands; 0: until cleared
        #[arg(long, value_name = "N", default_value_t = 0)]
        count: u32,
    },
    /// The next completions are delayed
    #[command(after_help = examples::FAULT_DELAY)]
    Delay {
        /// By how much: a number with its unit (ns, us, ms or s), such as 3s or 500us
        #[arg(long, value_name = "TIME", value_parser = values::time)]
        by: Duration,
        /// Which.
        #[command(flatten)]
        next: Next,
    },
    /// The next completions are lost
    #[command(after_help = examples::FAULT_LOSE)]
    Lose {
        /// Which.
        #[command(flatten)]
        next: Next,
    },
    /// The next completions are posted twice
    #[command(after_help = examples::FAULT_DUPLICATE)]
    Duplicate {
        /// Which.
        #[command(flatten)]
        next: Next,
    },
    /// Controller Fatal Status is set and the controller stops until reset
    #[command(after_help = examples::FAULT_FATAL)]
    Fatal {
        /// The function
        #[arg(long, value_name = "N", default_value_t = 0)]
        function: u8,
    },
    /// The next shutdown never completes
    #[command(after_help = examples::FAULT_STUCK_SHUTDOWN)]
    StuckShutdown {
        /// The function
        #[arg(long, value_name = "N", default_value_t = 0)]
        function: u8,
    },
    /// The link of a function goes down and its client is disconnected
    #[command(after_help = examples::FAULT_LINK_LOSS)]
    LinkLoss {
        /// The function
        #[arg(long, value_name = "N", default_value_t = 0)]
        function: u8,
    },
    /// The power fails inside the drive; sockets stay open. Of a mount: it is back at once, and open files fail
    #[command(after_help = examples::FAULT_POWER_CUT)]
    PowerCut {
        /// When, from now on: event:N (of a drive), write:N, sync:N or time:T, such as write:100 or time:2s. The n-th
        /// write or sync is under way then [default: now]
        #[arg(long, value_name = "WHEN")]
        at: Option<At>,
        /// How long the power is off, with its unit (ns, us, ms or s)
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time_or_none)]
        off: Duration,
        /// Of a mount: what is lost of the changes that are not durable [default: unsynced]
        #[arg(long, value_enum)]
        lose: Option<Lose>,
        /// Of a mount: where writes are torn [default: page]
        #[arg(long, value_enum)]
        tear: Option<Tear>,
        /// Of a mount: seed of what is drawn [default: 1]
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
    },
    /// Commands wait; on a mount, syncs do
    #[command(after_help = examples::FAULT_STALL)]
    Stall {
        /// For how long from now on, such as 5s
        #[arg(long = "for", value_name = "TIME", value_parser = values::time)]
        time: Duration,
    },
    /// Commands or calls take longer, by a distribution
    #[command(after_help = examples::FAULT_SLOW)]
    Slow {
        /// Added time of half of them at most, such as 100us
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time_or_none)]
        p50: Duration,
        /// Of 99 in 100 [default: that of --p50]
        #[arg(long, value_name = "TIME", value_parser = values::time)]
        p99: Option<Duration>,
        /// Of 999 in 1,000 [default: that of --p99]
        #[arg(long, value_name = "TIME", value_parser = values::time)]
        p999: Option<Duration>,
        /// Of 9,999 in 10,000, and at most [default: that of --p999]
        #[arg(long, value_name = "TIME", value_parser = values::time)]
        p9999: Option<Duration>,
        /// Which [default: of a drive, all of these; of a mount, sync]
        #[arg(long, value_parser = on())]
        on: Option<On>,
        /// How many; 0: until cleared
        #[arg(long, value_name = "N", default_value_t = 0)]
        count: u32,
        /// When, and what is drawn.
        #[command(flatten)]
        when: When,
    },
    /// A write is acknowledged, and what was there before stays
    #[command(after_help = examples::FAULT_LOST_WRITE)]
    LostWrite(Strikes),
    /// A write is acknowledged, and lands at another place: of the namespace, or of the file
    #[command(after_help = examples::FAULT_MISDIRECTED_WRITE)]
    MisdirectedWrite(Strikes),
    /// A bit of what a read returns is wrong; on a mount, of one that the page cache does not answer
    #[command(after_help = examples::FAULT_BIT_FLIP)]
    BitFlip(Strikes),
    /// Calls fail with EIO, an I/O error; on a drive, commands with Internal Error
    #[command(after_help = examples::FAULT_EIO)]
    Eio(ErrorArgs),
    /// Calls fail with ENOSPC, no space left; on a drive, commands with Capacity Exceeded
    #[command(after_help = examples::FAULT_ENOSPC)]
    Enospc(ErrorArgs),
    /// The host memory buffer fails at the next accesses
    #[command(after_help = examples::FAULT_HOST_MEMORY)]
    HostMemory {
        /// Kind of failure
        #[arg(long, value_name = "WHAT", value_parser = ["withdrawn", "corrupted", "slow"])]
        what: String,
        /// For slow: by how much, with its unit (ns, us, ms or s)
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = values::time)]
        by: Duration,
        /// Number of accesses
        #[arg(long, value_name = "N", default_value_t = 1)]
        count: u32,
    },
    /// List the armed faults
    #[command(after_help = examples::FAULT_LIST)]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Clear all armed faults
    #[command(after_help = examples::FAULT_CLEAR)]
    Clear,
}

/// Which completions.
#[derive(Clone, Debug, Args)]
pub struct Next {
    /// The function
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub function: u8,
    /// Number of completions
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
}

/// When a fault strikes, and what it draws.
#[derive(Clone, Debug, Args)]
pub struct When {
    /// So many that it could strike pass before
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// How often a fault strikes.
#[derive(Clone, Debug, Args)]
pub struct Strikes {
    /// How many; 0: until cleared
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// When, and what is drawn.
    #[command(flatten)]
    pub when: When,
}

/// An error of calls or commands.
#[derive(Clone, Debug, Args)]
pub struct ErrorArgs {
    /// Which fail: read, write (on a mount also new names and sizes), or sync (fsync, fdatasync, msync and writes with
    /// O_SYNC; on a drive Flush and writes with FUA)
    #[arg(long, value_parser = on(), default_value = "write")]
    pub on: On,
    /// How often.
    #[command(flatten)]
    pub strikes: Strikes,
    /// Of a mount: after a failed sync the file stays dirty, and the next sync writes it; otherwise it is taken for
    /// clean, as Linux does since 4.13
    #[arg(long)]
    pub keep_dirty: bool,
}

impl FaultCommand {
    /// The fault that it arms, of those that drives and mounts have in common; `None`: it is another, or none.
    pub fn armed(&self) -> Option<Fault> {
        let when = |kind, count, when: &When| Fault { count, after: when.after, seed: when.seed, ..Fault::new(kind) };
        let data = |kind, of: &Strikes| when(kind, of.count, &of.when);
        let error =
            |kind, of: &ErrorArgs| Fault { on: Some(of.on), keep_dirty: of.keep_dirty, ..data(kind, &of.strikes) };
        Some(match self {
            FaultCommand::Stall { time } => Fault { for_ns: time.as_ns().max(1), count: 0, ..Fault::new(Kind::Stall) },
            FaultCommand::Slow { p50, p99, p999, p9999, on, count, when: drawn } => {
                let mut quantiles_ns = [p50.as_ns(); 4];
                for (at, given) in [p99, p999, p9999].into_iter().enumerate() {
                    quantiles_ns[at + 1] = given.map_or(quantiles_ns[at], Duration::as_ns);
                }
                Fault { on: *on, quantiles_ns, ..when(Kind::Slow, *count, drawn) }
            }
            FaultCommand::LostWrite(of) => data(Kind::LostWrite, of),
            FaultCommand::MisdirectedWrite(of) => data(Kind::MisdirectedWrite, of),
            FaultCommand::BitFlip(of) => data(Kind::BitFlip, of),
            FaultCommand::Eio(of) => error(Kind::Eio, of),
            FaultCommand::Enospc(of) => error(Kind::Enospc, of),
            _ => return None,
        })
    }
}

/// Names of calls and commands.
fn on() -> impl TypedValueParser<Value = On> {
    const ALL: [On; 3] = [On::Read, On::Write, On::Sync];
    PossibleValuesParser::new(ALL.map(On::name))
        .map(|name| ALL.into_iter().find(|on| on.name() == name).expect("each of the listed names is one of these"))
}

fn time_or_none(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { values::time(text) }
}

fn blocks(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("`{text}`: {error}"));
    match text.split_once("..") {
        Some((first, end)) => {
            let range = number(first)?..number(end)?;
            if range.is_empty() { Err("the range is empty".into()) } else { Ok(range) }
        }
        None => number(text).map(|block| block..block + 1),
    }
}

fn status_code(text: &str) -> Result<u16, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(code @ 1..=0x7ff) => Ok(code),
        _ => Err("expected a status code type (3 bits) and a status code (8 bits), as in 0x281".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_codes_are_read() {
        assert_eq!(blocks("3..5"), Ok(3..5));
        assert_eq!(blocks("7"), Ok(7..8));
        assert!(blocks("5..5").is_err() && blocks("x").is_err());
        assert_eq!(status_code("0x281"), Ok(0x281));
        assert!(status_code("0").is_err() && status_code("0x800").is_err());
    }
}
