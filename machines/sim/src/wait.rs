//! Single waits for locks, for observers that want more than their sum.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};

use crate::cpu::NOBODY;
use crate::engine::Inner;
use crate::handle::Sim;
use crate::record::LockCells;
use crate::stats::LongestWait;

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
    /// Whether Linux has a trace event for the wait: the first waiter of a queued spinlock has
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

impl Inner {
    /// Counts a wait of the running task that has ended, and passes it to observers.
    pub(crate) fn waited(
        &self,
        (class, site): (LockClass, Site),
        access: Access,
        wait: LongestWait,
        traced: bool,
    ) {
        let cells: &LockCells = self.record.lock(class, site);
        cells.waited(wait, traced);
        self.cpu().record_wait(class, wait.wait.0);
        for observer in &mut *self.wait_observers.borrow_mut() {
            observer(&Wait {
                class,
                site,
                access,
                cpu: wait.cpu,
                task: self.cpu().current.get(),
                from: wait.at,
                until: wait.at + wait.wait,
                traced,
            });
        }
    }
}

impl Sim {
    /// Calls `observer` for each wait for a lock, once the wait has ended.
    pub fn observe_waits(&self, observer: impl FnMut(&Wait) + 'static) {
        self.0.wait_observers.borrow_mut().push(Box::new(observer));
    }

    /// The task that runs on this CPU, kernel work included; `None` if the CPU is idle.
    #[must_use]
    pub fn this_task(&self) -> Option<u32> {
        let task = self.0.cpu().current.get();
        (task != NOBODY).then_some(task)
    }
}
