//! Memory for pages, its manager, and the threads that maintain it, in one object.
//!
//! A [`Pool`] puts together what an embedder needs: a [`Host`], an [`Arena`], a [`Manager`], the
//! worker threads of its periodic work and, if wanted, [named counters](NamedCounters). The parts
//! remain accessible. A thread that [enters](Pool::enter) the pool gets a [`Bound`]. The methods of
//! a [`Bound`] do not need the machine as an argument.
//!
//! ```
//! use plimsoll_host::pool::Pool;
//! use plimsoll_mm::counter::CounterSpec;
//! use plimsoll_mm::page::Request;
//! use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::builder()
//!     .pages(Pages(16 << 8)) // 16 MiB
//!     .cpus(2)
//!     .counter(CounterSpec { name: "requests", unit: "requests" })
//!     .build()?;
//! let here = pool.enter(CpuId(0))?;
//!
//! let page = here.alloc(Request::new(Order::ZERO))?;
//! let _memory = pool.page(page); // 4 KiB at this address are ours
//! here.free(page, Order::ZERO)?;
//!
//! let mut many = [Pfn(0); 200];
//! here.alloc_pages(Request::new(Order::ZERO), &mut many)?;
//! here.free_pages(&many)?;
//!
//! let requests = pool.counter("requests").ok_or("it was named above")?;
//! here.count(requests, 1);
//! assert!(pool.vmstat().any(|row| row.to_string() == "requests 1"));
//! # Ok(())
//! # }
//! ```

mod bound;
mod builder;
mod error;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::counter::{CounterId, CounterRow, NamedCounters};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::PageAllocator;
use plimsoll_mm::units::{CpuId, Pfn};

pub use self::bound::Bound;
pub use self::builder::{Builder, CPUS_MAX, PAGES_DEFAULT, Upkeep};
pub use self::error::{BuildError, EnterError};
use crate::Host;
use crate::arena::Arena;
use crate::workers::{Panicked, Workers};

/// Memory for pages, its manager, and the threads that maintain it. A clone is another handle on
/// the same pool.
///
/// When the last handle is dropped, the worker threads end, and the memory is unmapped. A pointer
/// to a page is invalid from then on. If the job of a worker thread has panicked, the drop panics
/// with the payload of the first such panic ([`Workers`]).
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    /// Declared first, so that it is dropped first: the worker threads use the other fields.
    workers: Option<Workers>,
    counters: Option<NamedCounters<Host>>,
    manager: Arc<Manager<Host>>,
    arena: Arc<Arena>,
    host: Host,
}

impl Pool {
    /// Returns a builder with the defaults that the methods of [`Builder`] document.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The machine of the pool. Threads act as its CPUs.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// The manager of the pool's memory.
    #[must_use]
    pub fn manager(&self) -> &Arc<Manager<Host>> {
        &self.0.manager
    }

    /// The page allocator, which manages all frames of the arena.
    #[must_use]
    pub fn pages(&self) -> &PageAllocator<Host> {
        self.0.manager.pages()
    }

    /// The memory. Frame `n` of the arena is page `n` of the manager.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.0.arena
    }

    /// Returns a pointer to the first byte of a frame, as [`Arena::page`] does.
    ///
    /// # Panics
    /// If the arena has no such frame.
    #[must_use]
    pub fn page(&self, pfn: Pfn) -> NonNull<u8> {
        self.0.arena.page(pfn)
    }

    /// The named counters, which [`Builder::counter`] added; `None` if there are none.
    #[must_use]
    pub fn counters(&self) -> Option<&NamedCounters<Host>> {
        self.0.counters.as_ref()
    }

    /// Returns the counter that [`Builder::counter`] added under this name; `None` if there is
    /// none. The search takes time, so look a counter up once and keep the result.
    #[must_use]
    pub fn counter(&self, name: &str) -> Option<CounterId> {
        self.counters()?.find(name)
    }

    /// Lists the manager's counters and then the pool's named counters, each with its precise sum
    /// (Linux: `/proc/vmstat`).
    pub fn vmstat(&self) -> impl Iterator<Item = CounterRow> {
        let named = self.counters().into_iter();
        let named = named.flat_map(|counters| counters.list(self.host()));
        self.manager().vmstat(self.host()).chain(named)
    }

    /// Makes the calling thread play `cpu` (act as this CPU of the pool) until the returned value
    /// is dropped, as [`Host::enter`] does. Several threads may play one CPU. If such a thread
    /// finds that CPU's page lists locked by another thread, it uses the zone instead.
    ///
    /// # Errors
    /// [`EnterError::NoSuchCpu`] if the machine has no such CPU.
    pub fn enter(&self, cpu: CpuId) -> Result<Bound<'_>, EnterError> {
        self.check_cpu(cpu)?;
        Ok(Bound::new(self, self.host().enter(cpu)))
    }

    /// Makes the calling thread play `cpu` (act as this CPU of the pool), and pins it to one real
    /// CPU, until the returned value is dropped ([`Host::enter_pinned`]).
    ///
    /// # Errors
    /// [`EnterError::NoSuchCpu`] if the machine has no such CPU; [`EnterError::Pin`] if the thread
    /// cannot be pinned. After an error, the thread plays no CPU.
    pub fn enter_pinned(&self, cpu: CpuId) -> Result<Bound<'_>, EnterError> {
        self.check_cpu(cpu)?;
        let entered = self.host().enter_pinned(cpu).map_err(EnterError::Pin)?;
        Ok(Bound::new(self, entered))
    }

    /// Makes the calling thread play (act as) the CPU on which the kernel runs it at the moment,
    /// until the returned value is dropped. If the thread plays a CPU of this pool already, it
    /// continues to play that CPU. If the kernel later moves the thread, the thread still uses the
    /// page lists of the same CPU, which costs only locality.
    pub fn bind(&self) -> Bound<'_> {
        let cpu = self.host().this_cpu();
        Bound::new(self, self.host().enter(cpu))
    }

    /// The panics of worker threads; `None` if there were none. A worker thread panics only if an
    /// observer or another part that the embedder supplied panics.
    #[must_use]
    pub fn panicked(&self) -> Option<Panicked> {
        self.0.workers.as_ref()?.panicked()
    }

    fn check_cpu(&self, cpu: CpuId) -> Result<(), EnterError> {
        let cpus = self.host().topology().cpus();
        if cpu.0 < cpus {
            Ok(())
        } else {
            Err(EnterError::NoSuchCpu { cpu, cpus })
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("host", self.host())
            .field("pages", &self.arena().pages())
            .finish_non_exhaustive()
    }
}
