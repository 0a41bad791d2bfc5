//! Checks the locks of `host` under shuttle: their files are compiled with shuttle's atomics. There
//! are more threads than under loom, in random interleavings.

#[path = "../../host/src/locks/fifo.rs"]
mod fifo;
#[path = "../../host/src/locks/flag.rs"]
mod flag;
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
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{Thread, current, park, park_timeout, sleep};
}

mod locks {
    pub(crate) use super::sync;
}

/// The threads and atomics that the laws use.
mod checker {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};
    pub(crate) use shuttle::sync::{Condvar, Mutex};
    pub(crate) use shuttle::thread;
}

use flag::Flag;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};
use ticket::Ticket;

/// The seed of the random choices. It is fixed, so that a law that failed will fail again.
const SEED: u64 = 0x706c_696d;

fn explore(schedules: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // Shuttle would warn that it ignores orderings.
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config).run(run);
}

#[test]
fn locks_have_one_holder() {
    explore(2000, || laws::holders_are_alone::<Flag>(4, 2));
    explore(2000, || laws::holders_are_alone::<Ticket>(4, 2));
    explore(2000, || laws::impatient_waiters_are_alone::<Flag>(3));
    explore(2000, laws::tries_are_alone_too::<Flag>);
    explore(2000, laws::tries_are_alone_too::<Ticket>);
    explore(2000, laws::tickets_wrap);
    explore(2000, laws::tickets_are_served_in_order);
}

#[test]
fn no_waiter_is_lost_in_a_fifo() {
    explore(2000, || laws::waiters_pass_alone(4));
    explore(2000, laws::waiters_pass_in_order);
    explore(2000, laws::a_killed_waiter_leaves_the_queue_whole);
}

/// 20 threads arrive, but the queue has room for only 16 waiters.
#[test]
fn a_full_fifo_lets_every_waiter_in() {
    explore(300, || laws::waiters_pass_alone(19));
}

#[test]
fn a_job_queue_loses_no_job() {
    explore(2000, laws::a_deferred_job_starts);
    explore(2000, laws::a_job_queue_that_closes_ends_its_worker);
}
