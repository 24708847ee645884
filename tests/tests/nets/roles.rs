//! Promotions that two operators force at once.

use std::time::Duration;

use crate::cluster::relay::Weather;
use crate::cluster::{Cluster, PATIENCE, append, epoch, numbers};
use crate::nets::tally::Tally;

/// No machine reaches another, and an operator forces a promotion on each side. Once they do again, one is primary, all
/// follow it, and what all had is there.
pub fn force_on_two_sides() -> Option<Tally> {
    let (site, mut tally) = (Cluster::formed_on_machines(3, 50, "quorum")?, Tally::default());
    let log = site.log(0);
    (0..20).for_each(|number| append(&log, number, PATIENCE).expect("replicas acknowledge"));
    site.all_in_step(0);
    (0..3).for_each(|node| site.machines().isolate(node, Weather::CUT));
    for node in [1, 2] {
        let force = ["group", "promote", "--force", "--control", &node.to_string()];
        let _ = tidewater_tests::run(site.folder.path(), &force);
        site.until(node, "it is primary", |status| status["groups"][0]["role"] == "primary");
        tally.fault(site.group(0)["role"] == "primary");
    }
    let alone = append(&log, 20, Duration::from_secs(1));
    tally.holds(alone.is_err(), || "a primary that reaches no replica acknowledges".into());
    drop(log);
    (0..3).for_each(|node| site.machines().isolate(node, Weather::default()));
    let last = (0..3).max_by_key(|&node| (epoch(&site.group(node)["epoch"]), node)).expect("there are three");
    for node in (0..3).filter(|&node| node != last) {
        site.until(node, "it follows", |status| status["groups"][0]["role"] == "secondary");
    }
    site.all_in_step(last);
    let log = site.log(last);
    append(&log, 21, PATIENCE).expect("replicas acknowledge");
    let found = numbers(&log);
    tally.holds(found.starts_with(&(0..20).collect::<Vec<_>>()), || format!("{found:?}"));
    tally.acknowledged = 21;
    Some(tally)
}
