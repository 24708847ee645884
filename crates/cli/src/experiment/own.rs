//! Experiments of one's own, from files.

use super::Wrong;
use crate::args::ExperimentRun;
use crate::failure::Failure;
use crate::progress::Whole;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tidewater_report::Record;
use tidewater_report::experiment::Experiment;
use tidewater_study::experiment::{Options, Own};
use tidewater_study::{self as study, Follow, How};

/// Those of the names that are files.
///
/// # Errors
/// When one can't be read, or says what can't be run.
pub fn find<'n>(names: &[&'n str], given: &ExperimentRun) -> Result<HashMap<&'n str, Own>, Failure> {
    let files = names.iter().filter(|name| name.ends_with(".toml"));
    files.map(|name| Ok((*name, Own::from_file(Path::new(name), given.seed, given.quick)?))).collect()
}

/// Runs one as number `index` of the whole.
pub fn run(own: &Own, how: &How, whole: &Arc<Whole>, index: usize) -> Result<Experiment, Wrong> {
    let shares = Mutex::new(vec![0.0; own.runs()]);
    let follow: Arc<dyn Follow> = Arc::new(Shares { whole: Arc::clone(whole), index, shares });
    match own.run(&Options { how, follow }) {
        Ok(Some(experiment)) => Ok(experiment),
        Ok(None) => Err(Wrong::Cancelled),
        Err(failure) => Err(Wrong::Failed(failure.into())),
    }
}

/// The runs of one experiment, as its share of the whole.
struct Shares {
    whole: Arc<Whole>,
    index: usize,
    shares: Mutex<Vec<f64>>,
}

impl Follow for Shares {
    fn share(&self, index: usize, share: f64) {
        // Nothing that holds the lock can fail.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares[index] = share;
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        drop(shares);
        self.whole.share_of(self.index)(mean);
    }

    fn ended(&self, index: usize, _outcome: &Result<Record, study::Failure>) {
        self.share(index, 1.0);
    }
}
