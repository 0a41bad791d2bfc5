//! Where those who empty a dying address space meet: who does what, and who does the rest.
//!
//! ```text
//!   0 ── done by the last user ──> low ········ nobody's yet ········ high <── done by helpers ── all
//! ```
//!
//! One word holds both ends, how many are at work, and whether the last user is among them or was. A
//! table is claimed by moving an end over it, in one step, so no table has two owners; whoever has
//! claimed one works alone on it. Who leaves last after the last user has come does what is left to be
//! done (`exit::finish`), in one step with leaving, so exactly one does.
//!
//! Tables that a helper had to leave (somebody refused) are handed back on a list; those who come
//! later take them, and whoever finishes looks at every table anyway.
//!
//! Locks: `LeftOver`, with nothing inside.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::page_table::TABLES;
use crate::machine::{Lock, Machine, Word};
use crate::site::{LockClass, Site};

/// See the file's header.
pub(crate) struct Frontier<M: Machine> {
    word: M::Word,
    left_over: M::Lock<Vec<u64>>,
}

/// What the word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Tables below are claimed.
    low: u64,
    /// Tables from here on are claimed.
    high: u64,
    /// Who are at work, the last user included.
    at_work: u64,
    /// Whether the last user has come.
    exiting: bool,
    /// Whether somebody was told to finish.
    finishing: bool,
}

/// What whoever leaves has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Left {
    /// Nothing: others are at work, or the last user has not come yet.
    Nothing,
    /// All the rest: nobody else is there or will come.
    Finish,
}

const END_BITS: u32 = 27;
const END_MASK: u64 = (1 << END_BITS) - 1;
const AT_WORK_SHIFT: u32 = 2 * END_BITS;
const AT_WORK_MASK: u64 = 0xff;
const EXITING: u64 = 1 << 62;
const FINISHING: u64 = 1 << 63;

const _: () = assert!(
    TABLES <= END_MASK,
    "an end is in front of or behind any table"
);

impl State {
    const fn decode(word: i64) -> Self {
        let word = word.cast_unsigned();
        Self {
            low: word & END_MASK,
            high: word >> END_BITS & END_MASK,
            at_work: word >> AT_WORK_SHIFT & AT_WORK_MASK,
            exiting: word & EXITING != 0,
            finishing: word & FINISHING != 0,
        }
    }

    const fn encode(self) -> i64 {
        let ends = self.low | self.high << END_BITS | self.at_work << AT_WORK_SHIFT;
        let exiting = if self.exiting { EXITING } else { 0 };
        let finishing = if self.finishing { FINISHING } else { 0 };
        (ends | exiting | finishing).cast_signed()
    }
}

impl<M: Machine> Frontier<M> {
    /// Nothing claimed, nobody at work.
    pub(crate) fn new(machine: &M) -> Self {
        let state = State {
            low: 0,
            high: TABLES,
            at_work: 0,
            exiting: false,
            finishing: false,
        };
        let here = machine.this_cpu();
        Self {
            word: machine.word(state.encode()),
            left_over: machine.lock(LockClass::LeftOver, here, Vec::new()),
        }
    }

    /// A helper begins; `false` if it is too late, or too many are at work.
    pub(crate) fn join(&self, machine: &M) -> bool {
        // One place is kept for the last user.
        self.change(machine, |state| {
            let may = !state.finishing && state.at_work < AT_WORK_MASK - 1;
            may.then_some(State {
                at_work: state.at_work + 1,
                ..state
            })
        })
        .is_some()
    }

    /// The last user begins.
    pub(crate) fn join_last_user(&self, machine: &M) {
        let joined = self.change(machine, |state| {
            Some(State {
                at_work: state.at_work + 1,
                exiting: true,
                ..state
            })
        });
        debug_assert!(joined.is_some(), "nothing is in the way of the last user");
    }

    /// Claims the lowest table that is nobody's and that `next` finds, given where to look from.
    pub(crate) fn claim_low(&self, machine: &M, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let claimed = self.change(machine, |state| {
            let table = next(state.low).filter(|&table| table < state.high)?;
            let low = table + 1;
            Some(State { low, ..state })
        })?;
        Some(claimed.low - 1)
    }

    /// Claims the highest table that is nobody's and that `prev` finds below where it is told.
    pub(crate) fn claim_high(&self, machine: &M, prev: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let claimed = self.change(machine, |state| {
            let high = prev(state.high).filter(|&table| table >= state.low)?;
            Some(State { high, ..state })
        })?;
        Some(claimed.high)
    }

    /// Whoever was at work leaves, with no claim left.
    pub(crate) fn leave(&self, machine: &M) -> Left {
        let left = self.change(machine, |state| {
            let at_work = state.at_work - 1;
            Some(State {
                at_work,
                finishing: state.finishing || state.exiting && at_work == 0,
                ..state
            })
        });
        match left {
            Some(state) if state.finishing => Left::Finish,
            _ => Left::Nothing,
        }
    }

    /// Hands a claimed table back. Without memory for the list it is left to whoever finishes.
    pub(crate) fn hand_back(&self, machine: &M, site: Site, table: u64) {
        self.left_over.with(machine, site, |left_over| {
            if left_over.try_reserve(1).is_ok() {
                left_over.push(table);
            }
        });
    }

    /// Claims all tables that were handed back.
    pub(crate) fn take_back(&self, machine: &M, site: Site) -> Vec<u64> {
        self.left_over.with(machine, site, core::mem::take)
    }

    /// Moves on in one step, if `to` wants to; returns where to.
    fn change(&self, machine: &M, to: impl Fn(State) -> Option<State>) -> Option<State> {
        // Acquire here and AcqRel below pair with each other: what was done before a step is seen by
        // whoever comes later, above all by who finishes.
        let mut word = self.word.load(machine, Acquire);
        loop {
            let state = to(State::decode(word))?;
            match self
                .word
                .compare_exchange(machine, word, state.encode(), AcqRel)
            {
                Ok(_) => return Some(state),
                Err(others) => word = others,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_bits() {
        for (low, high, at_work) in [(0, TABLES, 0), (TABLES, TABLES, 255), (7, 0, 1)] {
            for (exiting, finishing) in [(false, false), (true, false), (true, true)] {
                let state = State {
                    low,
                    high,
                    at_work,
                    exiting,
                    finishing,
                };
                assert_eq!(State::decode(state.encode()), state);
            }
        }
    }
}
