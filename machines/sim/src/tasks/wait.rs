//! The record of a single wait for a lock. Observers that need more than totals receive one such
//! record for each wait.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};

/// Identifies a lock among the locks that exist at one time. An id can be compared only with other
/// ids of the same run. The ids of a lock can differ between two runs of the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(usize);

impl LockId {
    /// The id of the lock whose queue is `queue`.
    pub(crate) fn of<T>(queue: &T) -> Self {
        Self(std::ptr::from_ref(queue).addr())
    }

    /// Creates an id for a test that has no lock.
    #[must_use]
    pub const fn new(number: usize) -> Self {
        Self(number)
    }
}

/// A finished wait of a task for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The lock.
    pub lock: LockId,
    /// The class of the lock.
    pub class: LockClass,
    /// The call site that requested the lock.
    pub site: Site,
    /// The way in which the task requested the lock.
    pub access: Access,
    /// The CPU on which the task requested the lock.
    pub cpu: CpuId,
    /// The task that waited.
    pub task: u32,
    /// The time at which the wait began.
    pub from: Nanos,
    /// The time at which the wait ended.
    pub until: Nanos,
    /// The CPU of the task that held the lock, or was admitted to it last, when the request
    /// arrived.
    pub blocker: CpuId,
    /// The call site at which the task on the CPU `blocker` requested the lock.
    pub blocker_site: Site,
    /// True if Linux has a trace event for the wait. Linux has none for the first waiter of a
    /// queued spinlock.
    pub traced: bool,
}

/// The way in which a task requests a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The task requests a lock that one task holds alone, and spins while it waits.
    Spin,
    /// The task requests a lock that one task holds alone, and sleeps while it waits.
    Sleep,
    /// The task requests a reader-writer lock as a reader.
    Read,
    /// The task requests a reader-writer lock as a writer.
    Write,
}

/// A function that is called for each wait.
pub(crate) type WaitObserver = Box<dyn FnMut(&Wait)>;
