//! Checks the locks of `host` under shuttle. The files of the locks are compiled with shuttle's
//! atomics. There are more threads than under loom, in random interleavings.

#[expect(
    dead_code,
    reason = "only fronts use the numbers of seats and what they hold"
)]
#[path = "../../host/src/locks/biased.rs"]
mod biased;
#[path = "../../host/src/locks/fifo.rs"]
mod fifo;
#[path = "../../host/src/job_queue.rs"]
mod job_queue;
#[path = "host_locks/laws.rs"]
mod laws;
#[path = "../../host/src/locks/raw.rs"]
mod raw;
#[path = "../../host/src/locks/ticket.rs"]
mod ticket;

/// The module that provides atomics and threads to the locks of `host`.
mod sync {
    use std::sync::atomic::Ordering::SeqCst;

    use shuttle::sync::atomic::fence;
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicUsize};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{Thread, current, park, park_timeout, sleep};

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

mod locks {
    pub(crate) use super::sync;
}

/// The items of shuttle that the laws (contracts that tests check) use: threads, atomics, and
/// seats. In a seat, a thread notes which biased lock it holds.
mod checker {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};
    pub(crate) use shuttle::sync::{Condvar, Mutex};
    pub(crate) use shuttle::thread;

    use crate::biased::Seat;

    shuttle::lazy_static! {
        static ref SEATS: Vec<Seat> = (0..3).map(Seat::new).collect();
    }

    pub(crate) fn seats() -> &'static [Seat] {
        &SEATS
    }
}

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};
use ticket::Ticket;

/// The seed of the random choices. It is the same in every run, so a test that failed will fail
/// again.
const SEED: u64 = 0x706c_696d;

fn explore(schedules: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // Turn off shuttle's warning that it ignores memory orderings.
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config).run(run);
}

#[test]
fn locks_have_one_holder() {
    explore(2000, || laws::holders_are_alone::<Ticket>(4, 2));
    explore(2000, laws::tries_are_alone_too::<Ticket>);
    explore(2000, laws::tickets_wrap);
    explore(2000, laws::tickets_are_served_in_order);
}

#[test]
fn a_biased_lock_has_one_holder() {
    explore(4000, laws::an_owner_meets_a_drain);
    explore(4000, laws::an_owner_meets_another_thread);
    explore(4000, laws::an_owner_meets_both);
    explore(2000, || laws::a_lock_without_owners_has_one_holder(4));
}

#[test]
fn no_waiter_is_lost_in_a_fifo() {
    explore(2000, || laws::waiters_pass_alone(4));
    explore(2000, laws::waiters_pass_in_order);
    explore(2000, laws::a_killed_waiter_leaves_the_queue_whole);
}

/// 20 threads wait in a queue that has room for only 16 waiters. Each of them becomes first in the
/// queue once, and no thread is lost.
#[test]
fn a_full_fifo_lets_every_waiter_in() {
    explore(300, || laws::waiters_pass_alone(19));
}

#[test]
fn a_job_queue_loses_no_job() {
    explore(2000, laws::a_deferred_job_starts);
    explore(2000, laws::a_job_queue_that_closes_ends_its_worker);
}
