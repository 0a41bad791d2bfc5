//! How many cases run at once, over all experiments of a command.
//!
//! The experiments of a command run at the same time and share a number of slots. A case runs only
//! while it holds a slot. A free slot goes to the waiting case whose experiment has the lowest
//! rank. So the first experiment runs as if it were alone. The other experiments use only the CPUs
//! that the first experiment leaves idle, for instance while its last case runs.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// A handle by which one experiment uses the slots that all experiments of a command share. A slot
/// allows one case to run.
#[derive(Clone, Debug)]
pub struct Jobs {
    pool: Arc<Pool>,
    /// If several cases wait, a free slot goes to the case whose handle has the lowest rank.
    rank: usize,
    /// How many of the shared slots a case must hold in order to run.
    taken: NonZeroUsize,
    /// How many cases can run at once with this handle.
    most: NonZeroUsize,
}

#[derive(Debug)]
struct Pool {
    slots: NonZeroUsize,
    state: Mutex<State>,
    /// Signalled when slots (permissions to run) become free, and when a waiting case leaves the
    /// queue.
    changed: Condvar,
    /// True once [`Jobs::stop`] has been called.
    stopped: AtomicBool,
}

/// The payload of the panic that ends a run after [`Jobs::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

#[derive(Debug)]
struct State {
    free: usize,
    /// The number of waiting cases, by rank: a free slot goes to the case with the lowest rank. A
    /// rank without waiting cases has no entry.
    waiting: BTreeMap<usize, usize>,
}

/// The slots (permissions to run) that a running case holds. They become free when this value is
/// dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    pool: &'a Pool,
    taken: NonZeroUsize,
}

impl Jobs {
    /// Makes `slots` slots, and returns a handle on them. Each slot allows one case to run.
    #[must_use]
    pub fn new(slots: NonZeroUsize) -> Self {
        let state = State {
            free: slots.get(),
            waiting: BTreeMap::new(),
        };
        Self {
            pool: Arc::new(Pool {
                slots,
                state: Mutex::new(state),
                changed: Condvar::new(),
                stopped: AtomicBool::new(false),
            }),
            rank: 0,
            taken: NonZeroUsize::MIN,
            most: slots,
        }
    }

    /// Makes one slot for each CPU of the host, and returns a handle on these slots. Each slot
    /// allows one case to run.
    #[must_use]
    pub fn one_per_cpu() -> Self {
        Self::new(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Returns a handle on the same slots with the rank `rank`. No case of this new handle gets a
    /// slot while a case of a lower rank waits for one.
    #[must_use]
    pub fn ranked(&self, rank: usize) -> Self {
        Self {
            rank,
            ..self.clone()
        }
    }

    /// Returns a handle on the same slots (each slot allows one case to run). Cases of the new
    /// handle run one after the other. Cases of other handles can use the remaining slots.
    #[must_use]
    pub fn one_at_a_time(&self) -> Self {
        Self {
            most: NonZeroUsize::MIN,
            ..self.clone()
        }
    }

    /// Returns a handle on the same slots (each slot allows one case to run). Each case of this new
    /// handle takes all slots, so no other case can run at the same time and disturb the
    /// measurements.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self {
            taken: self.pool.slots,
            most: NonZeroUsize::MIN,
            ..self.clone()
        }
    }

    /// Ends all runs that use these slots: no more cases start. A run ends with a panic whose
    /// payload is [`Stopped`] as soon as its running cases have ended.
    pub fn stop(&self) {
        // Relaxed: the flag orders no other data. A worker that still reads `false` only runs one
        // more case.
        self.pool.stopped.store(true, Relaxed);
    }

    /// Returns whether [`Jobs::stop`] has been called.
    pub(super) fn is_stopped(&self) -> bool {
        // Relaxed, like the store in `stop`: the flag orders no other data.
        self.pool.stopped.load(Relaxed)
    }

    /// How many cases can run at once with this handle.
    pub(super) fn most(&self) -> usize {
        self.most.get()
    }

    /// Waits until a case of this handle is allowed to run, and takes the slots for the case.
    pub(super) fn wait(&self) -> Running<'_> {
        let mut state = self.pool.lock();
        *state.waiting.entry(self.rank).or_default() += 1;
        let blocked = |state: &mut State| {
            let first = state.waiting.keys().next().copied();
            state.free < self.taken.get() || first.is_some_and(|first| first < self.rank)
        };
        state = self
            .pool
            .changed
            .wait_while(state, blocked)
            .expect("no holder of this lock panics");
        state.free -= self.taken.get();
        let waiting = state.waiting.get_mut(&self.rank).expect("counted above");
        *waiting -= 1;
        if *waiting == 0 {
            state.waiting.remove(&self.rank);
        }
        drop(state);
        // This case has left the queue. Cases of higher ranks that had to wait for this case may be
        // able to start now.
        self.pool.changed.notify_all();
        Running {
            pool: &self.pool,
            taken: self.taken,
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.pool.lock().free += self.taken.get();
        self.pool.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn jobs(slots: usize) -> Jobs {
        Jobs::new(NonZeroUsize::new(slots).expect("not zero"))
    }

    /// Starts a thread for each element of `jobs`. Each thread runs several cases, one after the
    /// other. Returns the largest number of cases that ran at once.
    fn most_inside(jobs: &[Jobs]) -> usize {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for jobs in jobs {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _running = jobs.wait();
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        thread::sleep(Duration::from_micros(50));
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        most.load(SeqCst)
    }

    #[test]
    fn no_more_cases_run_at_once_than_there_are_slots() {
        let two = jobs(2);
        let ranks: Vec<Jobs> = (0..6).map(|nth| two.ranked(nth / 2)).collect();
        assert_eq!(most_inside(&ranks), 2);
    }

    #[test]
    fn a_case_that_must_be_alone_waits_for_all_others() {
        let two = jobs(2);
        let alone = two.alone();
        assert_eq!(alone.most(), 1);
        let held = two.wait();
        thread::scope(|scope| {
            let (entered, seen) = mpsc::channel();
            scope.spawn(move || {
                let _running = alone.wait();
                entered.send(()).expect("the test waits");
            });
            assert!(seen.recv_timeout(Duration::from_millis(50)).is_err());
            drop(held);
            seen.recv().expect("the case is alone now");
        });
    }

    #[test]
    fn a_free_slot_goes_to_the_lowest_rank_that_waits() {
        let one = jobs(1);
        let held = one.wait();
        let (entered, order) = mpsc::channel();
        thread::scope(|scope| {
            for rank in [2, 0, 1] {
                let (ranked, entered) = (one.ranked(rank), entered.clone());
                scope.spawn(move || {
                    let _running = ranked.wait();
                    entered.send(rank).expect("the test waits");
                });
            }
            while one.pool.lock().waiting.values().sum::<usize>() < 3 {
                thread::yield_now();
            }
            drop(held);
        });
        drop(entered);
        assert!(order.iter().eq([0, 1, 2]));
    }

    #[test]
    fn slots_become_free_if_a_case_panics() {
        let one = jobs(1);
        let failed = thread::scope(|scope| {
            let case = scope.spawn(|| {
                let _running = one.wait();
                panic!("a case fails");
            });
            case.join()
        });
        assert!(failed.is_err());
        drop(one.wait());
    }

    #[test]
    fn cases_that_run_one_at_a_time_leave_the_other_slots() {
        let two = jobs(2);
        let single = two.one_at_a_time();
        assert_eq!((single.most(), two.most()), (1, 2));
        let _first = single.wait();
        drop(two.ranked(1).wait());
    }
}
