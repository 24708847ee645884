//! Options of `tidewater sweep`.

use super::load::{Drive, Load, Watch};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;
use tidewater_study::Variation;

/// `tidewater sweep`.
#[derive(Debug, Args)]
pub struct Sweep {
    /// The plan, a TOML file; without it, the options below are the plan
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath, conflicts_with_all = ["vary", "trace", "job", "set"])]
    pub plan: Option<PathBuf>,
    /// Directory of the records and the table: a new one, or that of a sweep, which is continued
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Run so many at once, if memory allows [default: one for each processor]; results do not depend on it
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Make only every Nth run, from the Kth: 3/40 is one of 40 machines. The table is written by the one that finds
    /// all runs made
    #[arg(long, value_name = "K/N")]
    pub shard: Option<Shard>,
    /// Run again what failed
    #[arg(long)]
    pub retry_failed: bool,
    /// Print the runs and what is there of them, and make none
    #[arg(long, conflicts_with = "page")]
    pub dry_run: bool,
    /// A setting and its values, a range or a list, as in `compare`; may be given several times
    #[arg(long, value_name = "KEY=V1,V2,...", value_hint = ValueHint::Other)]
    pub vary: Vec<Variation>,
    /// The load.
    #[command(flatten)]
    pub load: Load,
    /// The drive.
    #[command(flatten)]
    pub drive: Drive,
    /// The live page.
    #[command(flatten)]
    pub watch: Watch,
}

/// `K/N` of `--shard`, K from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 0.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let read = |text: &str| text.trim().parse::<usize>().ok();
        match text.split_once('/').map(|(k, n)| (read(k), read(n))) {
            Some((Some(k), Some(n))) if (1..=n).contains(&k) => Ok(Shard { index: k - 1, count: n }),
            _ => Err("expected K/N, with K from 1 to N".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!("3/40".parse(), Ok(Shard { index: 2, count: 40 }));
        for wrong in ["0/4", "5/4", "1", "a/b", "1/0", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
