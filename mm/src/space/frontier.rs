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
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::page_table::TABLES;
use crate::machine::{Field, Lock, Machine, Word};
use crate::site::{LockClass, Site};

/// See the file's header.
pub(crate) struct Frontier<M: Machine> {
    word: M::Word,
    /// Tables from here on were claimed before the last user came. It writes it; who finishes reads
    /// it, ordered by the word.
    claimed_before: M::Field,
    left_over: M::Lock<Vec<u64>>,
}

/// What somebody has claimed: all tables of a range, of which one at most was ever made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The one that was made.
    pub(crate) table: Option<u64>,
    pub(crate) range: Range<u64>,
    /// Whether the last user has come, so that nothing there will be used again.
    pub(crate) exiting: bool,
    /// Whether nobody else is at work.
    pub(crate) alone: bool,
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

/// Why a helper is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    /// Somebody finishes, or has finished.
    TooLate,
    /// As many as can be counted are at work.
    TooMany,
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
            claimed_before: machine.field(TABLES),
            left_over: machine.lock(LockClass::LeftOver, here, Vec::new()),
        }
    }

    /// A helper begins.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn join(&self, machine: &M) -> Result<(), NotJoined> {
        let refusal = |state: State| {
            if state.finishing {
                Some(NotJoined::TooLate)
            } else if state.at_work >= AT_WORK_MASK - 1 {
                // One place is kept for the last user.
                Some(NotJoined::TooMany)
            } else {
                None
            }
        };
        let joined = self.change(machine, |state| {
            let at_work = state.at_work + 1;
            let after = State { at_work, ..state };
            Some(refusal(state).map_or((after, Ok(())), |refusal| (state, Err(refusal))))
        });
        joined.map_or(Ok(()), |(_, outcome)| outcome)
    }

    /// The last user begins.
    pub(crate) fn join_last_user(&self, machine: &M) {
        let joined = self.change(machine, |state| {
            let after = State {
                at_work: state.at_work + 1,
                exiting: true,
                ..state
            };
            Some((after, ()))
        });
        if let Some((state, ())) = joined {
            self.claimed_before.set(state.high);
        }
    }

    /// Claims everything up to the lowest table that was made, which `next` finds, given where to
    /// look from. `None` when nothing is left to claim.
    pub(crate) fn claim_low(
        &self,
        machine: &M,
        next: impl Fn(u64) -> Option<u64>,
    ) -> Option<Claim> {
        self.claim(machine, |state| {
            let table = next(state.low).filter(|&table| table < state.high);
            let low = table.map_or(state.high, |table| table + 1);
            (table, state.low..low, State { low, ..state })
        })
    }

    /// Claims everything down to the highest table that was made, which `prev` finds below where it
    /// is told. `None` when nothing is left to claim.
    pub(crate) fn claim_high(
        &self,
        machine: &M,
        prev: impl Fn(u64) -> Option<u64>,
    ) -> Option<Claim> {
        self.claim(machine, |state| {
            let table = prev(state.high).filter(|&table| table >= state.low);
            let high = table.unwrap_or(state.low);
            (table, high..state.high, State { high, ..state })
        })
    }

    fn claim(
        &self,
        machine: &M,
        take: impl Fn(State) -> (Option<u64>, Range<u64>, State),
    ) -> Option<Claim> {
        let (_, claim) = self.change(machine, |state| {
            let (table, range, after) = take(state);
            let claim = Claim {
                table,
                range,
                exiting: state.exiting,
                alone: state.at_work == 1,
            };
            (!claim.range.is_empty()).then_some((after, claim))
        })?;
        Some(claim)
    }

    /// Tables that were claimed before the last user came. For who finishes.
    pub(crate) fn claimed_before_exit(&self) -> Range<u64> {
        self.claimed_before.get()..TABLES
    }

    /// Whoever was at work leaves, with no claim left.
    pub(crate) fn leave(&self, machine: &M) -> Left {
        let left = self.change(machine, |state| {
            let at_work = state.at_work - 1;
            let finishing = state.finishing || state.exiting && at_work == 0;
            let after = State {
                at_work,
                finishing,
                ..state
            };
            Some((after, ()))
        });
        match left {
            Some((state, ())) if state.finishing => Left::Finish,
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

    /// Moves on in one step, if `to` wants to; returns where to, and what else `to` says.
    fn change<T>(
        &self,
        machine: &M,
        to: impl Fn(State) -> Option<(State, T)>,
    ) -> Option<(State, T)> {
        // Acquire here and AcqRel below pair with each other: what was done before a step is seen by
        // whoever comes later, above all by who finishes.
        let mut word = self.word.load(machine, Acquire);
        loop {
            let (state, more) = to(State::decode(word))?;
            match self
                .word
                .compare_exchange(machine, word, state.encode(), AcqRel)
            {
                Ok(_) => return Some((state, more)),
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
