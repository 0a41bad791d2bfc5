//! Where those who empty a dying address space meet: who does what, and who does the rest.
//!
//! ```text
//!   0 ── done by the last user ──> low ········ nobody's yet ········ high <── done by helpers ── all
//! ```
//!
//! One word holds both ends, how many are at work, and whether the last user is among them or was.
//! Tables are claimed by moving an end over them, in one step, so no table has two owners; whoever has
//! claimed one works alone on it. Many are claimed at a time while many are left, and one at a time in
//! the end, so that all are done at about the same time. Who leaves last after the last user has come
//! does what is left to be done (`exit::finish`), in one step with leaving, so exactly one does.
//!
//! Tables that a helper had to leave (somebody refused) are handed back on a list; those who come
//! later take them, and whoever finishes looks at every table anyway.
//!
//! Locks: `LeftOver`, with nothing inside.

use alloc::vec::Vec;
use core::convert::Infallible;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::page_table::TABLES;
use crate::machine::{Field, Lock, Machine, Word};
use crate::site::{LockClass, Site};

/// See the file's header.
pub(crate) struct Frontier<M: Machine> {
    word: M::Word,
    /// Both ends when the last user came. It writes them; who finishes reads them, ordered by the
    /// word.
    ends_at_exit: [M::Field; 2],
    left_over: M::Lock<Vec<Range<u64>>>,
}

/// What somebody has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// These tables, of which few were ever made.
    pub(crate) tables: Range<u64>,
    /// Whether the last user has come, so that nothing there will be used again.
    pub(crate) exiting: bool,
    /// Who are at work, the one who claims included.
    pub(crate) at_work: u64,
}

/// Where tables are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// From the lowest on.
    Low,
    /// From the highest on.
    High,
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

    /// The same when `share` tables that were made are taken at an end.
    fn without(self, end: End, share: u64, beyond: impl Fn(u64) -> Option<u64>) -> Self {
        let Self {
            mut low, mut high, ..
        } = self;
        for _ in 0..share {
            match end {
                End::Low => {
                    let table = beyond(low).filter(|&table| table < high);
                    low = table.map_or(high, |table| table + 1);
                }
                End::High => {
                    let table = beyond(high).filter(|&table| table >= low);
                    high = table.unwrap_or(low);
                }
            }
            if low == high {
                break;
            }
        }
        Self { low, high, ..self }
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
            ends_at_exit: [machine.field(0), machine.field(TABLES)],
            left_over: machine.lock(LockClass::LeftOver, here, Vec::new()),
        }
    }

    /// A helper begins, at the end that fewer are at, as far as that is known: a process has its memory
    /// where it ran, so those at one end free into the same zones.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn join(&self, machine: &M) -> Result<End, NotJoined> {
        let joined = self.change(machine, |state| {
            if state.finishing {
                return Err(NotJoined::TooLate);
            }
            // One place is kept for the last user.
            if state.at_work >= AT_WORK_MASK - 1 {
                return Err(NotJoined::TooMany);
            }
            let at_work = state.at_work + 1;
            // The last user, who may come first, is at the low end.
            let end = if at_work > 1 && at_work % 2 == 1 {
                End::Low
            } else {
                End::High
            };
            Ok((State { at_work, ..state }, end))
        });
        joined.map(|(_, end)| end)
    }

    /// The last user begins.
    pub(crate) fn join_last_user(&self, machine: &M) {
        let joined = self.change(machine, |state| {
            let after = State {
                at_work: state.at_work + 1,
                exiting: true,
                ..state
            };
            Ok::<_, Infallible>((after, ()))
        });
        let Ok((state, ())) = joined;
        let [low, high] = &self.ends_at_exit;
        low.set(state.low);
        high.set(state.high);
    }

    /// Claims some tables at an `end`. `share` says how many that were made, given how many are at
    /// work; `beyond` finds the next one that was made, from there on and up, or below there. What lies
    /// between tables that were made is claimed as well. `None` when nothing is left to claim.
    pub(crate) fn claim(
        &self,
        machine: &M,
        end: End,
        share: impl Fn(u64) -> u64,
        beyond: impl Fn(u64) -> Option<u64>,
    ) -> Option<Claim> {
        let claimed = self.change(machine, |state| {
            let after = state.without(end, share(state.at_work), &beyond);
            let claim = Claim {
                tables: match end {
                    End::Low => state.low..after.low,
                    End::High => after.high..state.high,
                },
                exiting: state.exiting,
                at_work: state.at_work,
            };
            if claim.tables.is_empty() {
                return Err(());
            }
            Ok((after, claim))
        });
        claimed.ok().map(|(_, claim)| claim)
    }

    /// Tables that were claimed before the last user came. For who finishes.
    pub(crate) fn claimed_before_exit(&self) -> [Range<u64>; 2] {
        let [low, high] = &self.ends_at_exit;
        [0..low.get(), high.get()..TABLES]
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
            Ok::<_, Infallible>((after, ()))
        });
        let Ok((state, ())) = left;
        if state.finishing {
            Left::Finish
        } else {
            Left::Nothing
        }
    }

    /// Hands claimed tables back. Without memory for the list they are left to whoever finishes.
    pub(crate) fn hand_back(&self, machine: &M, site: Site, tables: Range<u64>) {
        self.left_over.with(machine, site, |left_over| {
            if left_over.try_reserve(1).is_ok() {
                left_over.push(tables);
            }
        });
    }

    /// Claims all tables that were handed back.
    pub(crate) fn take_back(&self, machine: &M, site: Site) -> Vec<Range<u64>> {
        self.left_over.with(machine, site, core::mem::take)
    }

    /// Moves on in one step, unless `to` refuses; returns where to, and what else `to` says.
    fn change<T, E>(
        &self,
        machine: &M,
        to: impl Fn(State) -> Result<(State, T), E>,
    ) -> Result<(State, T), E> {
        // Acquire here and AcqRel below pair with each other: what was done before a step is seen by
        // whoever comes later, above all by who finishes.
        let mut word = self.word.load(machine, Acquire);
        loop {
            let (state, more) = to(State::decode(word))?;
            match self
                .word
                .compare_exchange(machine, word, state.encode(), AcqRel)
            {
                Ok(_) => return Ok((state, more)),
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
