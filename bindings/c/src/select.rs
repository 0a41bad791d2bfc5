//! The choice of the process whose death would free the most memory, as functions for C. A
//! *candidate* is a process that can be chosen.
#![expect(
    unsafe_code,
    reason = "exported names are unsafe attributes, and C passes pointers to data and functions"
)]

use std::cell::Cell;
use std::ffi::c_void;

use plimsoll_mm::counter::{Range, Reading};
use plimsoll_mm::oom::{
    Bounded, Candidates, Facts, NoVictim, Outcome, Scope, ScoreAdj, Slot, TotalPages,
};

use crate::raw;
use crate::status::{Failure, guard, plimsoll_status};

/// The result of a cheap look at a candidate, a process that can be killed to free memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct plimsoll_look {
    /// The least number of pages that the candidate may have.
    pub min: i64,
    /// The greatest number of pages that the candidate may have.
    pub max: i64,
    /// The points that the candidate has in addition to its pages, in thousandths of all pages;
    /// −1000 to 1000. A candidate with −1000 is never chosen.
    pub adj: i16,
    /// Not 0 if the candidate was chosen before and is still dying. In this case, no candidate is
    /// chosen.
    pub is_dying: u8,
}

/// The candidates (the processes that can be killed), which are numbered from 0, and the functions
/// that the selection calls on the calling thread. These functions must not unwind or jump out of
/// the selection.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct plimsoll_candidates {
    /// The pointer that is passed to `look` and `sum`.
    pub context: *mut c_void,
    /// The number of candidates.
    pub count: u32,
    /// Takes a cheap look at a candidate. Returns 0 if the candidate has exited, and otherwise
    /// another number.
    pub look: Option<unsafe extern "C" fn(*mut c_void, u32, *mut plimsoll_look) -> i32>,
    /// Writes the exact number of pages of the candidate; may be slow. Returns 0 if the candidate
    /// has exited, and otherwise another number.
    pub sum: Option<unsafe extern "C" fn(*mut c_void, u32, *mut i64) -> i32>,
}

/// The result of a selection.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct plimsoll_victim {
    /// The number of the candidate with the most points.
    pub candidate: u32,
    /// The number of candidates whose pages the selection counted by a call of the function `sum`.
    pub sums: u64,
}

struct Asked {
    of: plimsoll_candidates,
    look: unsafe extern "C" fn(*mut c_void, u32, *mut plimsoll_look) -> i32,
    sum: unsafe extern "C" fn(*mut c_void, u32, *mut i64) -> i32,
    /// A candidate whose `adj` is out of bounds; `None` if the selection has met none.
    wrong: Cell<Option<u32>>,
}

impl Asked {
    fn look(&self, candidate: u32) -> Option<plimsoll_look> {
        let mut look = plimsoll_look::default();
        // SAFETY: the caller of `plimsoll_select` guarantees that the function may be called with
        // this context, and `look` is valid for a write.
        let is_there = unsafe { (self.look)(self.of.context, candidate, &raw mut look) };
        (is_there != 0).then_some(look)
    }
}

impl Candidates for Asked {
    fn len(&self) -> u32 {
        self.of.count
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        let look = self.look(candidate)?;
        let adj = ScoreAdj::new(look.adj.into()).unwrap_or_else(|_| {
            self.wrong.set(Some(candidate));
            ScoreAdj::ZERO
        });
        Some(Facts {
            adj,
            is_victim: look.is_dying != 0,
            ..Facts::PROCESS
        })
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        let plimsoll_look { min, max, .. } = self.look(candidate)?;
        Some(Reading {
            estimate: i64::midpoint(min, max),
            range: Range { min, max },
        })
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        let mut pages = 0;
        // SAFETY: the caller of `plimsoll_select` guarantees that the function may be called with
        // this context, and `pages` is valid for a write.
        let is_there = unsafe { (self.sum)(self.of.context, candidate, &raw mut pages) };
        (is_there != 0).then_some(pages)
    }
}

/// Chooses the candidate with the most points, and writes it to `*victim`. A candidate has a point
/// for each of its pages, and `total / 1000` points more for each unit of its `adj`. The selection
/// calls the function `sum` only for candidates whose exact number of pages can matter. If no
/// candidate may be chosen now, the result is `PLIMSOLL_NOBODY`. `total` is the number of all
/// pages, at least 1.
///
/// # Safety
/// `candidates` must be null or point to a `plimsoll_candidates` whose functions may be called with
/// its context; `victim` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_select(
    candidates: *const plimsoll_candidates,
    total: u64,
    victim: *mut plimsoll_victim,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `candidates` is null or points to candidates.
        let of = *unsafe { raw::get(candidates, "candidates") }?;
        // SAFETY: the caller guarantees that `victim` is null or valid for a write.
        let victim = unsafe { raw::out(victim, "victim") }?;
        let null = |name| {
            Failure::new(
                plimsoll_status::PLIMSOLL_NULL,
                format_args!("`{name}` is null"),
            )
        };
        let (look, sum) = (
            of.look.ok_or_else(|| null("look"))?,
            of.sum.ok_or_else(|| null("sum"))?,
        );
        let wrong = Cell::new(None);
        let asked = Asked {
            of,
            look,
            sum,
            wrong,
        };
        victim.put(choose(&asked, total)?);
        Ok(())
    })
}

fn choose(asked: &Asked, total: u64) -> Result<plimsoll_victim, Failure> {
    let total = TotalPages::new(total).map_err(Failure::invalid)?;
    let mut slots = Vec::new();
    let count = asked.of.count.max(1) as usize;
    let room = slots.try_reserve_exact(count);
    room.map_err(|why| Failure::new(plimsoll_status::PLIMSOLL_NO_MEMORY, why))?;
    slots.resize(count, Slot::EMPTY);
    let selection = Bounded::new().select(asked, &Scope::machine(total), &mut slots);
    let selection = selection.map_err(Failure::invalid)?;
    if let Some(candidate) = asked.wrong.get() {
        let text = format_args!("`adj` of candidate {candidate} is not from -1000 to 1000");
        return Err(Failure::invalid(text));
    }
    match selection.outcome {
        Outcome::Victim(victim) => Ok(plimsoll_victim {
            candidate: victim.candidate,
            sums: selection.precise_sums,
        }),
        Outcome::Nobody(why) => {
            let text = match why {
                NoVictim::Empty => "there are no candidates",
                NoVictim::NoneKillable => "no candidate may be killed",
                NoVictim::Aborted { .. } => "a candidate is still dying: wait for its memory",
                NoVictim::Unsettled => "candidates keep exiting: try again when memory is short",
            };
            Err(Failure::new(plimsoll_status::PLIMSOLL_NOBODY, text))
        }
    }
}
