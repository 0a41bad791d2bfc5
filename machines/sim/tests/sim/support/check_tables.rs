//! Promise: page tables have entries only for pages of mappings, no page of an unmapped or reaped
//! range is left, and the counters of resident pages agree with the entries.
//!
//! While an operation is in progress, mappings, entries and counters may disagree: an unmapping
//! removes its mapping before the pages, and the counters change after the entries. So each process
//! counts its operations in progress, and a check that such an operation would disturb is skipped.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;

use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{AddressSpace, END, Flag, MappingKind, Walked};
use plimsoll_mm::units::{Order, Vpn};
use plimsoll_sim::Sim;

use super::space_shared::Process;

/// The largest number of page tables that helpers (threads that empty a dying address space) can
/// hand back for later helpers to empty. If helpers hand back more tables, the exit empties the
/// rest.
const HANDED_BACK_MAX: u32 = 16;

/// Counts the operations of one kind: those in progress, and all that have begun.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    now: Cell<u32>,
    begun: Cell<u64>,
}

impl UnderWay {
    pub(crate) fn during<R>(&self, f: impl FnOnce() -> R) -> R {
        self.now.set(self.now.get() + 1);
        self.begun.set(self.begun.get() + 1);
        let result = f();
        self.now.set(self.now.get() - 1);
        result
    }

    /// The number of operations begun so far; `None` if one is in progress.
    fn quiet(&self) -> Option<u64> {
        (self.now.get() == 0).then(|| self.begun.get())
    }
}

/// The helpers (threads other than the last user) that are emptying an address space, from the
/// arrival of the first until all have left.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    at_work: Cell<u32>,
    /// True if at least one of the helpers (threads such as the reaper) has left some pages.
    left_some: Cell<bool>,
}

impl Helpers {
    pub(crate) fn join(&self) {
        self.at_work.set(self.at_work.get() + 1);
    }

    /// Records that a helper (a thread such as the reaper) has finished. `left_some` says whether
    /// it has left some pages in memory. Returns true if no helper is at work any more and none of
    /// the helpers has left pages in memory.
    pub(crate) fn leave(&self, left_some: bool) -> bool {
        self.left_some.set(self.left_some.get() || left_some);
        self.at_work.set(self.at_work.get() - 1);
        self.at_work.get() == 0 && !self.left_some.replace(false)
    }
}

/// Adds the pages of `entry` to the sum for its kind, if a counter of resident pages counts it.
fn count(sum: &mut [u64; RssKind::ALL.len()], entry: &Walked) {
    if let Some(kind) = entry.counted {
        sum[kind as usize] += u64::from(entry.order.pages().0);
    }
}

/// Returns whether the page tables may have this entry for a page of a mapping of kind `mapping`.
fn fits(entry: &Walked, mapping: MappingKind) -> bool {
    let counted = entry.counted;
    match mapping {
        MappingKind::Anonymous => matches!(counted, Some(RssKind::Anon | RssKind::Swap)),
        MappingKind::PrivateFile => {
            entry.order == Order::ZERO && counted.is_some_and(|kind| kind != RssKind::Shmem)
        }
        MappingKind::Shared => entry.order == Order::ZERO && counted == Some(RssKind::Shmem),
        MappingKind::Reserved => entry.order == Order::HUGE && counted.is_none(),
        MappingKind::Frames => entry.order == Order::ZERO && counted.is_none(),
    }
}

/// Compares the page tables of `process` with the mappings. If no operation is in progress, also
/// compares the page tables with the counters. Returns whether the counters could be compared.
pub(crate) fn check(sim: &Sim, process: &Process) -> bool {
    let (changes, steps) = (process.changes.quiet(), process.steps.quiet());
    let mut sum = [0; RssKind::ALL.len()];
    let mut outside = Vec::new();
    process.space.walk(sim, Vpn(0)..END, |entry| {
        count(&mut sum, &entry);
        match entry.mapping {
            Some(mapping) => assert!(fits(&entry, mapping), "{entry:?}"),
            None => outside.push(entry),
        }
    });
    if changes.is_some() && changes == process.changes.quiet() {
        assert_eq!(outside, [], "nothing is mapped there");
    }
    if steps.is_none() || steps != process.steps.quiet() {
        return false;
    }
    for kind in RssKind::ALL {
        let counted = process.space.rss().precise(sim, kind);
        // Reading the counters takes time, so an operation may have begun since the comparison
        // began.
        if steps == process.steps.quiet() {
            assert_eq!(counted, sum[kind as usize], "{kind:?}");
        }
    }
    true
}

/// Checks, after `pages` were unmapped, that no entry for them is left. Only the caller may map
/// pages in this range.
pub(crate) fn check_unmapped(sim: &Sim, process: &Process, pages: Range<Vpn>) {
    process.space.walk(sim, pages.clone(), |entry| {
        panic!("{pages:?} are unmapped, and there is {entry:?}");
    });
}

/// If helpers such as the reaper have emptied everything, checks that no private page is left. From
/// then on, faults do not add private pages.
pub(crate) fn check_reaped(sim: &Sim, process: &Process) {
    if !process.is_reaped.get() {
        return;
    }
    process.space.walk(sim, Vpn(0)..END, |entry| {
        let private = entry.mapping.is_some_and(MappingKind::is_reapable);
        assert!(!private, "it was reaped, and there is {entry:?}");
    });
}

/// Checks, after the last user has emptied the address space, that no entry is left and that all
/// counters are 0.
pub(crate) fn check_exited(sim: &Sim, process: &Process) {
    assert!(process.space.has(sim, Flag::Ended));
    process.space.walk(sim, Vpn(0)..END, |entry| {
        panic!("it has ended, and there is {entry:?}");
    });
    for kind in RssKind::ALL {
        assert_eq!(process.space.rss().precise(sim, kind), 0, "{kind:?}");
    }
}

/// The number of reserved huge pages that have been touched.
pub(crate) fn reserved(sim: &Sim, space: &AddressSpace<Sim>) -> u64 {
    let mut reserved = 0;
    space.walk(sim, Vpn(0)..END, |entry| {
        let is_reserved = entry.counted.is_none() && entry.order == Order::HUGE;
        reserved += u64::from(is_reserved);
    });
    reserved
}

/// Records that a helper (a thread such as the reaper) has stopped emptying the address space with
/// the result `reaped`. Returns whether this helper has emptied everything, alone or together with
/// the helpers that were active at the same time.
pub(crate) fn is_all_reaped(process: &Process, reaping: Reaping, reaped: Reaped) -> bool {
    let all_left = process
        .helpers
        .leave(matches!(reaped, Reaped::GaveWay | Reaped::Partly));
    match reaping {
        // With these variants, each helper such as the reaper empties everything on its own.
        Reaping::Ascending | Reaping::DescendingByVma | Reaping::DescendingChunks => {
            reaped == Reaped::All
        }
        Reaping::MeetInTheMiddle => {
            reaped == Reaped::All && all_left && process.refusals() <= HANDED_BACK_MAX
        }
    }
}

/// The tasks that are freeing page tables. If the last user of an address space works alone, it
/// first empties all mappings. Only then does it free the page tables, which must be empty. If
/// helpers share the work ([`Reaping::MeetInTheMiddle`]), this order is not required, and nothing
/// is checked.
#[derive(Debug)]
pub(crate) struct Sweeps {
    reaping: Reaping,
    sweeping: RefCell<BTreeSet<Option<u32>>>,
}

impl Sweeps {
    pub(crate) fn new(reaping: Reaping) -> Self {
        Self {
            reaping,
            sweeping: RefCell::default(),
        }
    }

    pub(crate) fn note(&self, sim: &Sim, event: &Event) {
        if self.reaping == Reaping::MeetInTheMiddle {
            return;
        }
        let mut sweeping = self.sweeping.borrow_mut();
        let task = sim.this_task();
        match *event {
            Event::Begin(Phase::FreeTables) => assert!(sweeping.insert(task)),
            Event::End(Phase::FreeTables) => assert!(sweeping.remove(&task)),
            Event::Begin(Phase::TableLock) => assert!(
                !sweeping.contains(&task),
                "a table that goes has pages, which were in no mapping"
            ),
            _ => {}
        }
    }
}
