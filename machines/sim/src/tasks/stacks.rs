//! The stacks of simulated tasks: a limit on their number, and a pool of spare ones.
//!
//! A simulated machine may create tens of thousands of short tasks. Mapping a stack, protecting its
//! guard page and unmapping the stack takes three system calls, which all threads of a process make
//! under one lock; unmapping also interrupts every CPU that runs one of these threads. So each
//! thread keeps the stacks of its ended tasks, and gives them to its next tasks.
//!
//! Each stack takes two kernel mappings: its memory and its guard page. Linux allows a process
//! `vm.max_map_count` mappings. At that limit the process can map nothing more, not even the memory
//! that unwinding needs. So this module counts stacks, and refuses a new stack before the limit is
//! reached.
//!
//! The refusal is a panic with the payload [`NoStack`], whose text tells the user what to do. The
//! panic bypasses the panic hook, so the embedder that catches the panic has to print the text.

use std::cell::RefCell;
use std::fmt;
use std::panic;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use corosensei::stack::{DefaultStack, Stack, StackPointer};

/// The number of mappings that one stack takes.
const MAPS_OF_A_STACK: usize = 2;
/// The number of mappings that stacks leave to the rest of the process.
const MAPS_OF_OTHERS: usize = 4096;

/// The most stacks that a thread keeps for later tasks. Tasks rarely use more than 12 KiB of their
/// stack, so a full pool holds about 50 MiB of memory.
const SPARE_MAX: usize = 4096;

thread_local! {
    /// The stacks of ended tasks of this thread. The stack that was used last is at the end and is
    /// taken first, because the host's caches may still have parts of it.
    static SPARE: RefCell<Vec<TaskStack>> = const { RefCell::new(Vec::new()) };
}

/// The number of stacks of all simulated machines in this process, including spare ones.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The payload of the panic with which [`Sim::spawn`](crate::Sim::spawn) refuses to give a task a
/// stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoStack {
    /// The number of stacks that existed: the largest number allowed, or fewer if the kernel
    /// refused a stack before that number was reached.
    pub stacks: usize,
    /// The number of mappings that the kernel allows a process; `None` if it is not known.
    pub maps_max: Option<usize>,
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stacks, maps_max } = self;
        write!(
            f,
            "no room for the stack of another simulated task: there are {stacks}"
        )?;
        match maps_max {
            Some(maps) => write!(
                f,
                ", each takes {MAPS_OF_A_STACK} of the {maps} mappings that vm.max_map_count allows; use \
                 fewer --jobs, fewer --workers or a smaller machine, or raise it: \
                 sysctl -w vm.max_map_count={}",
                4 * maps
            ),
            None => write!(
                f,
                "; use fewer --jobs, fewer --workers or a smaller machine"
            ),
        }
    }
}

impl std::error::Error for NoStack {}

/// A stack that returns to the pool of the current thread when its lease is dropped.
pub(crate) struct Lease(Option<TaskStack>);

struct TaskStack {
    stack: DefaultStack,
    /// The size that was asked for, in bytes. The host may have rounded it up.
    bytes: usize,
    _room: Room,
}

impl Lease {
    /// Takes a spare stack of `bytes` bytes, or maps a new one.
    ///
    /// # Panics
    /// With a [`NoStack`], if the limit is reached or the host refuses a stack.
    pub(crate) fn take(bytes: usize) -> Self {
        let spare = SPARE.with_borrow_mut(|spare| {
            let at = spare.iter().rposition(|stack| stack.bytes == bytes)?;
            Some(spare.swap_remove(at))
        });
        Self(Some(spare.unwrap_or_else(|| TaskStack::map(bytes))))
    }

    pub(crate) fn base(&self) -> StackPointer {
        self.stack().base()
    }

    pub(crate) fn limit(&self) -> StackPointer {
        self.stack().limit()
    }

    fn stack(&self) -> &DefaultStack {
        let held = self
            .0
            .as_ref()
            .expect("a lease has its stack until it is dropped");
        &held.stack
    }
}

/// Unmaps the spare stacks of the current thread.
pub(crate) fn unmap_spare() {
    SPARE.with_borrow_mut(Vec::clear);
}

#[cfg(windows)]
impl Lease {
    pub(crate) fn teb_fields(&self) -> corosensei::stack::StackTebFields {
        self.stack().teb_fields()
    }

    pub(crate) fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        if let Some(held) = &mut self.0 {
            held.stack
                .update_teb_fields(stack_limit, guaranteed_stack_bytes);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.0.take();
        // If the thread is ending and its pool is gone, or if the pool is full, the stack is
        // unmapped when `held` is dropped.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.extend(held.take());
            }
        });
    }
}

impl TaskStack {
    fn map(bytes: usize) -> Self {
        let room = Room::take();
        Self {
            stack: DefaultStack::new(bytes).unwrap_or_else(|_refused| NoStack::refused().raise()),
            bytes,
            _room: room,
        }
    }
}

/// The right to allocate one stack. When this value is dropped, the right is given back.
#[derive(Debug)]
pub(crate) struct Room(());

impl Room {
    /// Reserves the right to one stack.
    ///
    /// # Panics
    /// With a [`NoStack`], if the limit is reached.
    pub(crate) fn take() -> Self {
        Self::take_of(&LIVE, maps_max()).unwrap_or_else(|why| why.raise())
    }

    fn take_of(live: &AtomicUsize, maps_max: Option<usize>) -> Result<Self, NoStack> {
        let most = maps_max.map_or(usize::MAX, |maps| {
            maps.saturating_sub(MAPS_OF_OTHERS) / MAPS_OF_A_STACK
        });
        // Relaxed is enough: this is only a count, and no other memory access depends on it.
        let before = live.fetch_add(1, Relaxed);
        if before < most {
            return Ok(Self(()));
        }
        live.fetch_sub(1, Relaxed);
        let stacks = most;
        Err(NoStack { stacks, maps_max })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Relaxed);
    }
}

impl NoStack {
    /// The error if the kernel refuses a stack although the count of stacks is below the limit.
    pub(crate) fn refused() -> Self {
        Self {
            stacks: LIVE.load(Relaxed),
            maps_max: maps_max(),
        }
    }

    /// Unwinds with this value as the payload.
    pub(crate) fn raise(self) -> ! {
        panic::resume_unwind(Box::new(self))
    }
}

/// The number of mappings that the kernel allows a process; `None` if it is not known.
fn maps_max() -> Option<usize> {
    static MAX: OnceLock<Option<usize>> = OnceLock::new();
    *MAX.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
        text.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_too_many_is_refused_before_the_kernel_has_no_mapping_left() {
        let live = AtomicUsize::new(0);
        let take = || Room::take_of(&live, Some(4100)).map(std::mem::forget);
        assert_eq!((take(), take()), (Ok(()), Ok(())));
        let (stacks, maps_max) = (2, Some(4100));
        assert_eq!(take(), Err(NoStack { stacks, maps_max }));
        assert_eq!(live.load(Relaxed), 2, "a refused stack is not counted");
        assert_eq!(Room::take_of(&live, None).map(std::mem::forget), Ok(()));
    }

    #[test]
    fn an_ended_tasks_stack_serves_the_next_task_that_wants_the_same_size() {
        let first = Lease::take(64 << 10);
        let base = first.base();
        drop(first);
        let larger = Lease::take(128 << 10);
        assert_ne!(larger.base(), base, "a stack of another size");
        let again = Lease::take(64 << 10);
        assert_eq!(again.base(), base);
        let other = Lease::take(64 << 10);
        assert_ne!(
            other.base(),
            base,
            "a stack in use is not given to another task"
        );
    }

    #[test]
    fn a_full_pool_unmaps_the_stacks_that_do_not_fit() {
        let leases: Vec<Lease> = (0..SPARE_MAX + 3).map(|_| Lease::take(16 << 10)).collect();
        drop(leases);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let (stacks, maps_max) = (30_717, Some(65_530));
        let text = NoStack { stacks, maps_max }.to_string();
        assert!(
            text.contains("there are 30717, each takes 2 of the 65530"),
            "{text}"
        );
        assert!(
            text.ends_with("sysctl -w vm.max_map_count=262120"),
            "{text}"
        );
    }
}
