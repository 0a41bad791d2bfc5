//! The locks of a simulated machine, and the queues of the CPUs and tasks that wait for them.

pub(crate) mod cpu_lock;
pub(crate) mod lock;
pub(crate) mod lock_queue;
pub(crate) mod once;
pub(crate) mod rw_lock;
pub(crate) mod rw_lock_queue;
