//! Tests the stacks of free pages that `host` keeps for each CPU or thread. The tests run under
//! shuttle, which tries random interleavings, so they can have more threads than the tests under
//! loom. `stack.rs` is compiled with shuttle's atomics.

#[expect(dead_code, reason = "only the seats are used")]
#[path = "../../host/src/locks/biased.rs"]
mod biased;
#[path = "host_fronts/counters.rs"]
mod counters;
#[path = "host_fronts/frees.rs"]
mod frees;
#[path = "../../host/src/fronts/homes.rs"]
mod homes;
#[path = "host_fronts/laws.rs"]
mod laws;
#[path = "host_fronts/rseq.rs"]
mod rseq;
#[expect(dead_code, reason = "the laws use no counts")]
#[path = "../../host/src/fronts/stack.rs"]
mod stack;

/// The module that provides atomics, the mutex and seats to `stack.rs` and `biased.rs`.
mod sync {
    use std::sync::atomic::Ordering::SeqCst;

    use shuttle::sync::atomic::fence;
    pub(crate) use shuttle::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    pub(crate) use crate::biased::{Seat, Sitter};

    pub(crate) const STACK_CAPACITY: usize = 2;
    pub(crate) const STRANGE_MAX: u32 = 1;

    pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        lock.try_lock().ok()
    }

    pub(crate) fn heavy_barrier() {
        fence(SeqCst);
    }

    pub(crate) fn light_barrier() {
        fence(SeqCst);
    }
}

/// The parts of shuttle that the tests use: threads, atomics, CPUs, and seats (in a seat, a thread
/// notes the stack that it uses).
mod checker {
    pub(crate) use shuttle::sync::atomic::AtomicU32;
    pub(crate) use shuttle::sync::{Condvar, Mutex};
    pub(crate) use shuttle::{thread, thread_local};

    use crate::biased::Seat;
    use crate::rseq::{CPUS, Cpu};

    shuttle::lazy_static! {
        static ref SEATS: Vec<Seat> = (0..2).map(Seat::new).collect();
        static ref REAL_CPUS: [Cpu; CPUS] = Default::default();
    }

    pub(crate) fn cpus() -> &'static [Cpu; CPUS] {
        &REAL_CPUS
    }

    pub(crate) fn seats() -> &'static [Seat] {
        &SEATS
    }
}

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};

/// The seed of the random choices. It is the same in every run, so a test that failed will fail
/// again.
const SEED: u64 = 0x706c_696d;

fn explore(schedules: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // Shuttle would warn that it ignores memory orderings, which the authors of these tests know.
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config).run(run);
}

#[test]
fn an_owned_stack_loses_no_page() {
    explore(4000, laws::an_owner_meets_a_drain);
    explore(4000, laws::an_owner_meets_a_stranger);
    explore(4000, laws::a_drained_stack_gets_one_owner);
}

#[test]
fn a_restartable_stack_loses_no_page() {
    explore(4000, laws::a_cpu_meets_a_drain);
    explore(4000, laws::two_threads_share_a_cpu);
    explore(4000, laws::a_cpu_meets_another);
    explore(8000, laws::cpus_and_a_drain_meet);
}

#[test]
fn a_stack_from_which_runs_are_taken_loses_no_page() {
    explore(4000, laws::an_owner_of_runs_meets_a_drain);
    explore(4000, laws::runs_meet_a_drain);
    explore(4000, laws::runs_meet_single_pages);
    explore(4000, laws::runs_of_two_cpus_meet);
    explore(4000, laws::runs_meet_a_change_of_home);
}

#[test]
fn counters_by_restartable_sequences_are_exact() {
    explore(4000, counters::two_threads_add_on_a_cpu);
    explore(4000, counters::a_home_moves);
    explore(4000, counters::two_cpus_want_the_home);
    explore(8000, counters::a_home_moves_among_three);
}

#[test]
fn a_freed_page_is_in_one_place() {
    explore(4000, frees::two_threads_of_a_cpu_free);
    explore(4000, frees::two_threads_fill_a_stack);
    explore(4000, frees::a_stopped_second_free_changes_nothing);
    explore(4000, frees::frees_meet_a_drain);
    explore(4000, frees::two_threads_free_one_page);
}
