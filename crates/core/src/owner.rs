//! Which part of the firmware a flash operation, or a unit of a row, belongs to.
//!
//! Packed into 32 bits here and nowhere else. The device matches an owner in one place, `device/route.rs`, so that the
//! compiler asks what a new one gets.

/// The part of the firmware that waits for a flash operation, or for a unit to be programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// None: the operation concerns the translation layer alone.
    None,
    /// The command in this slot.
    Command(u16),
    /// Padding of the write buffer: pages that leave it beside dirty ones of their block.
    Padding,
    /// Read-ahead, by its place among the reads under way.
    Ahead(u8),
    /// A page of a function's log.
    Log {
        /// The function, below 16.
        function: u8,
        /// The low 26 bits of the page's number.
        number: u32,
    },
    /// A Read Log command, by its place among those that wait.
    LogRead(u32),
    /// An entry of the byte window, by its place in the table.
    Window(u8),
    /// The restore of the byte window's dump.
    WindowRestore,
    /// A page of the byte window's emergency dump.
    Dump,
}

/// Bits of a log page's number that an owner keeps.
pub const LOG_NUMBER_BITS: u32 = 26;

const NONE: u32 = u32::MAX;
const LOG: u32 = 1 << 31;
const LOG_READ: u32 = LOG | 1 << 30;
const WINDOW: u32 = 1 << 29;
const WINDOW_RESTORE: u32 = WINDOW | 1 << 8;
const DUMP: u32 = 1 << 28;
const READ_AHEAD: u32 = 1 << 27;
const PADDING: u32 = 1 << 16;

impl Owner {
    /// The page of a function's log with this number.
    pub fn log_page(function: usize, number: u64) -> Owner {
        Owner::Log { function: function as u8, number: number as u32 & ((1 << LOG_NUMBER_BITS) - 1) }
    }

    /// The owner as 32 bits.
    #[inline(always)]
    pub fn pack(self) -> u32 {
        match self {
            Owner::None => NONE,
            Owner::Command(slot) => slot.into(),
            Owner::Padding => PADDING,
            Owner::Ahead(place) => READ_AHEAD | u32::from(place),
            Owner::Log { function, number } => LOG | u32::from(function) << LOG_NUMBER_BITS | number,
            Owner::LogRead(place) => LOG_READ | place,
            Owner::Window(place) => WINDOW | u32::from(place),
            Owner::WindowRestore => WINDOW_RESTORE,
            Owner::Dump => DUMP,
        }
    }

    /// The owner that these bits stand for.
    // Always inlined: commands, which most operations are for, are found by one comparison.
    #[inline(always)]
    pub fn unpack(bits: u32) -> Owner {
        if bits < PADDING { Owner::Command(bits as u16) } else { Owner::unpack_rare(bits) }
    }

    #[inline]
    fn unpack_rare(bits: u32) -> Owner {
        match bits {
            NONE => Owner::None,
            LOG_READ.. => Owner::LogRead(bits & !LOG_READ),
            LOG.. => Owner::Log {
                function: (bits >> LOG_NUMBER_BITS & 0xf) as u8,
                number: bits & ((1 << LOG_NUMBER_BITS) - 1),
            },
            WINDOW_RESTORE => Owner::WindowRestore,
            WINDOW.. => Owner::Window(bits as u8),
            DUMP => Owner::Dump,
            READ_AHEAD.. => Owner::Ahead(bits as u8),
            _ => Owner::Padding,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_comes_back_from_its_bits() {
        let numbers = [0, 1, 77, (1 << LOG_NUMBER_BITS) - 1];
        let logs = (0..16).flat_map(|function| numbers.map(|number| Owner::Log { function, number }));
        let commands = [0, 1, 0x1234, u16::MAX].map(Owner::Command);
        let reads = [0, 1, 4_095].map(Owner::LogRead);
        let entries = [0, 1, u8::MAX].into_iter().flat_map(|place| [Owner::Window(place), Owner::Ahead(place)]);
        let rest = [Owner::None, Owner::Padding, Owner::WindowRestore, Owner::Dump];
        let all: Vec<_> = logs.chain(commands).chain(reads).chain(entries).chain(rest).collect();
        let bits: std::collections::BTreeSet<_> = all.iter().map(|owner| owner.pack()).collect();
        assert_eq!(bits.len(), all.len(), "no two are packed alike");
        all.iter().for_each(|&owner| assert_eq!(Owner::unpack(owner.pack()), owner));
    }
}
