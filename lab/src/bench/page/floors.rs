//! Floors: allocators that do less than a page allocator must do. Their times show how fast a page
//! allocator can be at best.

use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_host::cpu::Entered;
use plimsoll_host::fronts::{BareFront, Fronts};
use plimsoll_host::locks::OwnerLock;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::machine::{CpuLock, Machine};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::Pages;

use super::subject::{Frames, cpu_of, frame, give, pairs, take};
use super::{CPUS, FRAMES};

/// The floor, a minimal allocator with which others are compared: a stack of frames for each CPU,
/// behind a lock of the kind that Plimsoll's page lists have, and one common stack behind a mutex.
/// It has no zones, watermarks or statistics, merges no blocks, and does not check the frames that
/// are freed.
pub(super) struct Floor {
    host: Host,
    stacks: Vec<OwnerLock<Vec<u32>>>,
    common: Mutex<Vec<u32>>,
}

/// The number of frames that move at once between one CPU's stack of the floor (the minimal
/// allocator) and the common stack.
const FLOOR_BATCH: usize = 63;
/// The largest number of frames on one CPU's stack of the floor (the minimal allocator).
const FLOOR_MAX: usize = 1024;

impl Floor {
    pub(super) fn new() -> Self {
        let host = Host::with_topology(Topology::flat(CPUS));
        let locks = host.owner_locks();
        let stack = |_| OwnerLock::new(locks, Vec::with_capacity(FLOOR_MAX));
        Self {
            stacks: (0..CPUS).map(stack).collect(),
            common: Mutex::new((0..FRAMES.0).rev().collect()),
            host,
        }
    }

    fn stack(&self) -> &OwnerLock<Vec<u32>> {
        &self.stacks[self.host.this_cpu().index()]
    }

    fn common(&self) -> MutexGuard<'_, Vec<u32>> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn refill(&self, stack: &mut Vec<u32>) {
        let mut common = self.common();
        let left = common.len().saturating_sub(FLOOR_BATCH);
        stack.extend(common.drain(left..));
    }

    #[cold]
    fn spill(&self, stack: &mut Vec<u32>) {
        self.common().extend(stack.drain(..FLOOR_BATCH));
    }
}

impl Frames for Floor {
    const HAS_HUGE: bool = false;

    fn name(&self) -> String {
        "floor: stacks behind a lock".to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        Some(self.host.enter(cpu_of(thread)))
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        let taken = self.stack().try_local(&self.host, Site::PcpAlloc, |stack| {
            if stack.is_empty() {
                self.refill(stack);
            }
            stack.pop()
        });
        Some(taken?? as usize)
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        let pushed = self.stack().try_local(&self.host, Site::PcpFree, |stack| {
            if stack.len() == FLOOR_MAX {
                self.spill(stack);
            }
            stack.push(frame(block));
        });
        pushed.expect("no other CPU takes the lock");
    }

    fn settle(&self) {
        for stack in &self.stacks {
            stack.with(&self.host, Site::Drain, |stack| {
                self.common().append(stack);
            });
        }
    }
}

/// The floor of Plimsoll's allocator with fronts of one kind: a stack of 1024 frames for each CPU,
/// which a thread uses in the same way, with as little as possible around it ([`BareFront`]). It
/// cannot serve a load in which one thread frees what another has allocated.
pub(super) struct Bare {
    name: &'static str,
    host: Host,
    fronts: Vec<BareFront>,
}

impl Bare {
    /// Returns `None` if this computer has no fronts of this kind.
    pub(super) fn new(name: &'static str, kind: Fronts) -> Option<Self> {
        let pages = Pages(FRAMES.0 / CPUS);
        let fronts: Option<_> = (0..CPUS).map(|_| BareFront::new(kind, pages)).collect();
        Some(Self {
            name,
            host: Host::with_fronts(Topology::flat(CPUS), kind, OwnerLocks::Exchanged),
            fronts: fronts?,
        })
    }

    fn here(&self) -> &BareFront {
        &self.fronts[self.host.this_cpu().index()]
    }
}

#[inline(always)]
fn alloc(front: &BareFront) -> Option<usize> {
    front.alloc().map(|page| page as usize)
}

/// If the frame is not freed, an allocation fails later, and the sample does not count.
#[inline(always)]
fn free(front: &BareFront, block: usize) {
    let _freed = front.free(frame(block));
}

impl Frames for Bare {
    const HAS_HUGE: bool = false;
    const PASSES: bool = false;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        let entered = self.host.enter(cpu_of(thread));
        self.here().enter();
        Some(entered)
    }

    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        alloc(self.here())
    }

    fn free<const ORDER: u8>(&self, block: usize) {
        free(self.here(), block);
    }

    fn pairs_of<const ORDER: u8>(&self, times: usize) {
        let here = self.here();
        pairs(times, || alloc(here), |block| free(here, block));
    }

    fn take_of<const ORDER: u8>(&self, blocks: &mut [usize]) -> usize {
        let here = self.here();
        take(blocks, || alloc(here))
    }

    fn give_of<const ORDER: u8>(&self, blocks: &[usize]) {
        let here = self.here();
        give(blocks, |block| free(here, block));
    }
}
