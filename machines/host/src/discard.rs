//! Returning the memory of unused pages to the kernel.
//!
//! An address space that exits, or is reaped, passes its pages to a [`Discard`] just before it
//! frees them to their zones. [`ToKernel`] is a [`Discard`] that returns the memory of these pages
//! to the kernel, so that other processes can use it. Without a [`Discard`], killing a process when
//! memory is short would help only the users of this manager.
//!
//! The thread of [`ReturnFree`](crate::return_free::ReturnFree) uses [`ToKernel`] too: it passes
//! the huge blocks that have been free for a while.
//!
//! Each CPU has its own counters, in separate cache lines. No lock is taken unless the kernel
//! refuses.

use std::fmt;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::Discard;
use plimsoll_mm::units::{Order, Pages, Pfn};

use crate::Host;
use crate::arena::Arena;

/// The largest number of blocks that are sorted together, to find the adjacent ones. An address
/// space frees at most this many blocks at a time.
const TOGETHER: usize = 32;

/// Returns the memory of an [`Arena`]'s unused frames to the kernel (Linux: `MADV_DONTNEED`).
///
/// Adjacent frames are returned in one call. If the kernel refuses, no frame is lost: each refused
/// frame keeps its memory, is freed to its zone, and is counted in [`Given::refused`]. A clone is
/// another handle on the same counts.
///
/// ```
/// use std::sync::Arc;
///
/// use plimsoll_host::Host;
/// use plimsoll_host::arena::{Arena, HugePages};
/// use plimsoll_host::discard::ToKernel;
/// use plimsoll_mm::design::Design;
/// use plimsoll_mm::page::{Config, Layout};
/// use plimsoll_mm::space::{AddressSpace, Backing, MapRequest, Memory, Place, Spaces};
/// use plimsoll_mm::topology::Topology;
/// use plimsoll_mm::units::{Pages, Vpn};
/// use plimsoll_mm::Manager;
///
/// # #[expect(unsafe_code, reason = "nothing refers to the memory of the arena")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let arena = Arc::new(Arena::new(Pages(4096), HugePages::Refuse)?);
/// let host = Host::with_topology(Topology::flat(2));
/// let manager = Manager::new(&host, Config::new(Layout::arena(arena.pages())))?;
/// // SAFETY: only `spaces` hand frames to it, and nothing refers to the memory of a page that
/// // has left its address space.
/// let to_kernel = unsafe { ToKernel::new(&host, Arc::clone(&arena)) };
/// let spaces = Spaces::new(&host, &Design::OURS, 0)?.discarding(to_kernel.clone());
///
/// let memory = Memory::new(&host, &manager, &spaces);
/// let space = AddressSpace::new(memory)?;
/// let request = MapRequest {
///     place: Place::Fixed(Vpn(512)),
///     pages: 1000,
///     backing: Backing::Anonymous { huge: false },
/// };
/// let mapped = space.map(memory, request)?;
/// space.populate(memory, mapped.start..mapped.end)?;
/// // … its user writes to its pages, and the kernel has to find memory for them.
///
/// space.exit(memory)?;
/// assert!(to_kernel.given().pages >= 1000, "its page tables too");
/// assert!(to_kernel.given().calls <= 100, "neighbours go together");
/// space.destroy(&host)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ToKernel(Arc<Shared>);

struct Shared {
    arena: Arc<Arena>,
    /// The counts of each CPU.
    counts: Box<[Counts]>,
    error: Mutex<Option<io::Error>>,
}

/// The counts of one CPU, in cache lines that no other data shares.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    pages: AtomicU64,
    calls: AtomicU64,
    refused: AtomicU64,
}

/// The amount of memory that was returned to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The number of frames whose memory the kernel accepted. A frame is counted each time that it
    /// is returned, even if it never had memory.
    pub pages: u64,
    /// The number of calls that asked the kernel to take memory back.
    pub calls: u64,
    /// The number of frames whose memory the kernel refused to take back. These frames keep their
    /// memory.
    pub refused: u64,
}

impl ToKernel {
    /// Creates a [`ToKernel`] for the pages of the manager of `host`: page `n` is frame `n` of
    /// `arena`.
    ///
    /// # Safety
    /// For every frame that is passed to [`Discard::discard`] of this value or of a clone: until
    /// that call returns, no reference to the frame's memory may exist, and no thread may read or
    /// write it. This holds if clones are passed only to
    /// [`Spaces::discarding`](plimsoll_mm::space::Spaces::discarding), for address spaces whose
    /// users and notifiers have no pointer to a page after the page has left the address space.
    /// [`ReturnFree::start`](crate::return_free::ReturnFree::start) has a contract of its own.
    #[expect(
        unsafe_code,
        reason = "discarding a frame destroys its contents, even for code that has a reference to it"
    )]
    #[must_use]
    pub unsafe fn new(host: &Host, arena: Arc<Arena>) -> Self {
        let counts = host.topology().ids().map(|_cpu| Counts::default());
        Self(Arc::new(Shared {
            arena,
            counts: counts.collect(),
            error: Mutex::default(),
        }))
    }

    /// The amount of memory that was returned to the kernel so far. The result is exact if no
    /// memory is being returned now.
    #[must_use]
    pub fn given(&self) -> Given {
        let mut given = Given::default();
        for counts in &self.0.counts {
            // Relaxed is enough: these are only counts, and no other memory access depends on them.
            given.pages += counts.pages.load(Relaxed);
            given.calls += counts.calls.load(Relaxed);
            given.refused += counts.refused.load(Relaxed);
        }
        given
    }

    /// Returns the first error since the last call of this method, and clears it.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        let mut error = self.0.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.take()
    }

    /// Returns the memory of a free block to the kernel. The result is false if the kernel refused
    /// it.
    ///
    /// # Safety
    /// Until the call returns, no reference to the memory of the block's frames may exist, and no
    /// thread may read or write it.
    #[expect(unsafe_code, reason = "as for `Arena::give_back`")]
    pub(crate) unsafe fn give_block(&self, host: &Host, first: Pfn, order: Order) -> bool {
        // SAFETY: the caller guarantees what `give` requires: until the call returns, nothing uses
        // the memory of these frames.
        unsafe { self.give(self.counts(host), first, order.pages()) }
    }

    fn counts(&self, host: &Host) -> &Counts {
        &self.0.counts[host.this_cpu().index()]
    }

    /// Returns the memory of adjacent frames to the kernel. The result is false if the kernel
    /// refused it.
    ///
    /// # Safety
    /// Until the call returns, no reference to the memory of these frames may exist, and no thread
    /// may read or write it.
    #[expect(unsafe_code, reason = "as for `Arena::give_back`")]
    unsafe fn give(&self, counts: &Counts, first: Pfn, pages: Pages) -> bool {
        // Relaxed is enough: no other memory access depends on the counts. The addition has to be
        // atomic, because two threads may use the counts of one CPU.
        counts.calls.fetch_add(1, Relaxed);
        // SAFETY: the caller guarantees what `give_back` requires: until the call returns, nothing
        // uses the memory of these frames.
        let given = unsafe { self.0.arena.give_back(first, pages) };
        match given {
            Ok(()) => {
                counts.pages.fetch_add(pages.0.into(), Relaxed);
                true
            }
            Err(why) => {
                let mut error = self.0.error.lock().unwrap_or_else(PoisonError::into_inner);
                error.get_or_insert(why);
                counts.refused.fetch_add(pages.0.into(), Relaxed);
                false
            }
        }
    }
}

impl Discard<Host> for ToKernel {
    fn discard(&self, host: &Host, pfns: &[Pfn], order: Order) {
        let counts = self.counts(host);
        let Pages(each) = order.pages();
        for pfns in pfns.chunks(TOGETHER) {
            let mut sorted = [Pfn(0); TOGETHER];
            let sorted = &mut sorted[..pfns.len()];
            sorted.copy_from_slice(pfns);
            sorted.sort_unstable();
            for run in sorted.chunk_by(|one, next| next.0 - one.0 == each) {
                let blocks = u32::try_from(run.len()).expect("few");
                // SAFETY: the frames were handed to `discard`, and the caller of `new` guarantees
                // that nothing uses them.
                #[expect(unsafe_code, reason = "see `ToKernel::new`")]
                let given = unsafe { self.give(counts, run[0], Pages(blocks * each)) };
                // Ignore the result: if the kernel does not take the memory, the frames keep it,
                // and `give` has counted these frames.
                let _given = given;
            }
        }
    }
}

impl fmt::Debug for ToKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToKernel")
            .field("given", &self.given())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use plimsoll_mm::topology::Topology;

    use super::*;
    use crate::arena::HugePages;

    fn of(pages: u32) -> (Host, Arc<Arena>, ToKernel) {
        let host = Host::with_topology(Topology::flat(2));
        let arena = Arena::new(Pages(pages), HugePages::Refuse).expect("a little can be mapped");
        let arena = Arc::new(arena);
        arena.populate().expect("the kernel has a little");
        // SAFETY: nothing refers to the arena's memory.
        #[expect(unsafe_code, reason = "no thread has a pointer to a frame")]
        let to_kernel = unsafe { ToKernel::new(&host, Arc::clone(&arena)) };
        (host, arena, to_kernel)
    }

    #[test]
    fn neighbours_go_in_one_call_whatever_their_order() {
        let (host, arena, to_kernel) = of(1024);
        let pfns = [7, 3, 5, 4, 100].map(Pfn);
        to_kernel.discard(&host, &pfns, Order::ZERO);
        let expected = Given {
            pages: 5,
            calls: 3,
            refused: 0,
        };
        assert_eq!(to_kernel.given(), expected);
        assert_eq!(arena.resident().expect("Linux says"), Pages(1019));

        let blocks = [64, 32, 128].map(Pfn);
        to_kernel.discard(&host, &blocks, Order::new(5).expect("at most 10"));
        let given = to_kernel.clone().given();
        assert_eq!((given.pages, given.calls), (101, 5));
        assert_eq!(arena.resident().expect("Linux says"), Pages(1024 - 5 - 96));
    }

    #[test]
    fn more_than_go_together_all_go() {
        let (host, arena, to_kernel) = of(512);
        let pfns: Vec<Pfn> = (0..256).rev().map(Pfn).collect();
        to_kernel.discard(&host, &pfns, Order::ZERO);
        assert_eq!((to_kernel.given().pages, to_kernel.given().calls), (256, 8));
        assert_eq!(arena.resident().expect("Linux says"), Pages(256));
    }

    #[test]
    fn what_is_refused_is_counted_and_its_reason_kept() {
        let (host, _arena, to_kernel) = of(16);
        assert!(to_kernel.take_error().is_none());
        to_kernel.discard(&host, &[Pfn(15), Pfn(16), Pfn(3)], Order::ZERO);
        let given = to_kernel.given();
        assert_eq!((given.pages, given.calls, given.refused), (1, 2, 2));
        let why = to_kernel.take_error().expect("frame 16 is none of 16");
        assert_eq!(why.kind(), io::ErrorKind::InvalidInput);
        assert!(to_kernel.take_error().is_none());
    }
}
