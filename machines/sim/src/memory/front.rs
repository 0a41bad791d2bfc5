//! The fronts of a simulated machine: for each CPU, stacks of free blocks in front of its page
//! lists. A machine has them only if its options say so ([`SimOptions::fronts`]).
//!
//! A front is a list behind a per-CPU lock. The CPU of the front tries to take the lock, and its call
//! is refused if another CPU holds the lock. A CPU that empties the front waits for the lock. So the
//! simulator tries what the manager does around the calls, but not how a real machine stops the user
//! of a front.
//!
//! A front has a share of the zone's *depot*, from which other CPUs take whole runs of pages.
//!
//! [`SimOptions::fronts`]: crate::SimOptions::fronts

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use plimsoll_mm::machine::{CpuLock, Freed, Front, Machine, Tags};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;

use crate::engine::state::Sim;
use crate::locks::cpu_lock::SimCpuLock;
use crate::memory::tags::SimTags;

/// The largest number of blocks on a stack.
const CAPACITY: u32 = 1024;
/// The number of pages in a run, which one CPU's stack gives and another one takes.
const RUN: usize = 64;
/// The largest number of runs of pages that the CPUs' stacks of one zone keep for each other.
const RUNS_MAX: usize = 8;

/// A stack of free blocks of one CPU, in virtual time. A machine without fronts has stacks that
/// never have room.
pub struct SimFront(Option<Box<Stack>>);

struct Stack {
    cpu: CpuId,
    blocks: SimCpuLock<Vec<u32>>,
    /// The number of blocks. CPUs read it without the lock.
    len: Cell<u32>,
    limit: Cell<u32>,
    /// True if the CPU has used the stack since the last call of [`Front::is_idle`].
    was_used: Cell<bool>,
    depot: Depot,
}

/// The runs of pages that the CPUs' stacks of one zone keep for each other: for each run, the CPU
/// whose stack gave it, and its pages.
type Depot = Rc<RefCell<Vec<(CpuId, [u32; RUN])>>>;

impl SimFront {
    /// Creates one front for each CPU, in the order of their numbers. Each front has room for blocks
    /// if `exists` is true.
    pub(crate) fn of_all(exists: bool) -> impl Iterator<Item = Self> {
        let depot = Depot::default();
        (0..).map(CpuId).map(move |cpu| {
            let stack = || Stack {
                cpu,
                blocks: SimCpuLock::new(LockClass::Pcp, cpu, Vec::new()),
                len: Cell::new(0),
                limit: Cell::new(0),
                was_used: Cell::new(false),
                depot: Rc::clone(&depot),
            };
            Self(exists.then(|| Box::new(stack())))
        })
    }

    /// Calls `f` with the blocks, if the caller runs on the CPU of the stack and no other CPU empties
    /// the stack.
    #[inline(always)]
    fn mine<R>(&self, sim: &Sim, f: impl FnOnce(&Stack, &mut Vec<u32>) -> R) -> Option<R> {
        let stack = self.0.as_ref()?;
        stack.mine(sim, f)
    }
}

impl Stack {
    fn mine<R>(&self, sim: &Sim, f: impl FnOnce(&Self, &mut Vec<u32>) -> R) -> Option<R> {
        if sim.this_cpu() != self.cpu {
            return None;
        }
        self.blocks.try_local(sim, Site::PcpAlloc, |blocks| {
            let done = f(self, blocks);
            self.note(blocks);
            done
        })
    }

    /// Notes that the CPU has used the stack, which now has these blocks.
    fn note(&self, blocks: &[u32]) {
        self.len.set(count(blocks.len()));
        self.was_used.set(true);
    }

    fn push(&self, blocks: &mut Vec<u32>, page: u32) -> bool {
        let has_room = count(blocks.len()) < self.limit.get();
        if has_room {
            blocks.push(page);
        }
        has_room
    }

    /// Takes the newest run that this stack has given out of the depot.
    fn own_run(&self) -> Option<[u32; RUN]> {
        let mut depot = self.depot.borrow_mut();
        let at = depot.iter().rposition(|run| run.0 == self.cpu)?;
        Some(depot.remove(at).1)
    }
}

impl Front<Sim> for SimFront {
    const CAPACITY: u32 = CAPACITY;

    #[inline]
    fn pop(&self, sim: &Sim) -> Option<u32> {
        self.mine(sim, |_stack, blocks| blocks.pop())?
    }

    #[inline]
    fn free(&self, sim: &Sim, tags: &SimTags, page: u32, old: u8, new: u8) -> Freed {
        let freed = self.mine(sim, |stack, blocks| {
            if tags.replace(page, old, new).is_err() {
                Freed::Unchanged
            } else if stack.push(blocks, page) {
                Freed::Pushed
            } else {
                Freed::Tagged
            }
        });
        freed.unwrap_or(Freed::Unchanged)
    }

    fn push(&self, sim: &Sim, page: u32) -> bool {
        let pushed = self.mine(sim, |stack, blocks| stack.push(blocks, page));
        pushed.unwrap_or(false)
    }

    fn admits(&self, sim: &Sim) -> bool {
        self.mine(sim, |_stack, _blocks| ()).is_some()
    }

    fn empty(&self, sim: &Sim, mut f: impl FnMut(&[u32])) {
        let Some(stack) = &self.0 else {
            return;
        };
        stack.blocks.with(sim, Site::Drain, |blocks| {
            while !blocks.is_empty() {
                let mut run = blocks.split_off(blocks.len().saturating_sub(RUN));
                stack.len.set(count(blocks.len()));
                run.reverse();
                f(&run);
            }
        });
        while let Some(run) = stack.own_run() {
            f(&run);
        }
    }

    fn give_run(&self, _sim: &Sim, pages: &[u32]) -> bool {
        let Some((stack, run)) = self.0.as_ref().zip(pages.try_into().ok()) else {
            return false;
        };
        let mut depot = stack.depot.borrow_mut();
        let has_room = depot.len() < RUNS_MAX;
        if has_room {
            depot.push((stack.cpu, run));
        }
        has_room
    }

    fn take_run(&self, _sim: &Sim, pages: &mut [u32]) -> bool {
        let Some(stack) = self.0.as_ref().filter(|_| pages.len() == RUN) else {
            return false;
        };
        let run = stack.depot.borrow_mut().pop();
        run.is_some_and(|run| {
            pages.copy_from_slice(&run.1);
            true
        })
    }

    fn blocks(&self) -> u32 {
        let Some(stack) = &self.0 else {
            return 0;
        };
        let depot = stack.depot.borrow();
        let given = depot.iter().filter(|run| run.0 == stack.cpu).count();
        stack.len.get() + count(given * RUN)
    }

    fn is_idle(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|stack| !stack.was_used.replace(false))
    }

    #[inline]
    fn limit(&self) -> u32 {
        self.0.as_ref().map_or(0, |stack| stack.limit.get())
    }

    fn set_limit(&self, blocks: u32) {
        if let Some(stack) = &self.0 {
            stack.limit.set(blocks.min(CAPACITY));
        }
    }
}

fn count(blocks: usize) -> u32 {
    u32::try_from(blocks).expect("a stack has few blocks")
}

impl fmt::Debug for SimFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFront")
            .field("limit", &<Self as Front<Sim>>::limit(self))
            .finish_non_exhaustive()
    }
}
