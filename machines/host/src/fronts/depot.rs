//! The depot of a zone. It takes runs of 64 free pages from CPUs whose fronts (stacks of free
//! pages) have too many pages, and gives the runs to CPUs whose fronts have too few.
//!
//! If one CPU only frees pages and another CPU only allocates pages, the pages go through the depot
//! instead of the page lists and the zone. A run in the depot still counts as pages of the front
//! that gave it. So when that front is emptied, its runs in the depot are returned too.
//!
//! Locks: the lock of the depot. A CPU that gives or takes a run holds no other lock, and waits for
//! this one for about a microsecond at most. Most holds are much shorter. If a run does not go
//! through the depot, it goes to a page list or to the zone, where it is split, and then neighbouring
//! pages, whose tags share a cache line, get to different CPUs.

use std::hint;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The number of free pages in a run, which is the unit of transfer between CPUs.
pub(super) const RUN: usize = RUN_PAGES as usize;
const RUN_PAGES: u32 = 64;
/// A depot (free pages that the CPUs exchange) has room for this many runs of pages for each CPU.
const RUNS_PER_CPU: usize = 4;
/// The largest number of runs of pages in a depot (free pages that the CPUs exchange).
const RUNS_MAX: usize = 256;
/// A CPU tries to take the lock of a depot (free pages that the CPUs exchange) this many times.
const TRIES: u32 = 64;

/// The depot of a zone: runs of pages that the CPUs' *fronts* (stacks of free pages) have given
/// away.
pub(super) struct Depot {
    runs: Mutex<Vec<Run>>,
    /// The number of runs. CPUs read this number without the lock.
    len: AtomicU32,
    /// For each front (a CPU's stack of free pages), the number of pages in the runs that this
    /// front gave to the depot. Only a CPU that holds the lock of `runs` changes these counts.
    given: Box<[AtomicU32]>,
    most: usize,
}

struct Run {
    /// The index of the front (a CPU's stack of free pages) that gave the run.
    front: usize,
    pages: [u32; RUN],
}

/// The number of runs in the depot of `fronts` fronts (the CPUs' stacks of free pages).
pub(super) fn most_runs(fronts: usize) -> usize {
    (RUNS_PER_CPU * fronts).min(RUNS_MAX)
}

impl Depot {
    /// An empty depot for `fronts` fronts, the CPUs' stacks of free pages. It has room for `most`
    /// runs.
    pub(super) fn new(fronts: usize, most: usize) -> Self {
        let mut runs = Vec::new();
        // If there is no memory for the runs, the depot stays empty, and CPUs use the page lists
        // and the zone instead.
        let most = runs.try_reserve_exact(most).map_or(0, |()| most);
        Self {
            runs: Mutex::new(runs),
            len: AtomicU32::new(0),
            given: (0..fronts).map(|_| AtomicU32::new(0)).collect(),
            most,
        }
    }

    /// Adds `pages`, a run of free pages from the stack of the CPU with the index `front`. Returns
    /// `false` if `pages` is not a whole run, or the depot is full or stays locked.
    pub(super) fn give(&self, front: usize, pages: &[u32]) -> bool {
        let Ok(pages) = pages.try_into() else {
            return false;
        };
        // Relaxed is enough: `len` only decides whether to try the lock.
        if self.len.load(Relaxed) as usize >= self.most {
            return false;
        }
        let Some(mut runs) = self.lock_soon(hint::spin_loop) else {
            return false;
        };
        if runs.len() >= self.most {
            return false;
        }
        runs.push(Run { front, pages });
        self.changed(&runs, front, true);
        true
    }

    /// Takes the newest run of free pages out of the depot and copies it to `pages`, which must
    /// have room for exactly one run. Returns `false` if it took none.
    pub(super) fn take(&self, pages: &mut [u32]) -> bool {
        // Relaxed is enough: `len` only decides whether to try the lock.
        if self.len.load(Relaxed) == 0 || pages.len() != RUN {
            return false;
        }
        let Some(mut runs) = self.lock_soon(hint::spin_loop) else {
            return false;
        };
        let Some(run) = runs.pop() else {
            return false;
        };
        self.changed(&runs, run.front, false);
        pages.copy_from_slice(&run.pages);
        true
    }

    /// Removes all runs of pages that the front (the CPU's stack) with the index `front` gave to
    /// the depot, and passes each run to `f`.
    pub(super) fn return_to(&self, front: usize, mut f: impl FnMut(&[u32])) {
        while let Some(run) = self.remove_one(front) {
            f(&run.pages);
        }
    }

    fn remove_one(&self, front: usize) -> Option<Run> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let at = runs.iter().rposition(|run| run.front == front)?;
        let run = runs.remove(at);
        self.changed(&runs, front, false);
        Some(run)
    }

    /// Returns how many of the depot's pages came from the front (a CPU's stack of free pages) with
    /// the index `front`.
    pub(super) fn pages_of(&self, front: usize) -> u32 {
        // Relaxed is enough: the returned number of pages may be outdated.
        self.given[front].load(Relaxed)
    }

    /// Updates the number of runs, and the number of pages that the front with the index `front`
    /// has given. The caller has just added one of this front's runs (`more`) or removed one.
    fn changed(&self, runs: &MutexGuard<'_, Vec<Run>>, front: usize, more: bool) {
        let given = &self.given[front];
        // Relaxed is enough for all accesses here: the caller holds the lock, and other CPUs may
        // see old numbers.
        let pages = given.load(Relaxed);
        let pages = if more {
            pages + RUN_PAGES
        } else {
            pages - RUN_PAGES
        };
        given.store(pages, Relaxed);
        self.len
            .store(u32::try_from(runs.len()).unwrap_or(u32::MAX), Relaxed);
    }

    /// Takes the lock. While another CPU holds it, calls `relax` and tries again, but only a few
    /// times. Then returns `None`.
    fn lock_soon(&self, mut relax: impl FnMut()) -> Option<MutexGuard<'_, Vec<Run>>> {
        for _ in 0..TRIES {
            match self.runs.try_lock() {
                Ok(runs) => return Some(runs),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => relax(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    #[test]
    fn a_run_counts_for_the_front_that_gave_it_until_it_is_taken_or_returned() {
        let depot = Depot::new(2, most_runs(2));
        let run = |first: u32| -> Vec<u32> { (first..).take(RUN).collect() };
        assert!(depot.give(0, &run(0)) && depot.give(1, &run(100)) && depot.give(0, &run(200)));
        assert!(!depot.give(0, &run(0)[..RUN - 1]), "no whole run");
        assert_eq!([0, 1].map(|front| depot.pages_of(front)), [128, 64]);
        let mut taken = [0; RUN];
        assert!(depot.take(&mut taken));
        assert_eq!(taken[0], 200, "the run that was given last");
        let mut returned = Vec::new();
        depot.return_to(0, |pages| returned.extend_from_slice(pages));
        assert_eq!(returned, run(0));
        assert_eq!([0, 1].map(|front| depot.pages_of(front)), [0, 64]);
        assert!(depot.take(&mut taken) && !depot.take(&mut taken));
    }

    #[test]
    fn the_run_that_was_given_last_is_returned_first() {
        let depot = Depot::new(2, most_runs(2));
        for (front, page) in [(0, 1), (1, 2), (0, 3)] {
            assert!(depot.give(front, &[page; RUN]));
        }
        let mut returned = Vec::new();
        depot.return_to(0, |pages| returned.push(pages[0]));
        assert_eq!(returned, [3, 1]);
    }

    #[test]
    fn a_depot_that_stays_locked_is_not_waited_for() {
        let depot = Depot::new(2, most_runs(2));
        assert!(depot.give(0, &[7; RUN]));
        let held = depot.runs.lock();
        assert!(!depot.give(0, &[8; RUN]) && !depot.take(&mut [0; RUN]));
        drop(held);
        assert!(depot.give(0, &[8; RUN]) && depot.take(&mut [0; RUN]));
    }

    #[test]
    fn a_depot_that_is_soon_unlocked_is_waited_for() {
        let depot = Depot::new(2, most_runs(2));
        let mut looks = 0;
        drop(depot.lock_soon(|| looks += 1));
        assert_eq!(looks, 0, "a lock that is free is not waited for");
        let mut held = depot.runs.lock().ok();
        let runs = depot.lock_soon(|| {
            looks += 1;
            if looks == TRIES - 1 {
                held = None;
            }
        });
        assert!(runs.is_some());
        assert!(depot.lock_soon(|| ()).is_none(), "still held");
    }

    /// A thread that panics while it holds the lock of the depot leaves the runs as they are.
    #[test]
    fn a_depot_whose_lock_is_poisoned_still_gives_and_takes() {
        let depot = Depot::new(2, most_runs(2));
        assert!(depot.give(0, &[7; RUN]));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _held = depot.runs.lock();
            resume_unwind(Box::new("a panic"));
        }));
        assert!(outcome.is_err() && depot.runs.is_poisoned());
        assert!(depot.give(1, &[8; RUN]));
        let mut taken = [0; RUN];
        assert!(depot.take(&mut taken));
        assert_eq!(taken, [8; RUN]);
        let mut returned = Vec::new();
        depot.return_to(0, |pages| returned.push(pages[0]));
        assert_eq!(returned, [7]);
    }

    #[test]
    fn a_depot_has_room_for_a_few_runs_of_each_front() {
        let depot = Depot::new(3, most_runs(3));
        let given = (0..).take_while(|_| depot.give(2, &[7; RUN])).count();
        assert_eq!(given, 3 * RUNS_PER_CPU);
    }

    /// A CPU may read an old number of runs before it takes the lock. It still adds no run to a
    /// depot that has become full in the meantime.
    #[test]
    fn a_depot_that_has_just_become_full_takes_no_run() {
        let depot = Depot::new(1, most_runs(1));
        let given = (0..).take_while(|_| depot.give(0, &[7; RUN])).count();
        assert_eq!(given, RUNS_PER_CPU);
        depot.len.store(0, Relaxed);
        assert!(!depot.give(0, &[8; RUN]));
        assert_eq!(depot.pages_of(0) as usize, RUNS_PER_CPU * RUN);
        let mut returned = Vec::new();
        depot.return_to(0, |pages| returned.push(pages[0]));
        assert_eq!(returned, [7; RUNS_PER_CPU]);
    }

    /// A depot that was full takes a run again as soon as there is room for it.
    #[test]
    fn a_full_depot_has_room_again_when_a_run_is_taken() {
        let depot = Depot::new(2, most_runs(2));
        let fill = || (0..).take_while(|_| depot.give(1, &[7; RUN])).count();
        assert_eq!(fill(), 2 * RUNS_PER_CPU);
        assert!(depot.take(&mut [0; RUN]));
        assert_eq!(fill(), 1);
        depot.return_to(1, |_| ());
        assert_eq!(fill(), 2 * RUNS_PER_CPU);
    }
}
