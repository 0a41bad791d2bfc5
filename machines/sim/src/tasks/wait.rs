//! Single waits for locks, for observers that want more than their sum.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};

/// A wait for a lock that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The class of the lock.
    pub class: LockClass,
    /// The call site that asked for the lock.
    pub site: Site,
    /// The way in which it asked.
    pub access: Access,
    /// The CPU on which it asked.
    pub cpu: CpuId,
    /// The task that waited.
    pub task: u32,
    /// The time at which the wait began.
    pub from: Nanos,
    /// The time at which the wait ended.
    pub until: Nanos,
    /// True if Linux has a trace event for the wait; the first waiter of a queued spinlock has
    /// none.
    pub traced: bool,
}

/// The way in which a task asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Exclusively, spinning.
    Spin,
    /// Exclusively, sleeping.
    Sleep,
    /// Shared with other readers.
    Read,
    /// Exclusively, of a lock that readers share.
    Write,
}

/// A function that is called for each wait.
pub(crate) type WaitObserver = Box<dyn FnMut(&Wait)>;
