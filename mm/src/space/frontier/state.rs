//! The state of a frontier, at which the walkers (CPUs that empty a dying address space) meet, and
//! its encoding in one word.

use crate::space::page_table::TABLES;

/// The state of a frontier: which page tables of a dying address space are claimed, and how many
/// CPUs empty the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The low end of the unclaimed page tables: all tables with lower indices are claimed.
    pub(super) low: u64,
    /// The high end of the unclaimed page tables: the table with this index and all above it are
    /// claimed.
    pub(super) high: u64,
    /// The number of CPUs that empty the address space, including that of the exiting thread.
    pub(super) at_work: u64,
    /// True if a CPU has ever claimed more than one page table at a time. Only then can there be
    /// rests, which are tables that were claimed and not begun.
    pub(super) rested: bool,
    /// True if the exiting thread has begun to empty the address space.
    pub(super) exiting: bool,
    /// True if a CPU was chosen to finish the address space: to free its page tables and mappings.
    pub(super) finishing: bool,
}

pub(super) const END_BITS: u32 = 27;
pub(super) const END_MASK: u64 = (1 << END_BITS) - 1;
pub(super) const AT_WORK_SHIFT: u32 = 2 * END_BITS;
pub(super) const AT_WORK_MAX: u64 = 0x7f;
const RESTED: u64 = 1 << 61;
pub(super) const EXITING: u64 = 1 << 62;
const FINISHING: u64 = 1 << 63;

const _: () = assert!(
    TABLES <= END_MASK,
    "an end is in front of or behind any table"
);

impl State {
    pub(super) const fn decode(word: i64) -> Self {
        let word = word.cast_unsigned();
        Self {
            low: word & END_MASK,
            high: word >> END_BITS & END_MASK,
            at_work: word >> AT_WORK_SHIFT & AT_WORK_MAX,
            rested: word & RESTED != 0,
            exiting: word & EXITING != 0,
            finishing: word & FINISHING != 0,
        }
    }

    pub(super) fn encode(self) -> i64 {
        let ends = self.low | self.high << END_BITS | self.at_work << AT_WORK_SHIFT;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let rested = flag(self.rested, RESTED);
        let exiting = flag(self.exiting, EXITING);
        let finishing = flag(self.finishing, FINISHING);
        (ends | rested | exiting | finishing).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_bits() {
        for (low, high, at_work) in [(0, TABLES, 0), (TABLES, TABLES, 127), (7, 0, 1)] {
            for (rested, exiting, finishing) in [
                (false, false, false),
                (true, false, false),
                (false, true, false),
                (true, true, true),
            ] {
                let state = State {
                    low,
                    high,
                    at_work,
                    rested,
                    exiting,
                    finishing,
                };
                assert_eq!(State::decode(state.encode()), state);
            }
        }
    }
}
