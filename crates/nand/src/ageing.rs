//! Bit errors beside those of wear: reads of the block since its erase, and time since a page was programmed.

use crate::Config;
use tidewater_base::Instant;

const DAY_SECONDS: f64 = 86_400.0;

/// The past of each block and page, as far as the two causes need it: kept where the configuration has one of them.
///
/// Each adds to the raw bit error rate of wear, as powers of its cause and of the erase count: Kim, Choi and Min,
/// *Design tradeoffs for SSD reliability*, FAST 2019.
#[derive(Clone, Debug)]
pub(crate) struct Ageing {
    disturb: [f64; 3],
    retention: [f64; 3],
    pub(crate) now: Instant,
    /// Page reads of each block since its erase.
    reads: Vec<u32>,
    /// When each page was programmed, by block; empty for a block that never was.
    programmed: Vec<Box<[Instant]>>,
}

impl Ageing {
    /// For so many blocks; `None` where neither cause has an effect.
    pub(crate) fn new(config: &Config, blocks: usize) -> Option<Box<Ageing>> {
        let &Config { rber_disturb: disturb, rber_retention: retention, .. } = config;
        (disturb[0] > 0.0 || retention[0] > 0.0).then(|| {
            let (reads, programmed) = (vec![0; blocks], vec![Box::default(); blocks]);
            Box::new(Ageing { disturb, retention, now: Instant::default(), reads, programmed })
        })
    }

    pub(crate) fn on_program(&mut self, block: usize, page: u32, pages: u32) {
        if self.retention[0] == 0.0 {
            return;
        }
        let times = &mut self.programmed[block];
        if times.is_empty() {
            *times = vec![self.now; pages as usize].into_boxed_slice();
        }
        times[page as usize] = self.now;
    }

    pub(crate) fn on_erase(&mut self, block: usize) {
        self.reads[block] = 0;
    }

    /// A page is read: the raw bit error rate that the reads before it and its age add.
    pub(crate) fn on_read(&mut self, block: usize, page: u32, erases: u32) -> f64 {
        let rate = |[rate, wear, cause]: [f64; 3], x: f64| rate * f64::from(erases).powf(wear) * x.powf(cause);
        let programmed = self.programmed[block].get(page as usize).copied().unwrap_or(self.now);
        let reads = self.reads[block];
        self.reads[block] = reads.saturating_add(1);
        rate(self.disturb, reads.into()) + rate(self.retention, self.now.since(programmed).as_secs_f64() / DAY_SECONDS)
    }
}
