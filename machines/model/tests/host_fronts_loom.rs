//! Checks under loom the stacks of free pages that `host` keeps for each CPU or thread. `stack.rs`
//! is compiled with loom's atomics, which model weak memory. A restartable sequence is modelled
//! step by step, and can be stopped before each store.

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

/// What `stack.rs` and `biased.rs` import: loom's atomics and mutex, and `Seat`, in which a thread
/// notes which lock it holds.
mod sync {
    use std::sync::atomic::Ordering::SeqCst;

    use loom::sync::atomic::fence;
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) use crate::biased::{Seat, Sitter};

    pub(crate) const STACK_CAPACITY: usize = 2;
    pub(crate) const STRANGE_MAX: u32 = 1;

    pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        lock.try_lock().ok()
    }

    /// Stands for `membarrier`, which issues a full barrier on all CPUs that run threads of the
    /// process. Here the calling thread's barrier is enough, because `light_barrier` is a full
    /// barrier too.
    pub(crate) fn heavy_barrier() {
        fence(SeqCst);
    }

    pub(crate) fn light_barrier() {
        fence(SeqCst);
    }
}

/// The parts of loom that the tests use: threads, atomics, CPUs, and seats (in a seat, a thread
/// notes the stack that it uses).
mod checker {
    pub(crate) use loom::sync::atomic::AtomicU32;
    pub(crate) use loom::sync::{Condvar, Mutex};
    pub(crate) use loom::{thread, thread_local};

    use crate::biased::Seat;
    use crate::rseq::{CPUS, Cpu};

    loom::lazy_static! {
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

/// Tries all interleavings of `run`, or only those with at most `preemptions` preemptions.
fn explore(preemptions: Option<usize>, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
}

#[test]
fn an_owned_stack_loses_no_page() {
    explore(None, laws::an_owner_meets_a_drain);
    explore(Some(3), laws::an_owner_meets_a_stranger);
    explore(Some(3), laws::a_drained_stack_gets_one_owner);
}

#[test]
fn a_restartable_stack_loses_no_page() {
    explore(Some(3), laws::a_cpu_meets_a_drain);
    explore(Some(3), laws::two_threads_share_a_cpu);
    explore(Some(3), laws::a_cpu_meets_another);
    explore(Some(1), laws::cpus_and_a_drain_meet);
}

#[test]
fn a_stack_from_which_runs_are_taken_loses_no_page() {
    explore(None, laws::an_owner_of_runs_meets_a_drain);
    explore(Some(3), laws::runs_meet_a_drain);
    explore(Some(3), laws::runs_meet_single_pages);
    explore(Some(3), laws::runs_of_two_cpus_meet);
    explore(Some(3), laws::runs_meet_a_change_of_home);
}

#[test]
fn counters_by_restartable_sequences_are_exact() {
    explore(Some(3), counters::two_threads_add_on_a_cpu);
    explore(Some(3), counters::a_home_moves);
    explore(Some(3), counters::two_cpus_want_the_home);
    explore(Some(1), counters::a_home_moves_among_three);
}

#[test]
fn a_freed_page_is_in_one_place() {
    explore(Some(3), frees::two_threads_of_a_cpu_free);
    explore(Some(3), frees::two_threads_fill_a_stack);
    explore(Some(3), frees::a_stopped_second_free_changes_nothing);
    explore(Some(3), frees::frees_meet_a_drain);
    explore(Some(3), frees::two_threads_free_one_page);
}
