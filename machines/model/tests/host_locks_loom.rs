//! Checks the locks of `host` under loom. The files of the locks are compiled with loom's atomics,
//! which model weak memory.

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
#[path = "host_locks/loom_sync.rs"]
mod sync;
#[path = "../../host/src/locks/ticket.rs"]
mod ticket;

mod locks {
    pub(crate) use super::sync;
}

/// The items of loom that the laws (contracts that tests check) use: threads, atomics, and seats.
/// In a seat, a thread notes which biased lock it holds.
mod checker {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32};
    pub(crate) use loom::sync::{Condvar, Mutex};
    pub(crate) use loom::thread;

    use crate::biased::Seat;

    loom::lazy_static! {
        static ref SEATS: Vec<Seat> = (0..3).map(Seat::new).collect();
    }

    pub(crate) fn seats() -> &'static [Seat] {
        &SEATS
    }
}

use std::sync::{Mutex, PoisonError};

use ticket::Ticket;

/// A thread holds this lock while loom tries interleavings, so that only one test of this program
/// does so at a time. Loom maps and unmaps a stack for each thread of each interleaving. If two
/// tests do that at once, they wait for each other in the kernel, and together take longer than one
/// after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Tries all interleavings of `run`, or only those with at most `preemptions` preemptions.
fn explore(preemptions: Option<usize>, run: impl Fn() + Send + Sync + 'static) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
}

/// Loom does not know that the holder will release the lock, so it lets a waiter find the lock held
/// forever. For this reason waiters give up in this test; under shuttle they wait.
#[test]
fn a_biased_lock_has_one_holder_of_two_threads() {
    explore(None, laws::an_owner_meets_a_drain);
    explore(None, laws::an_owner_meets_another_thread);
}

#[test]
fn a_biased_lock_has_one_holder_of_three_threads() {
    explore(Some(2), laws::an_owner_meets_both);
}

#[test]
fn a_biased_lock_without_owners_has_one_holder() {
    explore(Some(2), || laws::a_lock_without_owners_has_one_holder(2));
}

#[test]
fn a_ticket_has_one_holder() {
    explore(None, || laws::holders_are_alone::<Ticket>(1, 1));
    explore(Some(2), || laws::holders_are_alone::<Ticket>(2, 1));
    explore(Some(2), laws::tries_are_alone_too::<Ticket>);
    explore(Some(2), laws::tickets_wrap);
}

#[test]
fn tickets_are_served_in_order() {
    explore(Some(3), laws::tickets_are_served_in_order);
}

#[test]
fn no_waiter_is_lost_in_a_fifo() {
    explore(None, || laws::waiters_pass_alone(1));
    explore(Some(2), || laws::waiters_pass_alone(2));
    explore(Some(2), laws::waiters_pass_in_order);
}

#[test]
fn a_killed_waiter_leaves_a_fifo_whole() {
    explore(Some(2), laws::a_killed_waiter_leaves_the_queue_whole);
}

#[test]
fn a_job_queue_loses_no_job() {
    explore(Some(3), laws::a_deferred_job_starts);
    explore(Some(3), laws::a_job_queue_that_closes_ends_its_worker);
}
