//! Fronts of the machine in tests: a stack of free pages for each CPU, and one depot for the runs
//! of pages that full stacks give away.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard};

use plimsoll_mm::machine::{Freed, Front, Machine, Tags};
use plimsoll_mm::units::{CpuId, Order};

use super::machine::{Bytes, Plain};

/// A run of pages in the depot, and the CPU whose front (stack of free pages) has given it.
type Run = (CpuId, Box<[u32]>);

/// The depot: runs of free pages that full fronts (the CPUs' stacks of free pages) have given away.
/// All CPUs share the depot.
#[derive(Default)]
pub(crate) struct Depot {
    runs: Mutex<Vec<Run>>,
    /// True if the next free of a page behaves as if it had raced with another free of this page:
    /// as if it had read the page's tag before the other free changed the tag.
    is_late: AtomicBool,
    /// True if the next free of a page finds that another thread has taken the front away after the
    /// page got its new tag.
    is_lost: AtomicBool,
    /// True if the depot takes no run.
    is_full: AtomicBool,
    /// True if no CPU can use its front (its stack of free pages) until the CPU asks for the front
    /// again ([`Front::admits`]).
    is_away: AtomicBool,
    /// The number of pushes that still succeed, if this number is limited.
    pushes: Mutex<Option<u32>>,
    /// The largest limit of a front (a CPU's stack of free blocks), or `None` for [`USUAL_MOST`].
    most: Option<u32>,
    /// True if the limits of the fronts (the CPUs' stacks of free blocks) stay as they are.
    keeps_limits: AtomicBool,
    /// The limit of each front (a CPU's stack of free blocks of some order).
    limits: Mutex<BTreeMap<(u32, Order), u32>>,
}

/// The largest limit of a front (a CPU's stack of free blocks) in most tests.
const USUAL_MOST: u32 = 128;

impl Depot {
    /// The depot of a machine whose fronts (the CPUs' stacks of free blocks) have room for `most`
    /// blocks.
    pub(crate) fn of_long_fronts(most: u32) -> Self {
        Self {
            most: Some(most),
            ..Self::default()
        }
    }

    /// Makes the depot refuse all further runs of pages.
    pub(crate) fn fill_up(&self) {
        self.is_full.store(true, Relaxed);
    }

    /// Takes the fronts (the stacks of free pages) away from their CPUs, as if other threads had
    /// used them. A CPU can use its front again after it has asked for it.
    pub(crate) fn take_fronts_away(&self) {
        self.is_away.store(true, Relaxed);
    }

    /// Lets the next `pushes` pushes onto a front (a CPU's stack of free pages) succeed, and makes
    /// all later ones fail, as if another thread had taken the front away from the CPU. `None` ends
    /// that.
    pub(crate) fn limit_pushes(&self, pushes: Option<u32>) {
        *self.pushes.lock().expect("one thread") = pushes;
    }

    fn may_push(&self) -> bool {
        match &mut *self.pushes.lock().expect("one thread") {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    /// Runs `f`, and leaves the limits of the fronts (the CPUs' stacks of free blocks) as they are.
    pub(crate) fn keeping_limits<R>(&self, f: impl FnOnce() -> R) -> R {
        self.keeps_limits.store(true, Relaxed);
        let result = f();
        self.keeps_limits.store(false, Relaxed);
        result
    }

    /// The largest number of pages on the front for single pages (the stack of free pages) of
    /// `cpu`.
    pub(crate) fn limit_of(&self, cpu: u32) -> u32 {
        self.limit_for(cpu, Order::ZERO)
    }

    /// The largest number of blocks of `order` on the front (the stack of free blocks) of `cpu`.
    pub(crate) fn limit_for(&self, cpu: u32, order: Order) -> u32 {
        let limits = self.limits.lock().expect("one thread");
        limits.get(&(cpu, order)).copied().unwrap_or_default()
    }

    /// Makes the next free of a page to a front (a CPU's stack of free pages) succeed, although the
    /// page is already free. This happens if two frees race: both read the page's tag, which says
    /// whether the page is free, before either changes the tag.
    pub(crate) fn let_the_next_free_be_late(&self) {
        self.is_late.store(true, Relaxed);
    }

    /// Takes the front (the CPU's stack of free pages) away during the next free of a page to it:
    /// after the page got the tag of pages in fronts, and before the page is pushed. The CPU can use
    /// the front again after it has asked for it.
    pub(crate) fn take_the_front_away_during_the_next_free(&self) {
        self.is_lost.store(true, Relaxed);
    }

    /// The runs in the depot, from which any CPU may take a run. Each run is a list of pages.
    pub(crate) fn runs(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().expect("one thread")
    }
}

/// The front of a CPU: its stack of free pages. Only a thread on this CPU can use it.
pub(crate) struct Stack {
    cpu: CpuId,
    order: Order,
    pages: Mutex<Vec<u32>>,
    limit: AtomicU32,
    was_used: AtomicBool,
    /// The depot, which takes pages from full stacks; `None` if the machine has no fronts, and then
    /// the stack has no room.
    depot: Option<Arc<Depot>>,
}

impl Stack {
    pub(crate) fn new(cpu: CpuId, order: Order, depot: Option<Arc<Depot>>) -> Self {
        Self {
            cpu,
            order,
            pages: Mutex::default(),
            limit: AtomicU32::new(0),
            was_used: AtomicBool::new(false),
            depot,
        }
    }

    /// Returns whether a thread on the CPU of `machine` can use this front at the moment.
    fn is_mine(&self, machine: &Plain) -> bool {
        let depot = self.depot.as_ref();
        machine.this_cpu() == self.cpu && !depot.is_some_and(|depot| depot.is_away.load(Relaxed))
    }

    /// The depot, if CPUs exchange runs of blocks of this order.
    fn exchange(&self) -> Option<&Arc<Depot>> {
        self.depot.as_ref().filter(|_| self.order == Order::ZERO)
    }

    fn stack(&self) -> MutexGuard<'_, Vec<u32>> {
        self.pages.lock().expect("one thread")
    }
}

impl Front<Plain> for Stack {
    const CAPACITY: u32 = 1024;

    fn pop(&self, machine: &Plain) -> Option<u32> {
        let page = self.is_mine(machine).then(|| self.stack().pop())??;
        self.was_used.store(true, Relaxed);
        Some(page)
    }

    fn free(&self, machine: &Plain, tags: &Bytes, page: u32, old: u8, new: u8) -> Freed {
        if !self.is_mine(machine) || self.limit() == 0 {
            return Freed::Unchanged;
        }
        let depot = self.depot.as_ref();
        if depot.is_some_and(|depot| depot.is_late.swap(false, Relaxed)) {
            tags.set(page, new);
        } else if tags.replace(page, old, new).is_err() {
            return Freed::Unchanged;
        }
        if let Some(depot) = depot
            && depot.is_lost.swap(false, Relaxed)
        {
            depot.take_fronts_away();
        }
        if self.push(machine, page) {
            Freed::Pushed
        } else {
            Freed::Tagged
        }
    }

    fn push(&self, machine: &Plain, page: u32) -> bool {
        let mut pages = self.stack();
        let has_room = pages.len() < self.limit() as usize;
        let may = self.depot.as_ref().is_some_and(|depot| depot.may_push());
        if !self.is_mine(machine) || !has_room || !may {
            return false;
        }
        pages.push(page);
        self.was_used.store(true, Relaxed);
        true
    }

    fn admits(&self, machine: &Plain) -> bool {
        if let Some(depot) = &self.depot {
            depot.is_away.store(false, Relaxed);
        }
        machine.this_cpu() == self.cpu
    }

    fn empty(&self, _: &Plain, mut f: impl FnMut(&[u32])) {
        let mut pages = std::mem::take(&mut *self.stack());
        pages.reverse();
        f(&pages);
        let Some(depot) = self.exchange() else { return };
        let mine = |run: &mut Run| run.0 == self.cpu;
        let given: Vec<Run> = depot.runs().extract_if(.., mine).collect();
        given.iter().for_each(|run| f(&run.1));
    }

    fn give_run(&self, _: &Plain, pages: &[u32]) -> bool {
        let has_room = |depot: &&Arc<Depot>| !depot.is_full.load(Relaxed);
        let give = |depot: &Arc<Depot>| depot.runs().push((self.cpu, pages.into()));
        self.exchange().filter(has_room).map(give).is_some()
    }

    fn take_run(&self, _: &Plain, pages: &mut [u32]) -> bool {
        let run = self.exchange().and_then(|depot| depot.runs().pop());
        run.is_some_and(|run| {
            pages.copy_from_slice(&run.1);
            true
        })
    }

    fn blocks(&self) -> u32 {
        let given = self.exchange().map_or(0, |depot| {
            let runs = depot.runs();
            let mine = runs.iter().filter(|run| run.0 == self.cpu);
            mine.map(|run| run.1.len()).sum()
        });
        u32::try_from(self.stack().len() + given).expect("few pages")
    }

    fn is_idle(&self) -> bool {
        !self.was_used.swap(false, Relaxed)
    }

    fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    fn set_limit(&self, pages: u32) {
        if let Some(depot) = &self.depot
            && !depot.keeps_limits.load(Relaxed)
        {
            let pages = pages.min(depot.most.unwrap_or(USUAL_MOST));
            self.limit.store(pages, Relaxed);
            let mut limits = depot.limits.lock().expect("one thread");
            limits.insert((self.cpu.0, self.order), pages);
        }
    }
}
