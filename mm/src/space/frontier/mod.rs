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
//! What somebody has claimed and not begun (`rest`) is where others find it once nothing else is left:
//! who stalls, is slow or gives way keeps one table, and nobody waits for the others.
//!
//! Tables that a helper had to leave (somebody refused) are handed back on a list; those who come
//! later take them, and the CPU that finishes looks at every table anyway.
//!
//! Locks: `LeftOver`, with nothing inside.

use core::array;
use core::convert::Infallible;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use self::left_over::LeftOver;
use self::rest::Rest;
use self::state::{AT_WORK_MAX, State};
use super::page_table::TABLES;
use crate::machine::{Field, Lock, Machine, Word};
use crate::site::{LockClass, Site};

mod left_over;
mod rest;
mod state;

/// Places for rests, but no more than there are CPUs. Who finds none free begins all it has claimed at
/// once.
const RESTS: usize = 8;

/// See the file's header.
pub(crate) struct Frontier<M: Machine> {
    word: M::Word,
    rests: [Rest<M>; RESTS],
    /// How many of `rests` are used.
    places: usize,
    /// Both ends when the last user came. It writes them; who finishes reads them, ordered by the
    /// word.
    ends_at_exit: [M::Field; 2],
    left_over: M::Lock<LeftOver>,
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

/// No table is left that nobody has claimed.
struct NoneLeft {
    /// See [`State`].
    rested: bool,
}

/// Somebody at work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Walker {
    end: End,
    /// Where there may be a rest that it, or somebody on its CPU, has put there.
    rest: Option<usize>,
    /// How many tables it wanted when it last claimed some; 1 once there is none to claim.
    share: u64,
}

impl Walker {
    const fn new(end: End, rest: Option<usize>) -> Self {
        Self {
            end,
            rest,
            share: 1,
        }
    }

    /// Where it claims.
    pub(crate) const fn end(&self) -> End {
        self.end
    }

    /// How many tables it wanted when it last claimed some; 1 once there is none to claim.
    pub(crate) const fn share(&self) -> u64 {
        self.share
    }
}

/// Where tables are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// From the lowest on.
    Low,
    /// From the highest on.
    High,
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

/// What is left of `tables` when `share` of them that were made are taken at an `end`; `beyond` finds
/// the next that was made. What lies between is taken as well.
fn without(
    tables: &Range<u64>,
    end: End,
    share: u64,
    beyond: impl Fn(u64) -> Option<u64>,
) -> Range<u64> {
    let (mut low, mut high) = (tables.start, tables.end);
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
    low..high
}

impl Claim {
    /// Takes the first table that was made out, at an `end`; the rest stays.
    fn take_first(&mut self, end: End, beyond: impl Fn(u64) -> Option<u64>) -> Self {
        let rest = without(&self.tables, end, 1, beyond);
        let tables = match end {
            End::Low => self.tables.start..rest.start,
            End::High => rest.end..self.tables.end,
        };
        self.tables = rest;
        Self { tables, ..*self }
    }
}

impl<M: Machine> Frontier<M> {
    /// Nothing claimed, nobody at work.
    pub(crate) fn new(machine: &M) -> Self {
        let cpus = machine.topology().cpus() as usize;
        Self::with_rests(machine, cpus.min(RESTS))
    }

    /// The same for so many who can have a rest each.
    pub(crate) fn with_rests(machine: &M, rests: usize) -> Self {
        let state = State {
            low: 0,
            high: TABLES,
            at_work: 0,
            rested: false,
            exiting: false,
            finishing: false,
        };
        let here = machine.this_cpu();
        Self {
            word: machine.word(state.encode()),
            rests: array::from_fn(|_| Rest::none(machine)),
            places: rests,
            ends_at_exit: [machine.field(0), machine.field(TABLES)],
            left_over: machine.lock(LockClass::LeftOver, here, LeftOver::default()),
        }
    }

    /// A helper begins, at the end that fewer are at, as far as that is known: a process has its memory
    /// where it ran, so those at one end free into the same zones.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn join(&self, machine: &M) -> Result<Walker, NotJoined> {
        let joined = self.change(machine, |state| {
            if state.finishing {
                return Err(NotJoined::TooLate);
            }
            // One place is kept for the last user.
            if state.at_work >= AT_WORK_MAX - 1 {
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
        // Who gave way before comes back to what it had claimed.
        joined.map(|(state, end)| {
            let rest = state.rested.then(|| self.places(machine).next()).flatten();
            Walker::new(end, rest)
        })
    }

    /// The last user begins, at the low end.
    pub(crate) fn join_last_user(&self, machine: &M) -> Walker {
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
        Walker::new(End::Low, None)
    }

    /// What a walker does next: a table that was made, and those around it that were not; or all it
    /// claims if there is no place for the rest. Of what it has claimed before; else it claims some,
    /// `share` says how many given how many are at work; else what others have claimed and not begun.
    /// `beyond` finds the next one that was made at the walker's end, from there on and up, or below
    /// there. `None` when nothing is left.
    pub(crate) fn claim(
        &self,
        machine: &M,
        walker: &mut Walker,
        share: impl Fn(u64) -> u64,
        beyond: impl Fn(u64) -> Option<u64>,
    ) -> Option<Claim> {
        let end = walker.end;
        let take = |rest: &Rest<M>| rest.take(machine, end, &beyond);
        if let Some((claim, more)) = walker.rest.and_then(|place| take(&self.rests[place])) {
            // Once it is empty, somebody else may use the place.
            walker.rest = walker.rest.filter(|_| more);
            return Some(claim);
        }
        walker.rest = None;
        let mut rest = match self.claim_some(machine, end, share, &beyond) {
            Ok((claim, share)) => {
                walker.share = share;
                claim
            }
            Err(NoneLeft { rested }) => {
                walker.share = 1;
                let rests = if rested {
                    &self.rests[..self.places]
                } else {
                    &[]
                };
                return rests.iter().find_map(take).map(|(claim, _)| claim);
            }
        };
        if walker.share == 1 {
            return Some(rest);
        }
        let mut claim = rest.take_first(end, &beyond);
        if !rest.tables.is_empty() {
            let mut places = self.places(machine);
            walker.rest = places.find(|&place| self.rests[place].put(machine, &rest));
            if walker.rest.is_none() {
                claim.tables.start = claim.tables.start.min(rest.tables.start);
                claim.tables.end = claim.tables.end.max(rest.tables.end);
            }
        }
        Some(claim)
    }

    /// Places for rests, that of this CPU first.
    fn places(&self, machine: &M) -> impl Iterator<Item = usize> {
        let (own, places) = (machine.this_cpu().index(), self.places);
        (0..places).map(move |nth| (own + nth) % places)
    }

    /// Claims some tables at an `end`, with what lies between them; and how many it wanted.
    fn claim_some(
        &self,
        machine: &M,
        end: End,
        share: impl Fn(u64) -> u64,
        beyond: impl Fn(u64) -> Option<u64>,
    ) -> Result<(Claim, u64), NoneLeft> {
        let claimed = self.change(machine, |state| {
            let share = share(state.at_work);
            let left = without(&(state.low..state.high), end, share, &beyond);
            let claim = Claim {
                tables: match end {
                    End::Low => state.low..left.start,
                    End::High => left.end..state.high,
                },
                exiting: state.exiting,
                at_work: state.at_work,
            };
            if claim.tables.is_empty() {
                return Err(NoneLeft {
                    rested: state.rested,
                });
            }
            let after = State {
                low: left.start,
                high: left.end,
                rested: state.rested || share > 1,
                ..state
            };
            Ok((after, (claim, share)))
        });
        claimed.map(|(_, claimed)| claimed)
    }

    /// Tables whose mappings nobody forgets who has claimed them: claimed before the last user came, or
    /// left by somebody who gave way. For who finishes.
    pub(crate) fn unforgotten(&self, machine: &M) -> impl Iterator<Item = Range<u64>> {
        let rests = self.rests.iter().filter_map(move |rest| rest.left(machine));
        let rests = rests.filter(|claim| claim.exiting);
        let before = self.claimed_before_exit();
        before.into_iter().chain(rests.map(|claim| claim.tables))
    }

    /// Tables that were claimed before the last user came.
    fn claimed_before_exit(&self) -> [Range<u64>; 2] {
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

    /// Hands claimed tables back. If there are too many, they are left to the CPU that finishes.
    pub(crate) fn hand_back(&self, machine: &M, site: Site, tables: Range<u64>) {
        self.left_over
            .with(machine, site, |left_over| left_over.add(tables));
    }

    /// Claims all tables that were handed back.
    pub(crate) fn take_back(&self, machine: &M, site: Site) -> LeftOver {
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
