//! What somebody has claimed and not begun, where others may take it.
//!
//! One word: from which table up to which, and what else the claim says. A table is taken by making
//! it smaller, in one step, by whoever has put it there as by anybody else; so no table is taken
//! twice. A word that is the same again says the same again, so it does not matter what it was in
//! between.

use core::sync::atomic::Ordering::Relaxed;

use super::state::{AT_WORK_MAX, AT_WORK_SHIFT, END_BITS, END_MASK, EXITING};
use super::{Claim, End};
use crate::machine::{Machine, Word};

/// See the file's header.
pub(super) struct Rest<M: Machine>(M::Word);

/// No table.
const NONE: i64 = 0;

// Relaxed throughout: the word says all there is to know about the claim, and what was done to a table
// is ordered by its lock, and for who finishes by leaving.
impl<M: Machine> Rest<M> {
    /// Nothing to take.
    pub(super) fn none(machine: &M) -> Self {
        Self(machine.word(NONE))
    }

    /// Puts `claim` here, unless there is something already.
    pub(super) fn put(&self, machine: &M, claim: &Claim) -> bool {
        if self.0.load(machine, Relaxed) != NONE {
            return false;
        }
        let put = self
            .0
            .compare_exchange(machine, NONE, encode(claim), Relaxed);
        put.is_ok()
    }

    /// Takes one table that was made, at an `end`, with what lies before it; and whether there is more.
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

    /// What is here.
    pub(super) fn left(&self, machine: &M) -> Option<Claim> {
        decode(self.0.load(machine, Relaxed))
    }
}

/// In the bits of the frontier's word.
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
