//! Page tables of a dying address space that a CPU has claimed, could not empty, and handed back.
//! Other CPUs can claim these tables later.
//!
//! The list has a fixed length, because emptying an address space must not depend on free memory.
//! If the list is full, further tables are left to the CPU that leaves the address space last,
//! which checks all tables. A run of neighbouring tables takes one element of the list.

use core::ops::Range;

/// The largest number of runs of neighbouring page tables that the list keeps.
const RUNS: usize = 16;

/// Runs of page tables that a CPU had claimed and handed back. Iterating removes them, first in,
/// first out.
#[derive(Default)]
pub(crate) struct LeftOver {
    runs: [Range<u64>; RUNS],
    len: usize,
}

impl LeftOver {
    /// Adds a range of page tables. Joins it to the range that was added last if the two are
    /// adjacent. If the list is full, the tables are not recorded.
    pub(super) fn add(&mut self, tables: Range<u64>) {
        let runs = &mut self.runs[..self.len];
        if let Some(last) = runs.last_mut() {
            if last.end == tables.start {
                last.end = tables.end;
                return;
            }
            if tables.end == last.start {
                last.start = tables.start;
                return;
            }
        }
        if let Some(free) = self.runs.get_mut(self.len) {
            *free = tables;
            self.len += 1;
        }
    }
}

impl Iterator for LeftOver {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let first = self.runs[..self.len].first().cloned()?;
        self.runs[..self.len].rotate_left(1);
        self.len -= 1;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_and_what_does_not_fit_is_dropped() {
        let mut left = LeftOver::default();
        left.add(10..11);
        left.add(11..14);
        left.add(9..10);
        (1..20).for_each(|nth| left.add(100 * nth..100 * nth + 1));
        assert_eq!(left.next(), Some(9..14));
        assert_eq!(left.next(), Some(100..101));
        assert_eq!(left.last(), Some(1500..1501));
    }
}
