//! Totals of a case: how often something was tried, how often it really happened, and the violations.

use tidewater_tests::{skipped, wait};

use crate::cluster::etcd::is_installed;
use crate::cluster::relay::Weather;
use crate::cluster::{Cluster, PATIENCE};
use crate::nets::history::{Verdict, judge};
use crate::nets::porcupine::{self, Judgement};
use crate::nets::workload::Workload;

/// Calls of a case, beyond which programs are slower.
const CALLS_MAX: usize = 6_000;

/// Totals of a case.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub tried: u64,
    /// Times that the fault was seen at work: a packet lost, a process that stood still, a write that failed.
    pub fired: u64,
    pub acknowledged: u64,
    pub violations: Vec<String>,
}

impl Tally {
    /// Counts a fault that was tried, and whether it was seen at work.
    pub fn fault(&mut self, has_fired: bool) {
        self.tried += 1;
        self.fired += u64::from(has_fired);
    }

    /// Counts what has to hold.
    pub fn holds(&mut self, is_so: bool, else_say: impl FnOnce() -> String) {
        if !is_so {
            self.violations.push(else_say());
        }
    }

    /// Has a history judged, by both judges. False: Porcupine is absent, which is counted.
    pub fn judge(&mut self, load: &Workload) -> bool {
        let calls = load.history.calls();
        let Verdict { lost, deposed, other } = judge(&calls);
        self.holds(lost.is_empty(), || format!("acknowledged and lost: {lost:?}"));
        self.holds(deposed.is_empty(), || format!("acknowledged by a deposed primary: {deposed:?}"));
        self.violations.extend(other);
        match porcupine::judge(&calls) {
            Ok(judgement) => {
                self.holds(judgement == Judgement::Linearizable, || format!("Porcupine says: {judgement:?}"));
                true
            }
            Err(why) => {
                skipped(1, why);
                false
            }
        }
    }
}

impl Workload {
    /// Whether programs go on: some more of their appends are acknowledged.
    pub fn goes_on(&self) -> bool {
        let before = self.acknowledged();
        wait::within(PATIENCE, || (self.acknowledged() >= before + 20).then_some(())).is_some()
    }
}

/// Three devices in a group, programs that append to it, and what a case does meanwhile. At the end all is well again,
/// and the history is judged. `None`: it can't be done here, which is counted.
pub fn trial(
    seed: u64,
    mode: &str,
    prepare: impl FnOnce(&mut Cluster) -> bool,
    act: impl FnOnce(&mut Cluster, &Workload, &mut Tally),
) -> Option<Tally> {
    let mut site = Cluster::on_machines(3, seed)?;
    if !prepare(&mut site) {
        return None;
    }
    site.connect();
    site.form(mode);
    site.all_in_step(0);
    Some(around(site, seed, act))
}

/// The same, of devices that keepers and an etcd have made a group of.
pub fn kept_trial(seed: u64, etcd_on: &[u8], act: impl FnOnce(&mut Cluster, &Workload, &mut Tally)) -> Option<Tally> {
    if !is_installed() {
        return None;
    }
    let mut site = Cluster::on_machines(3, seed)?;
    site.connect();
    site.start_etcd(etcd_on);
    site.keep("quorum");
    Some(around(site, seed, act))
}

fn around(mut site: Cluster, seed: u64, act: impl FnOnce(&mut Cluster, &Workload, &mut Tally)) -> Tally {
    let (load, mut tally) = (Workload::new(&site, CALLS_MAX), Tally::default());
    load.around(3, seed, || {
        load.goes_on();
        act(&mut site, &load, &mut tally);
        site.machines().among(0..=site.operator(), Weather::default());
        tally.holds(load.goes_on(), || "programs do not go on when all is well again".into());
    });
    let primary = site.primary(|_| true);
    site.all_in_step(primary);
    if let Err(error) = load.read_at_last(primary) {
        tally.violations.push(format!("the log can't be read at last: {error}"));
    }
    tally.acknowledged = load.acknowledged();
    tally.judge(&load);
    tally
}
