//! Waits for locks, one by one, for observers who want more than their sum.

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
    /// What the lock guards.
    pub class: LockClass,
    /// Who asked for it.
    pub site: Site,
    /// How it was asked for.
    pub access: Access,
    /// On which CPU.
    pub cpu: CpuId,
    /// The task that waited.
    pub task: u32,
    /// When the wait began.
    pub from: Nanos,
    /// When it ended.
    pub until: Nanos,
    /// Whether Linux has an event for it: the first waiter of a queued spinlock has none.
    pub traced: bool,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For itself, waiting awake.
    Spin,
    /// For itself, waiting asleep.
    Sleep,
    /// Beside other readers.
    Read,
    /// For itself, against readers.
    Write,
}

/// What is called for each wait.
pub(crate) type WaitObserver = Box<dyn FnMut(&Wait)>;

impl Inner {
    /// Counts a wait of the running task that has ended, and tells observers.
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
    /// Calls `observer` for each wait for a lock, when it has ended.
    pub fn observe_waits(&self, observer: impl FnMut(&Wait) + 'static) {
        self.0.wait_observers.borrow_mut().push(Box::new(observer));
    }

    /// The task that runs on this CPU, kernel work included; none outside a run.
    #[must_use]
    pub fn this_task(&self) -> Option<u32> {
        let task = self.0.cpu().current.get();
        (task != NOBODY).then_some(task)
    }
}
