//! TPC-C (revision 5.11): five transactions over nine tables.
//!
//! Row sizes are those of clause 1.2.1; what each transaction writes is in clauses 2.4 to 2.8. The log holds the new
//! image of each row that was inserted or updated, in full, and a record without an image for each deleted one, as
//! ERMIA's does. A transaction that rolls back leaves nothing: a redo-only log gets its records at commit.
//!
//! | transaction | share | rows written | row bytes |
//! |---|---|---|---|
//! | New-Order | 45 % | district, order, new-order; of 5 to 15 lines: stock, order-line | 127 + 360 for each line |
//! | Payment | 43 % | warehouse, district, customer, history | 885 |
//! | Order-Status | 4 % | none | 0 |
//! | Delivery | 4 % | in 10 districts: new-order (deleted), order, 5 to 15 order-lines, customer | 6,790 + 54 a line |
//! | Stock-Level | 4 % | none | 0 |

use super::write::{Kind, RecordFormat};
use tidewater_base::Rng;

/// Clause 5.2.3: at least 43 % Payment and 4 % of each of the last three; New-Order is the rest.
pub(super) const KINDS: [Kind; 5] = [
    Kind { name: "new-order", share: 0.45 },
    Kind { name: "payment", share: 0.43 },
    Kind { name: "order-status", share: 0.04 },
    Kind { name: "delivery", share: 0.04 },
    Kind { name: "stock-level", share: 0.04 },
];

/// Typical row lengths in bytes, clause 1.2.1.
mod row {
    pub const WAREHOUSE: u64 = 89;
    pub const DISTRICT: u64 = 95;
    pub const CUSTOMER: u64 = 655;
    pub const HISTORY: u64 = 46;
    pub const ORDER: u64 = 24;
    pub const NEW_ORDER: u64 = 8;
    pub const ORDER_LINE: u64 = 54;
    pub const STOCK: u64 = 306;
}

/// Districts of a warehouse, clause 1.2.1.
const DISTRICTS: u64 = 10;

/// The TPC-C mix.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Tpcc {
    /// Headers of log records.
    pub format: RecordFormat,
}

/// Lines of an order: uniform in 5 to 15 (clause 2.4.1.3).
fn lines(rng: &mut Rng) -> u64 {
    5 + rng.below(11)
}

impl Tpcc {
    pub(super) fn draw(&self, kind: usize, rng: &mut Rng) -> u64 {
        match kind {
            0 => {
                let lines = lines(rng);
                // One in a hundred names an unused item and rolls back (clause 2.4.1.4).
                if rng.below(100) == 0 { 0 } else { self.new_order(lines) }
            }
            1 => self.payment(),
            3 => self.delivery((0..DISTRICTS).map(|_| lines(rng)).sum()),
            _ => 0,
        }
    }

    /// Bytes of a New-Order of some lines.
    pub fn new_order(&self, lines: u64) -> u64 {
        let rows = row::DISTRICT + row::ORDER + row::NEW_ORDER + lines * (row::STOCK + row::ORDER_LINE);
        self.format.transaction(3 + 2 * lines, rows)
    }

    /// Bytes of a Payment.
    pub fn payment(&self) -> u64 {
        self.format.transaction(4, row::WAREHOUSE + row::DISTRICT + row::CUSTOMER + row::HISTORY)
    }

    /// Bytes of a Delivery of one order for each district, with some lines in all.
    pub fn delivery(&self, lines: u64) -> u64 {
        let rows = DISTRICTS * (row::ORDER + row::CUSTOMER) + lines * row::ORDER_LINE;
        self.format.transaction(3 * DISTRICTS + lines, rows)
    }

    /// Bytes of a transaction on average: everything is linear in the lines, of which there are 10 on average.
    pub fn mean_bytes(&self) -> f64 {
        0.45 * 0.99 * self.new_order(10) as f64 + 0.43 * self.payment() as f64 + 0.04 * self.delivery(100) as f64
    }
}
