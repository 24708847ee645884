//! Faults that a user arms: one vocabulary for a served drive and for a mounted volume. Their names, when they strike,
//! and how often they have. What each does to bytes, calls and commands is for those who own these.
//!
//! The caller says what time it is, and random choices follow from each fault's seed.

use crate::units::{format_duration, parse_duration};
use crate::{Duration, Instant, Rng};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Faults that are remembered at once.
const REMEMBERED: usize = 64;
/// The longest time that a fault can name: no program waits longer.
const TIME_MAX: Duration = Duration::from_ms(86_400_000);
/// The quantiles of `slow`, in parts of 1.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// Calls or commands that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// Reads.
    Read,
    /// Writes; of a mount also new names and sizes.
    Write,
    /// Syncs; on a drive Flush and writes with FUA.
    Sync,
    /// Events of a drive's model. Only power cuts count them.
    Event,
}

impl On {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            On::Read => "read",
            On::Write => "write",
            On::Sync => "sync",
            On::Event => "event",
        }
    }
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The power fails.
    PowerCut,
    /// Calls that begin in a time end behind it.
    Stall,
    /// Each call takes longer, by a distribution.
    Slow,
    /// A write is acknowledged, and what was there before stays.
    LostWrite,
    /// A write is acknowledged, and its bytes lie at another place.
    MisdirectedWrite,
    /// A bit of the bytes that are read is wrong.
    BitFlip,
    /// An I/O error.
    Eio,
    /// No space left.
    Enospc,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 8] = [
        Kind::PowerCut,
        Kind::Stall,
        Kind::Slow,
        Kind::LostWrite,
        Kind::MisdirectedWrite,
        Kind::BitFlip,
        Kind::Eio,
        Kind::Enospc,
    ];

    /// Its name: that of the command, of the label in metrics, and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::PowerCut => "power-cut",
            Kind::Stall => "stall",
            Kind::Slow => "slow",
            Kind::LostWrite => "lost-write",
            Kind::MisdirectedWrite => "misdirected-write",
            Kind::BitFlip => "bit-flip",
            Kind::Eio => "eio",
            Kind::Enospc => "enospc",
        }
    }
}

/// A fault that is armed, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its kind.
    pub kind: Kind,
    /// Calls that it is about; `None`: all that the kind can be about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<On>,
    /// So many of them pass before the first strike.
    #[serde(default)]
    pub after: u64,
    /// Strikes; 0: until cleared.
    #[serde(default = "one")]
    pub count: u32,
    /// Seed of what is drawn.
    #[serde(default = "one_u64")]
    pub seed: u64,
    /// Of `stall`: its length in nanoseconds, from when it is armed. Of `power-cut`: when, if not 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub for_ns: u64,
    /// Of `slow`: p50, p99, p99.9 and p99.99 of the added time, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_none")]
    pub quantiles_ns: [u64; 4],
    /// Of an error of a sync on a mount: what was not synced stays dirty, and the next sync writes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_dirty: bool,
}

fn one() -> u32 {
    1
}

fn one_u64() -> u64 {
    1
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_none(quantiles: &[u64; 4]) -> bool {
    *quantiles == [0; 4]
}

impl Fault {
    /// A fault that strikes once, at the next call that it can be about.
    pub fn new(kind: Kind) -> Fault {
        let (on, after, count, seed) = (None, 0, 1, 1);
        Fault { kind, on, after, count, seed, for_ns: 0, quantiles_ns: [0; 4], keep_dirty: false }
    }

    /// Whether it can come about.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        let name = self.kind.name();
        let only = match self.kind {
            Kind::LostWrite | Kind::MisdirectedWrite => Some(On::Write),
            Kind::BitFlip => Some(On::Read),
            _ => None,
        };
        let of_kind = |on: On| match self.kind {
            Kind::PowerCut => matches!(on, On::Write | On::Sync | On::Event),
            _ => on != On::Event && only.is_none_or(|only| only == on),
        };
        if let Some(on) = self.on.filter(|on| !of_kind(*on)) {
            return Err(format!("{name} is not about {}s", on.name()));
        }
        if self.keep_dirty && !(matches!(self.kind, Kind::Eio | Kind::Enospc) && self.on == Some(On::Sync)) {
            return Err("only an error of syncs leaves files dirty".into());
        }
        let times = [self.for_ns, self.quantiles_ns[0], self.quantiles_ns[3]];
        if times.into_iter().any(|ns| ns > TIME_MAX.as_ns()) {
            return Err(format!("{name}: a time is at most a day"));
        }
        match self.kind {
            Kind::Stall if self.for_ns == 0 => Err("a stall takes a time above 0".into()),
            Kind::Slow if self.quantiles_ns[3] == 0 => Err("slow takes at least one time above 0".into()),
            Kind::Slow if !self.quantiles_ns.is_sorted() => {
                Err("the times of slow must not fall: p50, p99, p99.9, p99.99".into())
            }
            Kind::PowerCut if self.on.is_none() == (self.for_ns == 0) => {
                Err("a power cut is at an event, a write, a sync or a time".into())
            }
            _ => Ok(()),
        }
    }
}

impl Fault {
    /// In words, without what is left of it.
    pub fn words(&self) -> String {
        let time = |ns: u64| format_duration(Duration::from_ns(ns.min(TIME_MAX.as_ns())));
        let name = self.kind.name();
        let on = self.on.map_or_else(String::new, |on| format!(" on {}", on.name()));
        let dirty = if self.keep_dirty { ", files stay dirty" } else { "" };
        match (self.kind, self.on) {
            (Kind::PowerCut, Some(on)) => format!("{name} at a {}", on.name()),
            (Kind::PowerCut, None) => format!("{name} at a time"),
            (Kind::Slow, _) => {
                let [p50, p99, p999, p9999] = self.quantiles_ns.map(time);
                format!("{name}{on}: p50 {p50}, p99 {p99}, p99.9 {p999}, p99.99 {p9999}")
            }
            _ => format!("{name}{on}{dirty}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words())?;
        if self.for_ns > 0 {
            let left = Duration::from_ns(self.for_ns.min(TIME_MAX.as_ns()));
            return write!(f, ", {:.1} s left", left.as_secs_f64());
        }
        if self.after > 0 {
            write!(f, ", after {} more", self.after)?;
        }
        if self.count == 0 { f.write_str(", until cleared") } else { write!(f, ", {} left", self.count) }
    }
}

/// When the power is cut, from the moment on at which this is asked for: `event:N`, `write:N`, `sync:N` or `time:T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum At {
    /// The n-th call or event, from 1.
    Nth(On, u64),
    /// After a time.
    Time(Duration),
}

impl At {
    /// The fault that cuts the power then.
    pub fn fault(self) -> Fault {
        let cut = Fault::new(Kind::PowerCut);
        match self {
            At::Nth(on, nth) => Fault { on: Some(on), after: nth.saturating_sub(1), ..cut },
            At::Time(time) => Fault { for_ns: time.as_ns().max(1), ..cut },
        }
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        let forms = "give event:N, write:N, sync:N or time:T, such as write:100 or time:2s";
        let (what, value) = text.split_once(':').ok_or(forms)?;
        let on = match what {
            "event" => On::Event,
            "write" => On::Write,
            "sync" => On::Sync,
            "time" => {
                let time = parse_duration(value).map_err(|error| format!("{error}: {forms}"))?;
                return if time.is_zero() { Err(forms.into()) } else { Ok(At::Time(time)) };
            }
            _ => return Err(forms.into()),
        };
        let nth = value.parse().ok().filter(|nth| *nth > 0);
        nth.map(|nth| At::Nth(on, nth)).ok_or_else(|| forms.into())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Nth(on, nth) => write!(f, "{}:{nth}", on.name()),
            At::Time(time) => write!(f, "time:{}", format_duration(*time)),
        }
    }
}

impl TryFrom<String> for At {
    type Error = String;

    fn try_from(text: String) -> Result<At, String> {
        text.parse()
    }
}

impl From<At> for String {
    fn from(at: At) -> String {
        at.to_string()
    }
}

/// A fault in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The fault, with the calls and strikes that are left.
    pub fault: Fault,
    /// How often it has struck.
    pub struck: u64,
    /// It strikes no more.
    pub over: bool,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = crate::units::plural_exact(self.struck, "time");
        match self.over {
            true => write!(f, "{}: over, struck {times}", self.fault.kind.name()),
            false => write!(f, "{}; struck {times}", self.fault),
        }
    }
}

/// An armed fault.
#[derive(Clone, Debug)]
struct Armed {
    listed: Listed,
    rng: Rng,
    /// When a stall ends, and when a power cut comes.
    until: Instant,
}

/// Faults that are armed, and how often those of each kind have struck.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    armed: Vec<Armed>,
    struck: [u64; Kind::ALL.len()],
}

impl Faults {
    /// Arms a fault. Of power cuts there is one at a time: the last.
    ///
    /// # Errors
    /// In words: one that can't come about, and one more than are remembered.
    pub fn arm(&mut self, fault: Fault, now: Instant) -> Result<(), String> {
        fault.check()?;
        if fault.kind == Kind::PowerCut {
            self.armed.retain(|armed| armed.listed.fault.kind != Kind::PowerCut);
        }
        if self.armed.len() == REMEMBERED {
            let over = self.armed.iter().position(|armed| armed.listed.over);
            self.armed.remove(over.ok_or_else(|| format!("{REMEMBERED} faults are armed: clear them first"))?);
        }
        let listed = Listed { fault, struck: 0, over: false };
        let (rng, until) = (Rng::new(fault.seed, fault.kind.name().as_bytes()), now + Duration::from_ns(fault.for_ns));
        self.armed.push(Armed { listed, rng, until });
        Ok(())
    }

    /// Forgets all that are armed. What has struck stays counted.
    pub fn clear(&mut self) {
        self.armed.clear();
    }

    /// Whether none is remembered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }

    /// Whether one of these kinds has struck, or still can.
    pub fn has(&self, kinds: &[Kind]) -> bool {
        self.armed.iter().any(|armed| kinds.contains(&armed.listed.fault.kind))
    }

    /// Those that are remembered, with what is left of them.
    pub fn list(&self, now: Instant) -> Vec<Listed> {
        let listed = |armed: &Armed| {
            let mut listed = armed.listed;
            if listed.fault.for_ns > 0 && !listed.over {
                listed.fault.for_ns = armed.until.since(now).as_ns();
                listed.over = listed.fault.kind == Kind::Stall && listed.fault.for_ns == 0;
            }
            listed
        };
        self.armed.iter().map(listed).collect()
    }

    /// How often faults of each kind have struck.
    pub fn struck(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.into_iter().zip(self.struck)
    }

    /// The kinds that have struck, in words; `None`: none has.
    pub fn tally(&self) -> Option<String> {
        let struck: Vec<String> = self
            .struck()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{} {count}", kind.name()))
            .collect();
        (!struck.is_empty()).then(|| struck.join(", "))
    }

    /// The next call of a kind: the fault that strikes it, if one of these does. All that are about it count it.
    fn next(&mut self, kinds: &[Kind], on: On) -> Option<&mut Armed> {
        let mut first = None;
        for (index, armed) in self.armed.iter_mut().enumerate() {
            let Listed { fault, over, .. } = &mut armed.listed;
            if *over || !kinds.contains(&fault.kind) || fault.on.is_some_and(|of| of != on) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if first.is_none() {
                first = Some(index);
            }
        }
        let armed = &mut self.armed[first?];
        let Listed { fault, struck, over } = &mut armed.listed;
        *struck += 1;
        *over = fault.count == 1;
        fault.count = fault.count.saturating_sub(1);
        self.struck[fault.kind as usize] += 1;
        Some(armed)
    }

    /// Whether a fault of this kind strikes the next call, and the source of what it draws.
    pub fn strikes(&mut self, kind: Kind, on: On) -> Option<&mut Rng> {
        self.next(&[kind], on).map(|armed| &mut armed.rng)
    }

    /// The error that the next call ends with.
    pub fn error(&mut self, on: On) -> Option<Fault> {
        self.next(&[Kind::Eio, Kind::Enospc], on).map(|armed| armed.listed.fault)
    }

    /// Time that the next call takes longer: what is left of a stall, or what is drawn.
    pub fn delay(&mut self, on: On, now: Instant) -> Duration {
        let mut left = Duration::ZERO;
        for armed in &mut self.armed {
            let fault = &armed.listed.fault;
            if fault.kind == Kind::Stall && fault.on.is_none_or(|of| of == on) && armed.until > now {
                left = left.max(armed.until - now);
                armed.listed.struck += 1;
                self.struck[Kind::Stall as usize] += 1;
            }
        }
        let slow = self.next(&[Kind::Slow], on);
        let drawn = slow.map(|armed| draw(armed.listed.fault.quantiles_ns, &mut armed.rng));
        left + drawn.unwrap_or(Duration::ZERO)
    }

    fn armed_cut(&self) -> Option<&Armed> {
        self.armed.iter().find(|armed| armed.listed.fault.kind == Kind::PowerCut && !armed.listed.over)
    }

    /// Whether the armed power cut comes with the next call of this kind, which it counts.
    pub fn cuts(&mut self, on: On) -> bool {
        let is_it = |fault: &Fault| fault.kind == Kind::PowerCut && fault.on == Some(on);
        let cut = self.armed.iter_mut().map(|armed| &mut armed.listed).find(|cut| is_it(&cut.fault) && !cut.over);
        let left = cut.map(|cut| {
            let left = cut.fault.after;
            cut.fault.after = left.saturating_sub(1);
            left
        });
        left == Some(0)
    }

    /// When the armed power cut comes by the clock.
    pub fn cut_at(&self) -> Option<Instant> {
        self.armed_cut().filter(|cut| cut.listed.fault.for_ns > 0).map(|cut| cut.until)
    }

    /// The power was cut, by whatever: one that was armed is over.
    pub fn cut(&mut self) {
        self.struck[Kind::PowerCut as usize] += 1;
        for Armed { listed, .. } in &mut self.armed {
            if listed.fault.kind == Kind::PowerCut && !listed.over {
                (listed.struck, listed.over) = (1, true);
            }
        }
    }
}

/// A time of a distribution with these quantiles: straight lines between them, from 0 on.
fn draw(quantiles_ns: [u64; 4], rng: &mut Rng) -> Duration {
    let part = rng.unit_f64();
    let (mut from, mut low) = (0.0, 0.0);
    for (to, high) in QUANTILES.into_iter().zip(quantiles_ns.map(|ns| ns as f64)) {
        if part < to {
            let ns = low + (high - low) * (part - from) / (to - from);
            return Duration::from_ns(ns as u64);
        }
        (from, low) = (to, high);
    }
    Duration::from_ns(quantiles_ns[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn names_are_those_of_json() {
        for kind in Kind::ALL {
            assert_eq!(Kind::ALL[kind as usize], kind);
            let fault = format!("{}", Fault::new(kind));
            assert!(fault.starts_with(kind.name()), "{fault}");
        }
    }

    #[test]
    fn a_fault_strikes_after_so_many_calls_and_so_often() {
        let mut faults = Faults::default();
        let eio = Fault { on: Some(On::Write), after: 2, count: 2, ..Fault::new(Kind::Eio) };
        faults.arm(eio, NOW).unwrap();
        faults.arm(Fault { on: Some(On::Sync), count: 0, ..Fault::new(Kind::Enospc) }, NOW).unwrap();
        let kinds = |on: On, faults: &mut Faults| faults.error(on).map(|fault| fault.kind);
        assert_eq!(kinds(On::Read, &mut faults), None);
        let struck: Vec<_> = (0..6).map(|_| kinds(On::Write, &mut faults).is_some()).collect();
        assert_eq!(struck, [false, false, true, true, false, false]);
        assert!((0..9).all(|_| kinds(On::Sync, &mut faults) == Some(Kind::Enospc)));
        let listed: Vec<String> = faults.list(NOW).iter().map(ToString::to_string).collect();
        assert_eq!(listed, ["eio: over, struck 2 times", "enospc on sync, until cleared; struck 9 times"]);
        faults.clear();
        assert_eq!(kinds(On::Sync, &mut faults), None);
        assert_eq!(faults.tally().as_deref(), Some("eio 2, enospc 9"));
    }

    #[test]
    fn a_distribution_has_its_quantiles() {
        let quantiles = [100_000, 5_000_000, 50_000_000, 1_000_000_000];
        let mut rng = Rng::new(1, b"slow");
        let drawn: Vec<u64> = (0..1_000_000).map(|_| draw(quantiles, &mut rng).as_ns()).collect();
        for (part, quantile) in QUANTILES.into_iter().zip(quantiles) {
            let (above, expected) = (drawn.iter().filter(|ns| **ns >= quantile).count() as f64, (1.0 - part) * 1e6);
            assert!((above - expected).abs() < 4.0 * expected.sqrt(), "p{part}: {above} draws, not {expected}");
        }
        assert_eq!(drawn.iter().max(), Some(&1_000_000_000));
    }

    #[test]
    fn a_stall_ends_and_a_power_cut_comes_once() {
        let mut faults = Faults::default();
        faults.arm(Fault { for_ns: 5_000, ..Fault::new(Kind::Stall) }, NOW).unwrap();
        assert_eq!(faults.delay(On::Read, Instant::from_ns(2_000)), Duration::from_ns(3_000));
        assert_eq!(faults.delay(On::Read, Instant::from_ns(5_000)), Duration::ZERO);
        assert!(faults.list(Instant::from_ns(5_000))[0].over);
        let at: At = "time:2us".parse().unwrap();
        faults.arm(at.fault(), NOW).unwrap();
        assert_eq!(faults.cut_at(), Some(Instant::from_ns(2_000)));
        faults.arm("sync:3".parse::<At>().unwrap().fault(), NOW).unwrap();
        assert_eq!((faults.cut_at(), faults.cuts(On::Write)), (None, false));
        assert_eq!([1, 2, 3].map(|_| faults.cuts(On::Sync)), [false, false, true]);
        faults.cut();
        assert!(!faults.cuts(On::Sync));
        assert_eq!(faults.list(NOW)[1].to_string(), "power-cut: over, struck 1 time");
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for wrong in ["", "write", "write:0", "write:x", "read:1", "time:0s", "time:1"] {
            assert!(wrong.parse::<At>().is_err(), "{wrong}");
        }
        for right in ["event:7", "write:100", "sync:3", "time:2s"] {
            let at = right.parse::<At>().unwrap();
            assert_eq!((at.to_string(), at.fault().check()), (right.to_owned(), Ok(())));
        }
        let wrong = [
            Fault::new(Kind::Stall),
            Fault::new(Kind::Slow),
            Fault::new(Kind::PowerCut),
            Fault { quantiles_ns: [3, 2, 4, 5], ..Fault::new(Kind::Slow) },
            Fault { quantiles_ns: [0, 0, 0, u64::MAX], ..Fault::new(Kind::Slow) },
            Fault { on: Some(On::Write), ..Fault::new(Kind::BitFlip) },
            Fault { on: Some(On::Event), ..Fault::new(Kind::Eio) },
            Fault { keep_dirty: true, ..Fault::new(Kind::Eio) },
        ];
        for fault in wrong {
            assert!(Faults::default().arm(fault, NOW).is_err(), "{fault:?}");
        }
        let mut faults = Faults::default();
        let arm = |faults: &mut Faults| faults.arm(Fault::new(Kind::Eio), NOW);
        assert!((0..REMEMBERED).all(|_| arm(&mut faults).is_ok()));
        assert!(arm(&mut faults).is_err());
        faults.error(On::Read);
        assert_eq!(arm(&mut faults), Ok(()));
    }
}
