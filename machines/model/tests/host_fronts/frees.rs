//! Tests of the restartable sequence that frees a page: it changes the page's tag, and pushes the
//! page onto the stack of its CPU. Each function is one run; a checker calls it once for each
//! interleaving.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use plimsoll_mm::machine::Freed;

use crate::checker::AtomicU32;
use crate::laws::{join, spawn};
use crate::rseq::{CPUS, Cpu};
use crate::stack::{OPERATION, Stack};
use crate::sync::heavy_barrier;

/// The tag of an allocated page.
const ALLOCATED: u32 = 1;
/// The tag of a page in a stack, or on its way from there to a page list.
const FRONTED: u32 = 2;
/// The number of pages in a test.
const PAGES: usize = 2;

/// An empty stack, whose home is CPU 0, and two allocated pages.
struct World {
    stack: Stack,
    tags: [AtomicU32; PAGES],
    cpus: [Cpu; CPUS],
}

impl World {
    /// Creates a stack for up to `limit` pages.
    fn new(limit: u32) -> Arc<Self> {
        let world = Self {
            stack: Stack::new(),
            tags: [(); PAGES].map(|()| AtomicU32::new(ALLOCATED)),
            cpus: Default::default(),
        };
        world.stack.limit.store(limit, Relaxed);
        world.stack.home.store(0, Relaxed);
        Arc::new(world)
    }

    fn tag(&self, page: u32) -> &AtomicU32 {
        &self.tags[page as usize]
    }

    /// The restartable sequence of a free, step by step as in assembly (`rseq/x86_64.rs`).
    fn free_on(&self, cpu: usize, page: u32) -> Freed {
        let (stack, tag) = (&self.stack, self.tag(page));
        // The sequence sets a register to -1 just before it stores the tag.
        let mut is_marked = false;
        let freed = self.cpus[cpu].restart(|sequence| {
            if mem::take(&mut is_marked) && tag.load(Relaxed) == FRONTED {
                return Some(Some(Freed::Tagged));
            }
            if stack.home.load(Acquire) as usize != cpu || tag.load(Relaxed) != ALLOCATED {
                return Some(Some(Freed::Unchanged));
            }
            let state = stack.state.load(Relaxed);
            let depth = state % OPERATION;
            if depth >= u64::from(stack.limit.load(Relaxed)) {
                return Some(None);
            }
            let depth = usize::try_from(depth).expect("few pages");
            sequence.step(|| stack.pages[depth].store(page, Relaxed))?;
            is_marked = true;
            sequence.step(|| tag.store(FRONTED, Relaxed))?;
            sequence.step(|| stack.state.store(state + OPERATION + 1, Relaxed))?;
            Some(Some(Freed::Pushed))
        });
        freed.unwrap_or_else(|| self.retag_on(cpu, page))
    }

    /// The restartable sequence that only changes the tag, step by step as in assembly
    /// (`rseq/x86_64.rs`).
    fn retag_on(&self, cpu: usize, page: u32) -> Freed {
        let tag = self.tag(page);
        self.cpus[cpu].restart(|sequence| {
            let is_home = self.stack.home.load(Acquire) as usize == cpu;
            if !is_home || tag.load(Relaxed) != ALLOCATED {
                return Some(Freed::Unchanged);
            }
            sequence.step(|| tag.store(FRONTED, Relaxed))?;
            Some(Freed::Tagged)
        })
    }

    /// Takes all pages off the stack.
    fn empty(&self) -> Vec<u32> {
        let mut got = Vec::new();
        let stop = |home: u32| {
            self.cpus[home as usize].switch();
            heavy_barrier();
        };
        self.stack.empty(stop, |pages| got.extend_from_slice(pages));
        got
    }

    /// Asserts that each page is in exactly one place after each was freed once. `freed` are the
    /// outcomes of the frees, and `drained` are pages that were taken off the stack.
    fn is_whole(&self, freed: [(u32, Freed); PAGES], drained: Vec<u32>) {
        let mut found = drained;
        found.extend(self.empty());
        for &page in &found {
            assert_eq!(self.tag(page).load(Relaxed), FRONTED, "page {page}");
        }
        for (page, outcome) in freed {
            let tag = self.tag(page).load(Relaxed);
            let (is_pushed, expected) = match outcome {
                Freed::Pushed => (true, FRONTED),
                Freed::Tagged => (false, FRONTED),
                Freed::Unchanged => (false, ALLOCATED),
            };
            let times = found.iter().filter(|&&other| other == page).count();
            let seen = (times, tag);
            assert_eq!(seen, (usize::from(is_pushed), expected), "page {page}");
        }
    }
}

/// Asserts that each page is in one place if two threads of a CPU free a page each, and each stops
/// the other's sequences.
pub(crate) fn two_threads_of_a_cpu_free() {
    let world = World::new(2);
    let other = spawn(&world, |world| world.free_on(0, 1));
    let freed = world.free_on(0, 0);
    let freed = [(0, freed), (1, join(other))];
    assert!(freed.iter().all(|(_, freed)| *freed != Freed::Unchanged));
    world.is_whole(freed, Vec::new());
}

/// Asserts the same if the stack has room for only one page.
pub(crate) fn two_threads_fill_a_stack() {
    let world = World::new(1);
    let other = spawn(&world, |world| world.free_on(0, 1));
    let freed = world.free_on(0, 0);
    let freed = [(0, freed), (1, join(other))];
    assert!(freed.iter().all(|(_, freed)| *freed != Freed::Unchanged));
    assert!(freed.iter().any(|(_, freed)| *freed == Freed::Tagged));
    world.is_whole(freed, Vec::new());
}

/// Asserts that a free of a page that is in the stack changes nothing, if another thread of the CPU
/// stops its sequence.
pub(crate) fn a_stopped_second_free_changes_nothing() {
    let world = World::new(2);
    assert_eq!(world.free_on(0, 0), Freed::Pushed);
    let other = spawn(&world, |world| world.free_on(0, 1));
    assert_eq!(world.free_on(0, 0), Freed::Unchanged);
    world.is_whole([(0, Freed::Pushed), (1, join(other))], Vec::new());
}

/// Asserts that each page is in one place if a thread frees pages while another thread empties the
/// stack.
pub(crate) fn frees_meet_a_drain() {
    let world = World::new(2);
    let drain = spawn(&world, World::empty);
    let freed = [0, 1].map(|page| (page, world.free_on(0, page)));
    world.is_whole(freed, join(drain));
}

/// Asserts that if two threads of a CPU free the same page, at least one of the frees succeeds. If
/// one of them returns that nothing has changed, the page is in one place.
pub(crate) fn two_threads_free_one_page() {
    let world = World::new(2);
    let other = spawn(&world, |world| world.free_on(0, 0));
    let freed = [world.free_on(0, 0), join(other)];
    let in_stack = world.empty().len();
    let places = in_stack
        + freed
            .iter()
            .filter(|freed| **freed == Freed::Tagged)
            .count();
    let failed = freed.iter().filter(|freed| **freed == Freed::Unchanged);
    assert_eq!(places + failed.count(), 2, "{freed:?}");
    assert!(places >= 1, "one of the frees must succeed");
    assert_eq!(world.tag(0).load(Relaxed), FRONTED);
}
