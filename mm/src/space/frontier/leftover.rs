//! The *rest* of a walker (a CPU that empties a dying address space): the tables that the walker
//! has claimed and not begun. Other walkers may take tables from a rest.
//!
//! A rest is one word: the range of tables, and the other fields of the claim. Any walker,
//! including the walker whose rest it is, takes a table by shrinking the range in one atomic step.
//! So no table is taken twice. A walker cannot tell whether the word has changed and changed back
//! since it read the word. That does no harm, because equal words mean equal claims.

use core::sync::atomic::Ordering::Relaxed;

use super::state::{AT_WORK_MAX, AT_WORK_SHIFT, END_BITS, END_MASK, EXITING};
use super::{Claim, End};
use crate::machine::{Machine, Word};

/// A word that can store one rest: the page tables that a walker has claimed and not begun. Any
/// walker can take these tables, one at a time.
pub(super) struct Leftover<M: Machine>(M::Word);

/// The value of the word if no claimed page tables are stored here.
const NONE: i64 = 0;

// All accesses are relaxed: the word holds everything about the claim. The lock of a table orders
// the work on that table, and the atomic step of `Frontier::leave` makes the work visible to the
// CPU that finishes the address space.
impl<M: Machine> Leftover<M> {
    /// Makes an empty place, which holds no claimed page tables.
    pub(super) fn none(machine: &M) -> Self {
        Self(machine.word(NONE))
    }

    /// Stores `claim`, a range of claimed page tables, unless claimed tables are stored here
    /// already. Returns whether `claim` was stored.
    pub(super) fn put(&self, machine: &M, claim: &Claim) -> bool {
        if self.0.load(machine, Relaxed) != NONE {
            return false;
        }
        let put = self
            .0
            .compare_exchange(machine, NONE, encode(claim), Relaxed);
        put.is_ok()
    }

    /// Removes one existing page table from the claimed tables that this word records: the one that
    /// is nearest to `end`. Also removes the indices without a table between `end` and that table.
    /// Returns a claim of the removed tables, and whether this word still records tables.
    pub(super) fn take(
        &self,
        machine: &M,
        end: End,
        beyond: impl Fn(u64) -> Option<u64>,
    ) -> Option<(Claim, bool)> {
        let mut word = self.0.load(machine, Relaxed);
        loop {
            let mut rest = decode(word)?;
            let claim = rest.take_first(end, &beyond);
            match self
                .0
                .compare_exchange(machine, word, encode(&rest), Relaxed)
            {
                Ok(_) => return Some((claim, !rest.tables.is_empty())),
                Err(others) => word = others,
            }
        }
    }

    /// Returns the claimed page tables that this word still holds, or `None` if it holds none.
    pub(super) fn left(&self, machine: &M) -> Option<Claim> {
        decode(self.0.load(machine, Relaxed))
    }
}

/// Encodes a claim, which is a range of page tables, in one word. Each field has the same bits as
/// in the encoding of `State` (`state.rs`).
fn encode(claim: &Claim) -> i64 {
    if claim.tables.is_empty() {
        return NONE;
    }
    let ends = claim.tables.start | claim.tables.end << END_BITS;
    let exiting = if claim.exiting { EXITING } else { 0 };
    (ends | claim.at_work << AT_WORK_SHIFT | exiting).cast_signed()
}

fn decode(word: i64) -> Option<Claim> {
    let bits = word.cast_unsigned();
    (word != NONE).then_some(Claim {
        tables: bits & END_MASK..bits >> END_BITS & END_MASK,
        exiting: bits & EXITING != 0,
        at_work: bits >> AT_WORK_SHIFT & AT_WORK_MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_survives_its_bits() {
        for tables in [0..1, 3..END_MASK, 7..8] {
            for (at_work, exiting) in [(1, true), (127, false)] {
                let claim = Claim {
                    tables: tables.clone(),
                    exiting,
                    at_work,
                };
                assert_eq!(decode(encode(&claim)), Some(claim));
            }
        }
        assert_eq!(decode(NONE), None);
    }
}
