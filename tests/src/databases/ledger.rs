//! Acknowledged commits, compared with the database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Server;
use crate::wait;

/// A row of one of the two tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub writer: u32,
    /// Which commit of it.
    pub number: u64,
    /// Its content.
    pub body: String,
}

/// All that a database holds.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The two tables: a commit writes a row into each.
    pub tables: [Vec<Row>; 2],
    /// The last number of each writer, as its commits set it.
    pub last: Vec<(u32, u64)>,
}

/// Content of a row of this commit in this table: its length varies, so that records meet page ends in all ways.
pub fn body(table: usize, writer: u32, number: u64) -> String {
    let mut state = (u64::from(writer) << 40) ^ (number << 1) ^ table as u64;
    let mut next = move || {
        // SplitMix64 (Steele, Lea, Flood 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let words = 1 + next() % 20;
    (0..words).map(|_| format!("{:016x}", next())).collect()
}

/// Numbers of commits, by writer.
#[derive(Debug)]
pub struct Ledger {
    attempted: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Commits that were acknowledged.
    pub acknowledged: u64,
    /// Of these, those that aren't there.
    pub lost: u64,
    /// Commits of which a part is there, or whose rows hold what was never written.
    pub half: u64,
    /// Commits that are there without a request for them.
    pub foreign: u64,
}

impl Verdict {
    /// Nothing acknowledged is lost, nothing else is half there.
    pub fn holds(&self) -> bool {
        (self.lost, self.half, self.foreign) == (0, 0, 0)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { acknowledged, lost, half, foreign } = self;
        write!(f, "{lost} of {acknowledged} acknowledged commits lost, {half} half there, {foreign} foreign")
    }
}

impl Ledger {
    /// Of a new database.
    pub fn new(writers: u32) -> Self {
        let zeros = || (0..writers).map(|_| AtomicU64::new(0)).collect();
        Self { attempted: zeros(), acknowledged: zeros() }
    }

    /// The commits known at this moment, for files as they are now.
    pub fn now(&self) -> Ledger {
        let copy = |of: &[AtomicU64]| of.iter().map(|one| AtomicU64::new(one.load(Ordering::Acquire))).collect();
        // In this order: what is acknowledged meanwhile was attempted.
        let acknowledged = copy(&self.acknowledged);
        Ledger { attempted: copy(&self.attempted), acknowledged }
    }

    /// Commits that were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().map(|one| one.load(Ordering::Acquire)).sum()
    }

    /// Has every writer commit on a connection of its own while `moment` goes on, which ends the database or asks to
    /// end. Returns what `moment` does.
    ///
    /// # Errors
    /// A connection can't be had.
    pub fn load<T>(
        &self,
        server: &mut dyn Server,
        moment: impl FnOnce(&mut dyn Server, &AtomicBool) -> T,
    ) -> Result<T, String> {
        let clients: Result<Vec<_>, String> = self.attempted.iter().map(|_| server.client()).collect();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (writer, mut client) in clients?.into_iter().enumerate() {
                let end = &end;
                scope.spawn(move || {
                    while !end.load(Ordering::Acquire) {
                        // Its own count: no other thread writes to it.
                        let number = self.attempted[writer].load(Ordering::Acquire) + 1;
                        self.attempted[writer].store(number, Ordering::Release);
                        if client.commit(writer as u32, number).is_err() {
                            // Whether it was done isn't known: it may be there or not, but whole.
                            break;
                        }
                        self.acknowledged[writer].store(number, Ordering::Release);
                    }
                });
            }
            let result = moment(server, &end);
            end.store(true, Ordering::Release);
            Ok(result)
        })
    }

    /// Waits until so many more commits are acknowledged and so much time has passed. Whether that came about.
    pub fn wait(&self, more: u64, time: Duration) -> bool {
        let (begin, before) = (Instant::now(), self.acknowledged());
        let has_more = || (self.acknowledged() >= before + more).then_some(());
        let is_so = wait::within(crate::PATIENCE, has_more).is_some();
        wait::pass(time.saturating_sub(begin.elapsed()));
        is_so
    }

    /// Holds what is there against what was acknowledged.
    pub fn judge(&self, contents: &Contents) -> Verdict {
        let mut verdict = Verdict { acknowledged: self.acknowledged(), ..Verdict::default() };
        // How often each commit is there, in each table.
        let mut there: BTreeMap<(u32, u64), [u64; 2]> = BTreeMap::new();
        for (table, rows) in contents.tables.iter().enumerate() {
            for row in rows {
                there.entry((row.writer, row.number)).or_default()[table] += 1;
                verdict.half += u64::from(row.body != body(table, row.writer, row.number));
            }
        }
        for (writer, (attempted, acknowledged)) in self.attempted.iter().zip(&self.acknowledged).enumerate() {
            let writer = writer as u32;
            let (attempted, acknowledged) = (attempted.load(Ordering::Acquire), acknowledged.load(Ordering::Acquire));
            let of_writer = there.range((writer, 0)..=(writer, u64::MAX));
            let mut newest = 0;
            let mut whole = 0;
            for ((_, number), times) in of_writer {
                verdict.half += u64::from(*times != [1, 1]);
                verdict.foreign += u64::from(*number == 0 || *number > attempted);
                whole += u64::from(*times == [1, 1] && *number <= acknowledged);
                newest = newest.max(*number);
            }
            verdict.lost += acknowledged - whole;
            let last = contents.last.iter().find(|(of, _)| *of == writer).map_or(0, |(_, number)| *number);
            verdict.half += u64::from(last != newest);
        }
        let strangers = there.keys().filter(|(writer, _)| *writer as usize >= self.attempted.len()).count();
        verdict.foreign += strangers as u64;
        verdict
    }

    /// Goes on from what is there: a commit whose outcome wasn't known now has one.
    pub fn go_on(&self, contents: &Contents) {
        for (writer, (attempted, acknowledged)) in self.attempted.iter().zip(&self.acknowledged).enumerate() {
            let newest =
                contents.tables[0].iter().filter(|row| row.writer == writer as u32).map(|row| row.number).max();
            attempted.store(newest.unwrap_or(0), Ordering::Release);
            acknowledged.store(newest.unwrap_or(0), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(numbers: &[u64]) -> Contents {
        let rows = |table: usize| {
            numbers.iter().map(|n| Row { writer: 0, number: *n, body: body(table, 0, *n) }).collect::<Vec<_>>()
        };
        Contents { tables: [rows(0), rows(1)], last: vec![(0, numbers.iter().copied().max().unwrap_or(0))] }
    }

    fn ledger(acknowledged: u64, attempted: u64) -> Ledger {
        let ledger = Ledger::new(1);
        ledger.acknowledged[0].store(acknowledged, Ordering::Release);
        ledger.attempted[0].store(attempted, Ordering::Release);
        ledger
    }

    #[test]
    fn a_commit_whose_outcome_is_unknown_may_be_there_or_not() {
        assert!(ledger(2, 3).judge(&contents(&[1, 2])).holds());
        assert!(ledger(2, 3).judge(&contents(&[1, 2, 3])).holds());
    }

    #[test]
    fn what_is_lost_half_there_or_foreign_is_counted() {
        let ledger = ledger(3, 4);
        assert_eq!(ledger.judge(&contents(&[1, 3])).lost, 1);
        assert_eq!(ledger.judge(&contents(&[])).lost, 3);
        assert_eq!(ledger.judge(&contents(&[1, 2, 3, 4, 5])).foreign, 1);
        let mut torn = contents(&[1, 2, 3, 4]);
        torn.tables[1].pop();
        assert_eq!(ledger.judge(&torn), Verdict { acknowledged: 3, half: 1, ..Verdict::default() });
        let mut changed = contents(&[1, 2, 3]);
        changed.tables[0][1].body.push('0');
        assert_eq!(ledger.judge(&changed).half, 1);
        let mut behind = contents(&[1, 2, 3]);
        behind.last[0].1 = 2;
        assert_eq!(ledger.judge(&behind).half, 1);
        let mut twice = contents(&[1, 2, 3]);
        let row = twice.tables[0][0].clone();
        twice.tables[0].push(row);
        assert!(!ledger.judge(&twice).holds());
    }
}
