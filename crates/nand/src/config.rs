//! Geometry and timing of a flash array. The profile's `[nand]` section fills it.

use tidewater_base::Duration;

/// How many bits a cell stores, and so how many kinds of page share a word line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// One bit: every page is alike.
    Slc,
    /// Two bits: lower and upper pages alternate.
    Mlc,
    /// Three bits: lower, middle and upper pages alternate.
    Tlc,
}

impl Cell {
    /// The number of page kinds, 1 to 3. Page `p` of a block is of kind `p % kinds`.
    pub const fn page_kinds(self) -> usize {
        match self {
            Cell::Slc => 1,
            Cell::Mlc => 2,
            Cell::Tlc => 3,
        }
    }
}

/// A flash array: geometry, timing and reliability.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Channels (buses between controller and packages), 1 to 64.
    pub channels: u32,
    /// Packages (chip enables) on a channel, 1 to 64.
    pub ways: u32,
    /// Dies in a package, 1 to 16. Each die works on its own.
    pub dies_per_way: u32,
    /// Planes in a die, 1 to 8.
    pub planes: u32,
    /// Blocks in a plane, spares included. 0: derived from the drive's capacity.
    pub blocks_per_plane: u32,
    /// Pages in a block, 1 to 65,534.
    pub pages_per_block: u32,
    /// Data bytes in a page, without the out-of-band area.
    pub page_size: u32,
    /// Bytes of the out-of-band area of a page: stamps, map entry, ECC parity. They cross the bus with the page.
    pub oob_size: u32,
    /// Bits per cell.
    pub cell: Cell,
    /// Time from array to page register, by page kind (lower, middle, upper); kinds the cell lacks are ignored.
    pub read_time: [Duration; 3],
    /// Time from page register to array, by page kind.
    pub program_time: [Duration; 3],
    /// Time to erase a block (or one block in each plane together).
    pub erase_time: Duration,
    /// Bus bandwidth of a channel in bytes per second.
    pub bus_rate: u64,
    /// Command and address cycles before an operation starts.
    pub command_time: Duration,
    /// Multi-plane commands: the same page of every plane in one array operation.
    pub multi_plane: bool,
    /// Cache commands: a second register lets the bus work while the array does.
    pub cache: bool,
    /// Erase cycles a block is specified for.
    pub endurance: u32,
    /// Share of blocks that are bad from the factory, 0 to 0.2.
    pub factory_bad_rate: f64,
    /// Probability that one page program fails and its block turns bad, 0 to 1.
    pub program_fail_rate: f64,
    /// Probability that one erase fails and its block turns bad, 0 to 1.
    pub erase_fail_rate: f64,
    /// Raw bit error rate of a block that was never erased.
    pub rber_fresh: f64,
    /// Raw bit error rate of a block at its endurance; between the two it grows exponentially, and goes on growing.
    pub rber_worn: f64,
    /// Read disturb: a rate and two powers. Adds rate x erases^power x reads^power to the raw bit error rate of a page,
    /// for the erases of its block and the page reads of its block since the last one. Rate 0: none.
    pub rber_disturb: [f64; 3],
    /// Retention: a rate and two powers. Adds rate x erases^power x days^power to the raw bit error rate of a page, for
    /// the erases of its block and the days since it was programmed. Rate 0: none.
    pub rber_retention: [f64; 3],
    /// Data bytes that one ECC code word covers.
    pub ecc_codeword: u32,
    /// Bit errors that ECC corrects in one code word.
    pub ecc_bits: u32,
    /// Read retries (shifted read voltages) before a page is given up as uncorrectable.
    pub read_retries: u32,
    /// Factor by which each retry lowers the raw bit error rate, 0 to 1.
    pub retry_gain: f64,
}

impl Config {
    /// Dies on one channel.
    pub fn dies_per_channel(&self) -> u32 {
        self.ways * self.dies_per_way
    }

    /// Dies in the array.
    pub fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel()
    }
}
