//! Links between devices that are cut, lossy, slow or unsteady.

use std::time::{Duration, Instant};

use crate::cluster::relay::{Fired, Weather};
use crate::cluster::{Cluster, PATIENCE, append};
use crate::nets::tally::{Tally, trial};
use tidewater_client::LogError;
use tidewater_tests::wait;

/// The keep-alive period of peers.
const KEEP_ALIVE: Duration = Duration::from_millis(10);

/// A group whose primary stays what it is while links are in this weather, one after the other or together: each for a
/// while, in which programs go on.
fn weather(seed: u64, links: &[&[(u8, u8)]], weather: Weather, has_fired: impl Fn(Fired) -> bool) -> Option<Tally> {
    trial(
        seed,
        "quorum",
        |_| true,
        |site, load, tally| {
            for ways in links {
                let before = site.machines().fired_in_all();
                ways.iter().for_each(|&(from, to)| site.machines().weather(from, to, weather));
                let start = Instant::now();
                let goes_on = (0..3).all(|_| load.goes_on());
                wait::pass(Duration::from_millis(1_500).saturating_sub(start.elapsed()));
                let after = site.machines().fired_in_all();
                ways.iter().for_each(|&(from, to)| site.machines().weather(from, to, Weather::default()));
                tally.fault(has_fired(after) && after != before);
                tally.holds(goes_on, || format!("programs stand still while {ways:?} is in {weather:?}"));
            }
        },
    )
}

const ALL: &[(u8, u8)] = &[(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];

pub fn cut_one_way() -> Option<Tally> {
    let links: [&[(u8, u8)]; 4] = [&[(0, 1)], &[(1, 0)], &[(0, 2)], &[(2, 0)]];
    weather(1, &links, Weather::CUT, |fired| fired.cut > 0)
}

pub fn cut_both_ways() -> Option<Tally> {
    weather(2, &[&[(0, 1), (1, 0)], &[(0, 2), (2, 0)]], Weather::CUT, |fired| fired.cut > 0)
}

pub fn cut_between_secondaries() -> Option<Tally> {
    weather(3, &[&[(1, 2), (2, 1)]], Weather::CUT, |fired| fired.cut > 0)
}

pub fn slow() -> Option<Tally> {
    let late = Weather { delay: Duration::from_millis(10), ..Weather::default() };
    weather(4, &[ALL], late, |fired| fired.late > 100)
}

pub fn lossy() -> Option<Tally> {
    weather(5, &[ALL], Weather { lost_permille: 10, ..Weather::default() }, |fired| fired.lost > 0)
}

pub fn unsteady() -> Option<Tally> {
    let jitter = Weather { jitter: Duration::from_millis(40), ..Weather::default() };
    weather(6, &[ALL], jitter, |fired| fired.overtook > 0)
}

pub fn twice() -> Option<Tally> {
    weather(7, &[ALL], Weather { twice_permille: 100, ..Weather::default() }, |fired| fired.twice > 0)
}

pub fn all_at_once() -> Option<Tally> {
    let bad = Weather {
        lost_permille: 10,
        twice_permille: 20,
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(10),
        ..Weather::default()
    };
    weather(8, &[ALL], bad, |fired| fired.lost > 0 && fired.twice > 0 && fired.overtook > 0)
}

/// One replica gets 4 KB a second; a quorum does not need it.
pub fn a_trickle() -> Option<Tally> {
    let thin = Weather { rate: 4_000, ..Weather::default() };
    weather(9, &[&[(0, 1)]], thin, |fired| fired.late > 0)
}

/// Long packets are lost in silence, short ones pass: keep-alives arrive, and the log does not.
pub fn mtu_black_hole() -> Option<Tally> {
    let hole = Weather { length_max: 150, ..Weather::default() };
    weather(10, &[&[(0, 1), (1, 0)]], hole, |fired| fired.too_long > 0)
}

/// A link that is cut and whole again in each keep-alive period.
pub fn flapping() -> Option<Tally> {
    trial(
        11,
        "quorum",
        |_| true,
        |site, load, tally| {
            for replica in [1, 2] {
                for _ in 0..100 {
                    let before = site.machines().fired_in_all().cut;
                    site.machines().between(0, replica, Weather::CUT);
                    wait::pass(KEEP_ALIVE);
                    tally.fault(site.machines().fired_in_all().cut > before);
                    site.machines().between(0, replica, Weather::default());
                    wait::pass(KEEP_ALIVE);
                }
                tally.holds(load.goes_on(), || format!("programs stand still while the link to {replica} flaps"));
            }
        },
    )
}

/// The machine of a replica is gone without a word: no FIN leaves it, and it comes back with other connections.
pub fn half_open() -> Option<Tally> {
    trial(
        12,
        "quorum",
        |_| true,
        |site, load, tally| {
            for replica in [1, 2] {
                site.machines().isolate(replica, Weather::CUT);
                site.kill(replica);
                let goes_on = load.goes_on();
                site.until(0, "it is named as away", |status| {
                    let links = status["links"].as_array().map_or(&[][..], Vec::as_slice);
                    links.iter().any(|link| link["node"] == replica && link["up"] == false)
                });
                tally.fault(site.machines().fired(0, replica).cut > 0);
                tally.holds(goes_on, || format!("programs stand still without node {replica}"));
                site.machines().isolate(replica, Weather::default());
                site.start(replica);
                site.all_in_step(0);
            }
        },
    )
}

/// The primary is cut off, another is promoted, and the link is back: what the old one was given is acknowledged by no
/// replica.
pub fn a_primary_behind_a_cut() -> Option<Tally> {
    trial(
        13,
        "quorum",
        |_| true,
        |site, load, tally| {
            let mut primary = 0;
            for round in 0..4 {
                let next = (primary + 1 + round % 2) % 3;
                site.machines().isolate(primary, Weather::CUT);
                site.promoted(next);
                let goes_on = load.goes_on();
                tally.fault(site.machines().fired(primary, next).cut > 0 && site.group(primary)["role"] == "primary");
                tally.holds(goes_on, || format!("programs do not find node {next}"));
                site.machines().isolate(primary, Weather::default());
                site.until(primary, "it follows", |status| status["groups"][0]["role"] == "secondary");
                site.all_in_step(next);
                primary = next;
            }
        },
    )
}

/// An eager group waits for a replica that is cut off, names it, and goes on when it is back.
pub fn an_eager_group_waits() -> Option<Tally> {
    let (site, mut tally) = (Cluster::formed_on_machines(3, 14, "eager")?, Tally::default());
    let log = site.log(0);
    append(&log, 0, PATIENCE).expect("replicas acknowledge");
    for (round, (from, to)) in [(0, 1), (2, 0)].into_iter().enumerate() {
        let number = 2 * round as u64 + 1;
        site.machines().weather(from, to, Weather::CUT);
        let outcome = append(&log, number, Duration::from_secs(2));
        tally.fault(site.machines().fired(from, to).cut > 0);
        let replica = from.max(to).to_string();
        let is_named = matches!(&outcome, Err(LogError::ReplicasLate { late, .. }) if *late == replica);
        tally.holds(is_named, || format!("node {replica} is not named: {outcome:?}"));
        site.machines().weather(from, to, Weather::default());
        let outcome = append(&log, number + 1, PATIENCE);
        tally.holds(outcome.is_ok(), || format!("it does not go on: {outcome:?}"));
    }
    tally.acknowledged = 3;
    Some(tally)
}

/// A link that is cut for longer than TCP needs to lose its patience for a while, both ways, is used soon after.
pub fn a_long_cut() -> Option<Tally> {
    trial(
        15,
        "quorum",
        |_| true,
        |site, load, tally| {
            site.machines().isolate(2, Weather::CUT);
            wait::pass(Duration::from_secs(40));
            tally.fault(site.machines().fired(0, 2).cut > 0);
            tally.holds(load.goes_on(), || "programs stand still".into());
            site.machines().isolate(2, Weather::default());
            let back = Instant::now();
            site.all_in_step(0);
            tally.holds(back.elapsed() < Duration::from_secs(20), || format!("back after {:?}", back.elapsed()));
        },
    )
}
