//! Locks of real CPUs under loom: the files of `host` over loom's atomics, every interleaving, on weak memory.

#[path = "../../host/src/desk.rs"]
mod desk;
#[path = "../../host/src/locks/flag.rs"]
mod flag;
#[path = "host_locks/laws.rs"]
mod laws;
#[path = "../../host/src/locks/raw.rs"]
mod raw;
#[path = "host_locks/loom_sync.rs"]
mod sync;
#[path = "../../host/src/locks/ticket.rs"]
mod ticket;
#[path = "../../host/src/locks/turnstile.rs"]
mod turnstile;

mod locks {
    pub(crate) use super::sync;
}

/// What laws are written with.
mod checker {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32};
    pub(crate) use loom::sync::{Condvar, Mutex};
    pub(crate) use loom::thread;
}

use flag::Flag;
use ticket::Ticket;

/// Without a bound on preemptions, unless a law is too large.
fn explore(preemptions: Option<usize>, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
}

/// A flag that is busy is set once more by a thread that finds it so. Loom does not know that this comes before
/// the release, and has it look busy for ever: so waiters give up here. Shuttle has them wait.
#[test]
fn a_flag_has_one_holder() {
    explore(None, || laws::who_gets_in_is_alone::<Flag>(0));
    explore(Some(2), || laws::who_gets_in_is_alone::<Flag>(1));
}

#[test]
fn a_ticket_has_one_holder() {
    explore(None, || laws::holders_are_alone::<Ticket>(1, 1));
    explore(Some(2), || laws::holders_are_alone::<Ticket>(2, 1));
    explore(Some(2), laws::who_tries_is_alone_too::<Ticket>);
    explore(Some(2), laws::tickets_wrap);
}

#[test]
fn tickets_are_served_in_order() {
    explore(Some(3), laws::tickets_are_served_in_order);
}

#[test]
fn nobody_is_lost_in_a_turnstile() {
    explore(None, || laws::who_waits_passes_alone(1));
    explore(Some(2), || laws::who_waits_passes_alone(2));
    explore(Some(2), laws::who_waits_passes_in_order);
}

#[test]
fn who_was_killed_leaves_a_turnstile_whole() {
    explore(Some(2), laws::who_was_killed_leaves_the_queue_whole);
}

#[test]
fn a_desk_loses_no_job() {
    explore(Some(3), laws::a_deferred_job_starts);
    explore(Some(3), laws::a_desk_that_closes_sends_its_worker_home);
}
