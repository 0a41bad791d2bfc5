//! Threads that allocate and free pages, and a check that no page has two owners.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::{Duration, Instant};

use plimsoll_host::affinity::CpuMask;
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::Manager;
use plimsoll_mm::counter::{AnyCounters, Batch, Counters, Counting, Plan};
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::{Config, FreeIndex, Layout, Local, Request, ResizeError, Sweep};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{Order, Pages, Pfn};

use crate::kernel;

const BLOCK: Pages = Order::MAX.pages();
/// The smallest number of pages of the zone.
const LEAST: Pages = Pages(12 * BLOCK.0);
/// The largest number of pages of the zone.
pub(crate) const MOST: Pages = Pages(16 * BLOCK.0);
/// The interval at which the test moves the threads to other CPUs.
const MOVE_EVERY: Duration = Duration::from_micros(10);

/// The counter of pages that threads hold now.
const HELD: usize = 0;
/// The counter of pages that threads have allocated.
const TAKEN: usize = 1;

/// The settings of a storm in which it differs from the other storms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) fronts: Fronts,
    pub(crate) index: FreeIndex,
    pub(crate) owning: Owning,
}

impl Setting {
    pub(crate) fn of(fronts: Fronts, index: FreeIndex) -> Self {
        Self {
            fronts,
            index,
            owning: Owning::None,
        }
    }
}

/// A manager, the owners of its pages, and counts of what the threads and the test have done.
pub(crate) struct Load {
    pub(crate) host: Host,
    pub(crate) manager: Manager<Host>,
    owners: Box<[AtomicU8]>,
    counters: AnyCounters<Host>,
    taken: AtomicU64,
    freed: AtomicU64,
    /// The ids (`gettid`) of the threads that the test interrupts, and moves to other CPUs.
    threads: Mutex<Vec<i32>>,
    pub(crate) moves: AtomicU64,
    pub(crate) signals: AtomicU64,
    pub(crate) forks: AtomicU64,
    pub(crate) cpus_taken: AtomicU64,
    resized: AtomicU64,
}

impl Load {
    pub(crate) fn new(cpus: u32, setting: Setting) -> Self {
        let topology = Topology::flat(cpus);
        let host = Host::with_fronts(topology, setting.fronts, OwnerLocks::Exchanged);
        let mut layout = Layout::arena_up_to(LEAST, MOST);
        layout.index = setting.index;
        let mut config = Config::new(layout);
        config.design.owning = setting.owning;
        // A short interval between two runs of the vmstat work makes this work coincide with all
        // other operations.
        let often = config.tunables.set(Knob::StatInterval, 10);
        often.expect("in bounds");
        let manager = Manager::new(&host, config).expect("a layout");
        let plan = Plan::new(&host, Counting::OneSided, 2, Batch::RSS).expect("few CPUs");
        Self {
            counters: plan.init_many(&host).expect("there is memory"),
            host,
            manager,
            owners: (0..MOST.0).map(|_| AtomicU8::new(0)).collect(),
            taken: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            threads: Mutex::default(),
            moves: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            forks: AtomicU64::new(0),
            cpus_taken: AtomicU64::new(0),
            resized: AtomicU64::new(0),
        }
    }

    /// Allocates a block and checks that no page of it has an owner.
    pub(crate) fn take(&self, order: Order) -> Option<Pfn> {
        self.take_by(None, order)
    }

    pub(crate) fn free(&self, pfn: Pfn, order: Order) {
        self.free_by(None, pfn, order);
    }

    /// Does the same as [`Load::take`], but allocates through `local` if it is given.
    fn take_by(&self, local: Option<Local<'_, Host>>, order: Order) -> Option<Pfn> {
        let request = Request::new(order);
        let pfn = match local {
            Some(local) => local.alloc(&self.host, request),
            None => self.manager.pages().alloc(&self.host, request),
        };
        let pfn = pfn.ok()?;
        for page in pfn.0..pfn.0 + order.pages().0 {
            let owners = self.owners[page as usize].fetch_add(1, AcqRel);
            assert_eq!(owners, 0, "page {page} had an owner already");
        }
        self.taken.fetch_add(order.pages().0.into(), Relaxed);
        let pages = i64::from(order.pages().0);
        self.counters.add_growing(&self.host, HELD, pages);
        self.counters.add_growing(&self.host, TAKEN, pages);
        Some(pfn)
    }

    fn free_by(&self, local: Option<Local<'_, Host>>, pfn: Pfn, order: Order) {
        for page in pfn.0..pfn.0 + order.pages().0 {
            let owners = self.owners[page as usize].fetch_sub(1, AcqRel);
            assert_eq!(owners, 1, "page {page} has one owner");
        }
        self.freed.fetch_add(order.pages().0.into(), Relaxed);
        let pages = i64::from(order.pages().0);
        self.counters.add(&self.host, HELD, -pages);
        let freed = match local {
            Some(local) => local.free(&self.host, pfn, order),
            None => self.manager.pages().free(&self.host, pfn, order),
        };
        freed.expect("it was handed out with this order");
    }

    /// Allocates and frees blocks until `is_over` returns true, through `local` if it is given.
    /// Meanwhile the test moves the thread to other CPUs and interrupts it.
    pub(crate) fn use_pages(&self, local: Option<Local<'_, Host>>, is_over: impl Fn() -> bool) {
        let this = kernel::this_thread();
        self.threads.lock().expect("no thread panicked").push(this);
        let mut held: Vec<(Pfn, Order)> = Vec::new();
        let mut turn = 0;
        while !is_over() {
            turn += 1;
            let order = Order::new([0, 0, 0, 0, 1, 2, 0, 3, 0, 5][turn % 10]);
            let order = order.expect("at most 10");
            held.extend(self.take_by(local, order).map(|pfn| (pfn, order)));
            if held.len() > 200 {
                held.drain(..150)
                    .for_each(|(pfn, order)| self.free_by(local, pfn, order));
            }
        }
        held.into_iter()
            .for_each(|(pfn, order)| self.free_by(local, pfn, order));
        let mut threads = self.threads.lock().expect("no thread panicked");
        threads.retain(|thread| *thread != this);
    }

    /// Moves the threads to other CPUs and interrupts them, until `is_over` returns true.
    pub(crate) fn torment(&self, mask: &CpuMask, is_over: impl Fn() -> bool) {
        let mut turn = 0;
        while !is_over() {
            let next = Instant::now() + MOVE_EVERY;
            // A thread ends only after it has taken this lock. So while the lock is held, each
            // thread id in the list still belongs to its thread.
            let threads = self.threads.lock().expect("no thread panicked");
            for thread in &*threads {
                let cpu = mask.real(turn).expect("this thread runs somewhere");
                // At every fourth move, the thread is allowed to run on all CPUs of the mask.
                let cpus = if turn % 4 == 3 { mask.cpus() } else { &[cpu] };
                self.moves
                    .fetch_add(kernel::move_to(*thread, cpus).into(), Relaxed);
                self.signals
                    .fetch_add(kernel::interrupt(*thread).into(), Relaxed);
                turn += 1;
            }
            drop(threads);
            while Instant::now() < next {
                std::hint::spin_loop();
            }
        }
    }

    /// Adds a block to the zone or removes one. Then reports the free blocks, like a program that
    /// returns the memory of free blocks to the kernel.
    pub(crate) fn resize(&self) {
        let turn = self.resized.fetch_add(1, Relaxed);
        let blocks = u64::from((MOST.0 - LEAST.0) / BLOCK.0);
        let number = u32::try_from(turn % blocks).expect("few");
        let first = Pfn(LEAST.0 + number * BLOCK.0);
        match self.manager.memory_online(&self.host, first, BLOCK) {
            Ok(()) => {}
            Err(ResizeError::Present(_)) => {
                // The call fails if a page of the block is in use; then the block stays.
                let _outcome = self.manager.memory_offline(&self.host, first, BLOCK);
            }
            Err(why) => panic!("{why}"),
        }
        let mut sweep = Sweep::default();
        for _ in 0..2 {
            let pages = self.manager.pages();
            pages.report_free(&self.host, &mut sweep, MOST, |pfn, order| {
                let range = pfn.0 as usize..(pfn.0 + order.pages().0) as usize;
                let unused = |owner: &AtomicU8| owner.load(Relaxed) == 0;
                assert!(self.owners[range].iter().all(unused), "the block is free");
                true
            });
        }
    }

    /// Returns whether the storm has done everything several times: the threads took pages, were
    /// moved and interrupted, the process forked, and CPUs went offline.
    pub(crate) fn has_raged(&self) -> bool {
        let least = [
            (&self.taken, 1000),
            (&self.moves, 100),
            (&self.signals, 100),
            (&self.forks, 5),
            (&self.cpus_taken, 3),
        ];
        least
            .iter()
            .all(|(count, least)| count.load(Relaxed) > *least)
    }

    /// Asserts that every page is free again, and that every count is exact.
    pub(crate) fn is_exact(&self) {
        let (host, pages) = (&self.host, self.manager.pages());
        assert_eq!(self.taken.load(Relaxed), self.freed.load(Relaxed));
        assert!(self.owners.iter().all(|owner| owner.load(Relaxed) == 0));
        assert!(self.has_raged(), "every part of the storm ran");
        let sum = |counter| self.counters.precise_sum(host, counter);
        let taken = self.taken.load(Relaxed).cast_signed();
        assert_eq!((sum(HELD), sum(TAKEN)), (0, taken));
        assert_eq!(pages.double_frees(), 0, "no thread frees a page twice");
        pages.drain_all_sync(host);
        let zone = &pages.view(host)[0];
        assert!(zone.managed >= LEAST && zone.managed <= MOST);
        assert_eq!((zone.free, zone.listed), (zone.managed, Pages(0)));
        assert_eq!(zone.counted_free, u64::from(zone.managed.0));
        let blocks = zone.managed.0 / BLOCK.0;
        assert_eq!(zone.blocks[Order::MAX.index()], blocks, "all is merged");
    }
}
