//! Stretches: the time that a CPU works without a reschedule point, at which a task in the kernel
//! may give up its CPU. The module `reschedule` explains these points.

use std::cell::{Cell, RefCell};

use plimsoll_mm::units::{CpuId, Nanos};

/// A period in which a CPU was busy and passed no reschedule point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The CPU that was busy.
    pub cpu: CpuId,
    /// The time at which the stretch began: the time of the reschedule point before it, or the end
    /// of the CPU's idle time.
    pub from: Nanos,
    /// The time of the next reschedule point; in an unfinished stretch, the time at which the run
    /// ended.
    pub until: Nanos,
}

/// A function that is called for each stretch.
type StretchObserver = Box<dyn FnMut(&Stretch)>;

/// The current stretch of each CPU, which is the time since its last reschedule point. Unused if no
/// observer asks for stretches.
#[derive(Default)]
pub(crate) struct Stretches {
    /// True if an observer asks for stretches.
    pub(crate) on: Cell<bool>,
    /// The shortest length, in nanoseconds, of the stretches that are passed to the observer.
    pub(crate) at_least: Cell<u64>,
    /// The beginning of each CPU's current stretch (time without a reschedule point), in
    /// nanoseconds.
    pub(crate) from: RefCell<Box<[u64]>>,
    pub(crate) observer: RefCell<Option<StretchObserver>>,
}
