//! LinkBench: Facebook's social graph (Armstrong et al., SIGMOD 2013).
//!
//! The mix of operations and the medians of the payloads are those of the benchmark's `FBWorkload.properties`; payloads
//! are log-normal with a sigma of 1, clamped to what the columns hold, as its generator draws them. Rows are those of
//! its MySQL schema. The log holds the new image of each row that was inserted or updated, in full; adding or deleting
//! a link also updates its count row. A deleted link is a row that is marked hidden, a deleted node a record without an
//! image.

use super::write::{Kind, RecordFormat};
use tidewater_base::Rng;

pub(super) const KINDS: [Kind; 10] = [
    Kind { name: "add-link", share: 0.089886601 },
    Kind { name: "delete-link", share: 0.029907664 },
    Kind { name: "update-link", share: 0.080122125 },
    Kind { name: "count-links", share: 0.048863567 },
    Kind { name: "get-link", share: 0.005261142 },
    Kind { name: "get-link-list", share: 0.507119145 },
    Kind { name: "get-node", share: 0.129326683 },
    Kind { name: "add-node", share: 0.025732789 },
    Kind { name: "update-node", share: 0.07366437 },
    Kind { name: "delete-node", share: 0.010115914 },
];

/// id1, id2, link_type (8 bytes each), visibility (1), time (8), version (4).
const LINK_ROW: u64 = 37;
/// id, link_type (8 each), count (4), time, version (8 each).
const COUNT_ROW: u64 = 36;
/// id (8), type (4), version (8), time (4).
const NODE_ROW: u64 = 24;
/// Bytes that the data column of a link holds.
const LINK_DATA_MAX: f64 = 255.0;
/// Bytes that the generator gives a node at most.
const NODE_DATA_MAX: f64 = 1_048_576.0;

/// The LinkBench mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkBench {
    /// Headers of log records.
    pub format: RecordFormat,
    /// Median bytes of a link's data. Default 8 (`link_datasize`).
    pub link_data_median: u32,
    /// Median bytes of a node's data. Default 128 (`node_datasize`).
    pub node_data_median: u32,
}

impl Default for LinkBench {
    fn default() -> LinkBench {
        LinkBench { format: RecordFormat::default(), link_data_median: 8, node_data_median: 128 }
    }
}

/// A log-normal number with a sigma of 1, by Box and Muller's transform.
fn payload(median: u32, max: f64, rng: &mut Rng) -> u64 {
    let radius = (-2.0 * (1.0 - rng.unit_f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.unit_f64()).cos();
    (f64::from(median) * normal.exp()).round().min(max) as u64
}

impl LinkBench {
    pub(super) fn draw(&self, kind: usize, rng: &mut Rng) -> u64 {
        let link = |rng: &mut Rng| LINK_ROW + payload(self.link_data_median, LINK_DATA_MAX, rng);
        let node = |rng: &mut Rng| NODE_ROW + payload(self.node_data_median, NODE_DATA_MAX, rng);
        match kind {
            0 | 1 => self.format.transaction(2, link(rng) + COUNT_ROW),
            2 => self.format.transaction(1, link(rng)),
            7 | 8 => self.format.transaction(1, node(rng)),
            9 => self.format.transaction(1, 0),
            _ => 0,
        }
    }
}
