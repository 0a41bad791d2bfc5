//! The frontier, at which the walkers that empty a dying address space meet. A walker is the *last
//! user* of the space, which is the thread that ends it, or a *helper*, such as the OOM reaper. The
//! frontier decides which walker empties which table, and which walker finishes.
//!
//! ```text
//!   0 ── claimed from below ──> low ········ unclaimed ········ high <── claimed from above ── all
//! ```
//!
//! One word holds both ends, the number of walkers at work, and whether the last user has joined. A
//! walker claims tables by moving an end over them in one atomic step. So no table has two owners,
//! and a walker works alone on the tables it has claimed. Walkers claim many tables at a time while
//! many are left, and one at a time near the end, so that they all end at about the same time.
//! After the last user has joined, the walker that leaves last finishes (`exit::finish`). A walker
//! leaves in one atomic step, which also shows whether other walkers are still at work. So exactly
//! one walker finishes.
//!
//! The tables that a walker has claimed and not begun are its rest (`leftover`). When no table is
//! unclaimed, other walkers take tables from that rest. So a walker that stalls, is slow or gives
//! way to a waiting writer delays only one table, and no walker waits for the others.
//!
//! If a holder of translations (Linux: an MMU notifier) refuses to give up a table, the helper
//! hands that table back on a list. Walkers that come later take such tables, and the CPU that
//! finishes looks at every table anyway.
//!
//! Locks: `LeftOver`. A CPU that holds this lock takes no other lock.

use core::array;
use core::convert::Infallible;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use self::left_over::LeftOver;
use self::leftover::Leftover;
use self::state::{AT_WORK_MAX, State};
use super::page_table::TABLES;
use crate::machine::{Field, Lock, Machine, Word};
use crate::site::{LockClass, Site};

mod left_over;
mod leftover;
mod state;

/// The largest number of places in a frontier for rests, which are the tables that a walker has
/// claimed and not begun. A frontier has no more places than the machine has CPUs. A walker that
/// finds no free place starts on all of its claimed tables immediately.
const RESTS: usize = 8;

/// The frontier of one address space: which of its tables are claimed, and how many CPUs are
/// emptying the space.
pub(crate) struct Frontier<M: Machine> {
    word: M::Word,
    rests: [Leftover<M>; RESTS],
    /// The number of elements of `rests` in which a CPU may store the page tables that it has
    /// claimed and not begun.
    places: usize,
    /// Both ends of the unclaimed tables at the moment when the exiting thread began to empty the
    /// space. The exiting thread writes them, and the CPU that finishes reads them; the frontier's
    /// word orders the writes before the reads.
    ends_at_exit: [M::Field; 2],
    left_over: M::Lock<LeftOver>,
}

/// Page tables that a walker (a CPU that empties a dying address space) has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The indices of the claimed tables. Some of these tables may be *missing*, that is, they do
    /// not exist.
    pub(crate) tables: Range<u64>,
    /// True if the exiting thread has begun to empty the space. Then nothing in the claimed tables
    /// will be used again.
    pub(crate) exiting: bool,
    /// The number of CPUs that empty the space, the claiming one included.
    pub(crate) at_work: u64,
}

/// The outcome of a claim that found no unclaimed page table.
struct NoneLeft {
    /// True if other CPUs may have rests (page tables that they have claimed and not begun); see
    /// [`State`].
    rested: bool,
}

/// A walker: a CPU that empties page tables of a dying address space, for the exiting thread (the
/// last user) or as a helper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claimer {
    end: End,
    /// An index in the frontier's `rests`, which hold claimed page tables. This walker tries first
    /// to take a table from the entry with this index. The walker itself, or another walker on the
    /// same CPU, may have filled the entry.
    rest: Option<usize>,
    /// The number of page tables that this CPU wanted at its last claim, or 1 if all tables had
    /// been claimed already.
    share: u64,
}

impl Claimer {
    const fn new(end: End, rest: Option<usize>) -> Self {
        Self {
            end,
            rest,
            share: 1,
        }
    }

    /// Returns the end (low or high) from which the walker claims page tables.
    pub(crate) const fn end(&self) -> End {
        self.end
    }

    /// Returns the number of page tables that this CPU wanted at its last claim, or 1 if no table
    /// was unclaimed.
    pub(crate) const fn share(&self) -> u64 {
        self.share
    }
}

/// The end of the unclaimed page tables from which a CPU claims tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The low end: from the lowest table upwards.
    Low,
    /// The high end: from the highest table downwards.
    High,
}

/// The reason why a CPU cannot help to empty an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    /// A CPU is finishing, or has finished, the work on the address space.
    TooLate,
    /// Too many CPUs are at work: the word that counts them has no room for one more.
    TooMany,
}

/// What a CPU still has to do when it stops emptying page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Left {
    /// The CPU has nothing left to do: other CPUs are at work, or the exiting thread has not begun
    /// yet.
    Nothing,
    /// The CPU must finish the address space (free its page tables and mappings), because no other
    /// CPU is at work or will come.
    Finish,
}

/// Removes `share` existing page tables from the end `end` of the range `tables`, and returns the
/// rest of the range. Also removes the indices without a table between `end` and the last removed
/// table. `beyond` finds the next existing table.
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
    /// Removes from this claim the existing page table that is nearest to `end`, and the indices
    /// without a table between `end` and that table. Returns a claim of the removed tables.
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
    /// Makes the frontier of an address space that no CPU empties yet, so that none of its page
    /// tables is claimed.
    pub(crate) fn new(machine: &M) -> Self {
        let cpus = machine.topology().cpus() as usize;
        Self::with_rests(machine, cpus.min(RESTS))
    }

    /// Makes a frontier like [`Frontier::new`]. At most `rests` CPUs at a time can store page
    /// tables that they have claimed but not begun to empty.
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
            rests: array::from_fn(|_| Leftover::none(machine)),
            places: rests,
            ends_at_exit: [machine.field(0), machine.field(TABLES)],
            left_over: machine.lock(LockClass::LeftOver, here, LeftOver::default()),
        }
    }

    /// Lets a CPU help to empty the address space, from the end at which fewer CPUs seem to be at
    /// work. The memory at one end of the address space is often all in one zone, so CPUs at the
    /// same end would wait for the lock of that zone.
    ///
    /// # Errors
    /// [`NotJoined`] says why the CPU may not help.
    pub(crate) fn join(&self, machine: &M) -> Result<Claimer, NotJoined> {
        let joined = self.change(machine, |state| {
            if state.finishing {
                return Err(NotJoined::TooLate);
            }
            // Leave room in the word to count the exiting thread, which must always be able to
            // join.
            if state.at_work >= AT_WORK_MAX - 1 {
                return Err(NotJoined::TooMany);
            }
            let at_work = state.at_work + 1;
            // The exiting thread may have joined already, at the low end. So a helper that is the
            // first or the second CPU at work takes the high end. From the third CPU on, the ends
            // alternate.
            let end = if at_work > 1 && at_work % 2 == 1 {
                End::Low
            } else {
                End::High
            };
            Ok((State { at_work, ..state }, end))
        });
        // Page tables that were claimed and not begun are stored in `rests`. A helper that ran on
        // this CPU before may have left such tables in the CPU's element of `rests`. So this helper
        // looks there first.
        joined.map(|(state, end)| {
            let rest = state.rested.then(|| self.places(machine).next()).flatten();
            Claimer::new(end, rest)
        })
    }

    /// Adds the exiting thread (the last user) to the walkers, at the low end of the address space.
    pub(crate) fn join_last_user(&self, machine: &M) -> Claimer {
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
        Claimer::new(End::Low, None)
    }

    /// Returns the page tables that `walker` empties next, or `None` when nothing is left. The
    /// result is a claim of one existing table, and can include neighbouring indices that have no
    /// table. If there is no place to store the *rest*, the tables that the walker has claimed and
    /// not begun, the result is the walker's whole claim.
    ///
    /// 1. The walker takes from its own rest first.
    /// 2. If that rest is empty, the walker makes a new claim, of as many tables as `share` returns
    ///    for the number of walkers at work.
    /// 3. If no table is unclaimed, the walker takes from the rests of other walkers.
    ///
    /// `beyond` finds the next existing table: at or after the given number for a walker at the low
    /// end, and below that number for a walker at the high end.
    pub(crate) fn claim(
        &self,
        machine: &M,
        walker: &mut Claimer,
        share: impl Fn(u64) -> u64,
        beyond: impl Fn(u64) -> Option<u64>,
    ) -> Option<Claim> {
        let end = walker.end;
        let take = |rest: &Leftover<M>| rest.take(machine, end, &beyond);
        if let Some((claim, more)) = walker.rest.and_then(|place| take(&self.rests[place])) {
            // If `more` is false, the element of `rests` from which `claim` was taken has no table
            // left. Another walker may use this element.
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

    /// Returns the indexes of the places for page tables that were claimed and not begun, beginning
    /// with the place of this CPU.
    fn places(&self, machine: &M) -> impl Iterator<Item = usize> {
        let (own, places) = (machine.this_cpu().index(), self.places);
        (0..places).map(move |nth| (own + nth) % places)
    }

    /// Claims the existing page tables that are nearest to `end`, and the indices between these
    /// tables that have no table. `share` gets the number of CPUs at work and returns how many
    /// existing tables to claim. Returns the claim and the result of `share`.
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

    /// Returns the claimed page tables whose mappings have not been dropped yet. The CPU that
    /// finishes the address space has to drop these mappings. (A mapping belongs to the table in
    /// which it begins.) These tables were claimed before the exiting thread began. Or a CPU
    /// claimed them, but gave way to a writer before it began them.
    pub(crate) fn unforgotten(&self, machine: &M) -> impl Iterator<Item = Range<u64>> {
        let rests = self.rests.iter().filter_map(move |rest| rest.left(machine));
        let rests = rests.filter(|claim| claim.exiting);
        let before = self.claimed_before_exit();
        before.into_iter().chain(rests.map(|claim| claim.tables))
    }

    /// Returns the page tables that were claimed before the exiting thread began to empty the
    /// space.
    fn claimed_before_exit(&self) -> [Range<u64>; 2] {
        let [low, high] = &self.ends_at_exit;
        [0..low.get(), high.get()..TABLES]
    }

    /// Records that a CPU has stopped emptying page tables. Returns whether this CPU has to finish
    /// the address space, that is, free its page tables and mappings.
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

    /// Hands claimed page tables back, on the list [`LeftOver`]. If this list is full, the tables
    /// are left to the CPU that finishes the address space, which looks at every table.
    pub(crate) fn hand_back(&self, machine: &M, site: Site, tables: Range<u64>) {
        self.left_over
            .with(machine, site, |left_over| left_over.add(tables));
    }

    /// Claims all page tables that were handed back.
    pub(crate) fn take_back(&self, machine: &M, site: Site) -> LeftOver {
        self.left_over.with(machine, site, core::mem::take)
    }

    /// Changes the frontier's state in one atomic step, to the state that `to` computes from the
    /// current one. If `to` returns an error, changes nothing. Returns the new state, and the value
    /// that `to` returned with it.
    fn change<T, E>(
        &self,
        machine: &M,
        to: impl Fn(State) -> Result<(State, T), E>,
    ) -> Result<(State, T), E> {
        // Acquire here pairs with AcqRel below: a CPU that changes the word, above all the one that
        // finishes the address space, sees everything that other CPUs did before they changed the
        // word.
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
