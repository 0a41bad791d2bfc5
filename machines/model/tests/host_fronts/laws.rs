//! Tests of the stacks of free pages that `host` keeps for each CPU or thread, which uses its stack
//! without a lock. Each function is one run; a checker calls it once for each interleaving.
//!
//! A thread that owns a page adds 1 to the page's word by a separate load and store. If two threads
//! own the page at once, or the second owner does not see what the first one did, an addition is
//! lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::biased::{Seat, Seating, Sitter};
use crate::checker::thread::{self, JoinHandle};
use crate::checker::{self, AtomicU32, Condvar, Mutex};
use crate::rseq::{CPUS, Cpu};
use crate::stack::{OPERATION, Stack};
use crate::sync::heavy_barrier;

/// The number of pages in a test.
const PAGES: u32 = 2;

/// A stack with all pages, and what the threads did with the pages.
struct World {
    stack: Stack,
    /// For each page, two counts of how often its owners have used it. The first count can lose a
    /// use if the page has two owners at once. The second is atomic and loses none.
    pages: [[AtomicU32; 2]; PAGES as usize],
    cpus: [Cpu; CPUS],
    /// True when the first owner of the stack will not use it any more. A thread that waits for the
    /// owner to leave the stack sleeps until this is true. If the waiting thread spun instead, a
    /// checker would let it spin forever.
    is_done: Mutex<bool>,
    done: Condvar,
}

impl World {
    /// Creates a stack that has all pages. The CPU or thread `home` uses it without a lock.
    fn new(home: u32) -> Arc<Self> {
        let word = || AtomicU32::new(0);
        let world = Self {
            stack: Stack::new(),
            pages: [(); PAGES as usize].map(|()| [word(), word()]),
            cpus: Default::default(),
            is_done: Mutex::new(false),
            done: Condvar::new(),
        };
        world.stack.limit.store(PAGES, Relaxed);
        for page in 0..PAGES {
            world.stack.pages[page as usize].store(page, Relaxed);
        }
        world.stack.state.store(PAGES.into(), Relaxed);
        world.stack.home.store(home, Relaxed);
        Arc::new(world)
    }

    /// Uses a page that the calling thread owns.
    fn touch(&self, page: u32) {
        let [sum, touches] = &self.pages[page as usize];
        let before = sum.load(Relaxed);
        sum.store(before + 1, Relaxed);
        touches.fetch_add(1, Relaxed);
    }

    /// Takes all pages off the stack, and uses each of them.
    fn empty(&self, quiesce: impl FnOnce(&Self, u32)) -> Vec<u32> {
        let mut got = Vec::new();
        self.stack.empty(
            |home| quiesce(self, home),
            |pages| got.extend_from_slice(pages),
        );
        got.iter().for_each(|&page| self.touch(page));
        got
    }

    /// Asserts that every page is in the stack or owned by a thread, and that no two threads owned
    /// a page at the same time.
    fn is_whole(&self, owned: impl IntoIterator<Item = u32>) {
        let mut pages: Vec<u32> = owned.into_iter().collect();
        self.stack.empty(
            |_home| heavy_barrier(),
            |rest| pages.extend_from_slice(rest),
        );
        pages.sort_unstable();
        let all: Vec<u32> = (0..PAGES).collect();
        assert_eq!(pages, all, "no page is lost or has two owners");
        for [sum, touches] in &self.pages {
            assert_eq!(
                sum.load(Relaxed),
                touches.load(Relaxed),
                "no addition is lost"
            );
        }
    }
}

/// The seats of the threads. A seat is memory in which one thread notes the stack that it uses.
struct Seats;

impl Seating for Seats {
    fn seats() -> &'static [Seat] {
        checker::seats()
    }
}

fn seat(index: usize) -> Sitter<'static> {
    Sitter::new(&Seats::seats()[index])
}

impl World {
    /// Waits until the owner of the stack no longer uses it. The code in `host` waits in the same
    /// way.
    fn stop_owner(&self, home: u32) {
        heavy_barrier();
        self.stack.wait_outside(Seats::seat_of(home), |looks| {
            let mut is_done = self.is_done.lock().expect("no thread panics inside");
            while looks > 0 && !*is_done {
                is_done = self.done.wait(is_done).expect("no thread panics inside");
            }
        });
    }

    /// Pops a page and pushes it again, as the stack's first owner. Then notes that this owner is
    /// done.
    fn pop_and_push_at_last(&self) -> Option<u32> {
        let kept = self.pop_and_push_at(0);
        *self.is_done.lock().expect("no thread panics inside") = true;
        self.done.notify_all();
        kept
    }

    /// Pops a page as the thread on seat `index`, uses it, and pushes it again. Returns the page if
    /// it could not be pushed.
    fn pop_and_push_at(&self, index: usize) -> Option<u32> {
        let me = seat(index);
        let page = self.stack.pop_at(me)?;
        self.touch(page);
        (!self.stack.push_at(me, page)).then_some(page)
    }
}

/// Starts a thread that runs `body` with `world`.
pub(crate) fn spawn<W: Send + Sync + 'static, R: Send + 'static>(
    world: &Arc<W>,
    body: impl FnOnce(&W) -> R + Send + 'static,
) -> JoinHandle<R> {
    let world = Arc::clone(world);
    thread::spawn(move || body(&world))
}

/// Waits until the thread has ended, and returns its result.
pub(crate) fn join<R>(thread: JoinHandle<R>) -> R {
    thread
        .join()
        .expect("a body that panics ends the whole model")
}

/// Asserts that no page is lost or owned twice if the owner of a stack uses it while another thread
/// empties it.
pub(crate) fn an_owner_meets_a_drain() {
    let world = World::new(seat(0).number());
    let drain = spawn(&world, |world| world.empty(World::stop_owner));
    let kept = world.pop_and_push_at_last();
    world.is_whole(join(drain).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if another thread becomes the owner of a stack, and
/// both threads use the stack.
pub(crate) fn an_owner_meets_a_stranger() {
    let world = World::new(seat(0).number());
    let other = spawn(&world, |world| {
        let me = seat(1).number();
        world.stack.admit(me, 1, |home| world.stop_owner(home));
        world.pop_and_push_at(1)
    });
    let kept = world.pop_and_push_at_last();
    world.is_whole(join(other).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if two threads want to become the owner of a stack
/// after a drain.
pub(crate) fn a_drained_stack_gets_one_owner() {
    let world = World::new(seat(0).number());
    let drained = world.empty(World::stop_owner);
    world.stack.limit.store(PAGES, Relaxed);
    let give = |world: &World, index: usize, page: u32| {
        let me = seat(index);
        let patience = u32::MAX;
        world.touch(page);
        world
            .stack
            .admit(me.number(), patience, |_home| unreachable!("it is patient"));
        (!world.stack.push_at(me, page)).then_some(page)
    };
    let [first, second] = [drained[0], drained[1]];
    let other = spawn(&world, move |world| give(world, 1, first));
    let kept = give(&world, 0, second);
    world.is_whole(join(other).into_iter().chain(kept));
}

impl World {
    /// The restartable sequence of a pop, step by step as in assembly (`rseq/x86_64.rs`).
    fn pop_on(&self, cpu: usize) -> Option<u32> {
        let stack = &self.stack;
        self.cpus[cpu].restart(|sequence| {
            if stack.home.load(Acquire) as usize != cpu {
                return Some(None);
            }
            let state = stack.state.load(Relaxed);
            let Some(top) = (state % OPERATION).checked_sub(1) else {
                return Some(None);
            };
            let top = usize::try_from(top).expect("few pages");
            // If the restartable sequence has been stopped, `top` may be out of date. `step` then
            // stores nothing.
            let page = stack.pages.get(top)?.load(Relaxed);
            sequence.step(|| stack.state.store(state + OPERATION - 1, Relaxed))?;
            Some(Some(page))
        })
    }

    /// The restartable sequence of a push, step by step as in assembly (`rseq/x86_64.rs`).
    fn push_on(&self, cpu: usize, page: u32) -> bool {
        let stack = &self.stack;
        self.cpus[cpu].restart(|sequence| {
            if stack.home.load(Acquire) as usize != cpu {
                return Some(false);
            }
            let state = stack.state.load(Relaxed);
            let depth = state % OPERATION;
            if depth >= u64::from(stack.limit.load(Relaxed)) {
                return Some(false);
            }
            let depth = usize::try_from(depth).expect("few pages");
            sequence.step(|| stack.pages[depth].store(page, Relaxed))?;
            sequence.step(|| stack.state.store(state + OPERATION + 1, Relaxed))?;
            Some(true)
        })
    }

    /// The restartable sequence that pops copied pages, step by step as in assembly
    /// (`rseq/x86_64.rs`).
    fn commit_on(&self, cpu: usize, before: u64, after: u64) -> bool {
        let stack = &self.stack;
        self.cpus[cpu].restart(|sequence| {
            if stack.home.load(Acquire) as usize != cpu || stack.state.load(Relaxed) != before {
                return Some(false);
            }
            sequence.step(|| stack.state.store(after, Relaxed))?;
            Some(true)
        })
    }

    /// The restartable sequence that pushes a run of pages, step by step as in assembly
    /// (`rseq/x86_64.rs`).
    fn push_run_on(&self, cpu: usize, pages: &[u32]) -> bool {
        let stack = &self.stack;
        self.cpus[cpu].restart(|sequence| {
            if stack.home.load(Acquire) as usize != cpu {
                return Some(false);
            }
            let state = stack.state.load(Relaxed);
            let depth = usize::try_from(state % OPERATION).expect("few pages");
            if depth + pages.len() > stack.limit.load(Relaxed) as usize {
                return Some(false);
            }
            for (place, page) in stack.pages[depth..].iter().zip(pages) {
                sequence.step(|| place.store(*page, Relaxed))?;
            }
            let after = state + OPERATION + pages.len() as u64;
            sequence.step(|| stack.state.store(after, Relaxed))?;
            Some(true)
        })
    }

    /// Pops a run of pages, uses them, and pushes them again. Returns the pages if they could not
    /// be pushed.
    fn pop_and_push_run_on(&self, cpu: usize) -> Vec<u32> {
        let mut run = [0; PAGES as usize];
        let number = u32::try_from(cpu).expect("few CPUs");
        let commit = |before, after| self.commit_on(cpu, before, after);
        let len = self.stack.pop_run_on(|| Some(number), &mut run, commit);
        let run = &run[..len];
        run.iter().for_each(|&page| self.touch(page));
        if len == 0 || self.push_run_on(cpu, run) {
            Vec::new()
        } else {
            run.to_vec()
        }
    }

    /// Does the same as the thread on seat 0, the stack's first owner. Then notes that this owner
    /// is done.
    fn pop_and_push_run_at_last(&self) -> Vec<u32> {
        let (me, mut run) = (seat(0), [0; PAGES as usize]);
        let len = self.stack.pop_run_at(me, &mut run);
        let run = &run[..len];
        run.iter().for_each(|&page| self.touch(page));
        let is_pushed = len > 0 && self.stack.push_run_at(me, run);
        *self.is_done.lock().expect("no thread panics inside") = true;
        self.done.notify_all();
        if is_pushed { Vec::new() } else { run.to_vec() }
    }

    fn pop_and_push_on(&self, cpu: usize) -> Option<u32> {
        let page = self.pop_on(cpu)?;
        self.touch(page);
        (!self.push_on(cpu, page)).then_some(page)
    }

    /// Stops the restartable sequences on a CPU, as the kernel does for `host`.
    fn stop_cpu(&self, home: u32) {
        self.cpus[home as usize].switch();
    }
}

/// Asserts that no page is lost or owned twice if a thread uses the stack of its CPU by restartable
/// sequences while another thread empties the stack.
pub(crate) fn a_cpu_meets_a_drain() {
    let world = World::new(0);
    let drain = spawn(&world, |world| world.empty(World::stop_cpu));
    let kept = world.pop_and_push_on(0);
    world.is_whole(join(drain).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if two threads of one CPU use the CPU's stack, and
/// each stops the other's sequences.
pub(crate) fn two_threads_share_a_cpu() {
    let world = World::new(0);
    let other = spawn(&world, |world| world.pop_and_push_on(0));
    let kept = world.pop_and_push_on(0);
    world.is_whole(join(other).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if a thread of another CPU takes over a stack while
/// it is in use.
pub(crate) fn a_cpu_meets_another() {
    let world = World::new(0);
    let other = spawn(&world, |world| {
        world.stack.admit(1, 1, |home| world.stop_cpu(home));
        world.pop_and_push_on(1)
    });
    let kept = world.pop_and_push_on(0);
    world.is_whole(join(other).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if two threads of one CPU, a thread of another CPU,
/// and a drain use one stack.
pub(crate) fn cpus_and_a_drain_meet() {
    let world = World::new(0);
    let drain = spawn(&world, |world| world.empty(World::stop_cpu));
    let others = [
        spawn(&world, |world| world.pop_and_push_on(0)),
        spawn(&world, |world| {
            world.stack.admit(1, 1, |home| world.stop_cpu(home));
            world.pop_and_push_on(1)
        }),
    ];
    let kept = world.pop_and_push_on(0);
    let others = others.map(join).into_iter().flatten();
    world.is_whole(join(drain).into_iter().chain(kept).chain(others));
}

/// Asserts that no page is lost or owned twice if the owner of a stack moves all pages at once
/// while another thread empties the stack.
pub(crate) fn an_owner_of_runs_meets_a_drain() {
    let world = World::new(seat(0).number());
    let drain = spawn(&world, |world| world.empty(World::stop_owner));
    let kept = world.pop_and_push_run_at_last();
    world.is_whole(join(drain).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if a thread moves all pages of the stack of its CPU
/// at once while another thread empties the stack.
pub(crate) fn runs_meet_a_drain() {
    let world = World::new(0);
    let drain = spawn(&world, |world| world.empty(World::stop_cpu));
    let kept = world.pop_and_push_run_on(0);
    world.is_whole(join(drain).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if one thread of a CPU moves all pages of the CPU's
/// stack at once, and another thread of the CPU moves single pages.
pub(crate) fn runs_meet_single_pages() {
    let world = World::new(0);
    let other = spawn(&world, |world| world.pop_and_push_on(0));
    let kept = world.pop_and_push_run_on(0);
    world.is_whole(join(other).into_iter().chain(kept));
}

/// Asserts that no page is lost or owned twice if a thread of another CPU takes over a stack whose
/// user moves all pages at once, and does the same.
pub(crate) fn runs_of_two_cpus_meet() {
    let world = World::new(0);
    let other = spawn(&world, |world| {
        world.stack.admit(1, 1, |home| world.stop_cpu(home));
        world.pop_and_push_run_on(1)
    });
    let kept = world.pop_and_push_run_on(0);
    world.is_whole(join(other).into_iter().chain(kept));
}

/// Asserts that a thread that pops a run sees the pages that the stack's previous user has pushed,
/// even if another thread has made the CPU of this thread the stack's user.
pub(crate) fn runs_meet_a_change_of_home() {
    let world = World::new(0);
    let other = spawn(&world, |world| world.pop_and_push_run_on(1));
    let kept = world.pop_and_push_run_on(0);
    world.stack.admit(1, 1, |home| world.stop_cpu(home));
    world.is_whole(join(other).into_iter().chain(kept));
}
