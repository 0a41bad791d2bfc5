//! Tasks: coroutines and their stacks, waits, deferred jobs, and ticks.

pub(crate) mod coroutine;
pub(crate) mod job;
pub(crate) mod reschedule;
pub(crate) mod stacks;
pub(crate) mod step;
pub(crate) mod stepping;
pub(crate) mod stretch;
pub(crate) mod task;
pub(crate) mod tick;
pub(crate) mod wait;
