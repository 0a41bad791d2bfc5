//! Random allocations and frees on real threads. No page has two owners, none is lost, and every
//! possible block can be allocated afterwards.
//!
//! Each page has an owner word. A thread that allocates a page writes the number of the thread into
//! that word, and must find 0 in it. So a page that is allocated twice is detected.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::Manager;
use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::machine::{Job, JobState, Machine};
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, FreeIndex, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::ZoneItem;

const CPUS: u32 = 4;
const PAGES: u32 = 6 * 1024 + 333;
/// The largest number of blocks that a thread keeps.
const HELD_MAX: usize = 300;

/// The machine, its manager, and for each page a word that names the thread that owns it.
struct Shared {
    host: Host,
    mm: Manager<Host>,
    owners: Vec<AtomicU32>,
    /// Blocks that a thread has allocated and passed on. Any thread may free them.
    passed_on: Mutex<Vec<Block>>,
}

type Block = (Pfn, Order);

/// A random number generator (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(end.max(1))).expect("below a u32")
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(u32::try_from(last + 1).expect("few"));
            items.swap(last, other as usize);
        }
    }
}

fn any(order: Order) -> Request {
    Request::new(order).urgent(Urgency::Reserve)
}

impl Shared {
    fn new(design: Design, index: FreeIndex, fronts: Fronts) -> Self {
        let host = Host::with_fronts(Topology::flat(CPUS), fronts, OwnerLocks::Exchanged);
        let mut layout = Layout::arena(Pages(PAGES));
        layout.index = index;
        let mut config = Config::new(layout);
        config.design = design;
        let mm = Manager::new(&host, config).expect("an arena is a layout");
        let owners = (0..PAGES).map(|_| AtomicU32::new(0)).collect();
        Self {
            host,
            mm,
            owners,
            passed_on: Mutex::default(),
        }
    }

    fn alloc(&self, me: u32, order: Order) -> Option<Block> {
        let pfn = self.mm.pages().alloc(&self.host, any(order)).ok()?;
        for page in pfn.0..pfn.0 + order.pages().0 {
            let before = self.owners[page as usize].swap(me, AcqRel);
            assert_eq!(before, 0, "page {page} is handed out twice");
        }
        Some((pfn, order))
    }

    fn disown(&self, (pfn, order): Block) {
        for page in pfn.0..pfn.0 + order.pages().0 {
            let before = self.owners[page as usize].swap(0, AcqRel);
            assert_ne!(before, 0, "page {page} had an owner");
        }
    }

    fn free(&self, block: Block) {
        self.disown(block);
        let freed = self.mm.pages().free(&self.host, block.0, block.1);
        freed.expect("it was handed out with this order");
    }

    fn free_many(&self, held: &mut Vec<Block>) {
        let single = |block: &mut Block| block.1 == Order::ZERO;
        let pfns: Vec<Pfn> = held
            .extract_if(.., single)
            .inspect(|&block| self.disown(block))
            .map(|block| block.0)
            .collect();
        let freed = self.mm.pages().free_pages(&self.host, &pfns);
        freed.expect("all were handed out");
    }

    /// Runs one thread: does random steps until `stop` is set, then frees all blocks that it holds.
    fn act(&self, cpu: CpuId, seed: u64, stop: &AtomicBool) {
        let _entered = self.host.enter(cpu);
        let (dice, me) = (&mut Dice(seed ^ u64::from(cpu.0) << 32), cpu.0 + 1);
        let mut held = Vec::new();
        // Relaxed is enough: the flag only ends the loop.
        while !stop.load(Relaxed) {
            match dice.below(100) {
                0..50 if held.len() < HELD_MAX => {
                    let large = if dice.below(100) < 95 { 4 } else { 11 };
                    let order = u8::try_from(dice.below(large)).expect("small");
                    held.extend(self.alloc(me, Order::new(order).expect("at most 10")));
                }
                0..90 if !held.is_empty() => {
                    let index = dice.below(u32::try_from(held.len()).expect("few"));
                    self.free(held.swap_remove(index as usize));
                }
                90..94 => self.free_many(&mut held),
                94..97 => {
                    let mut passed_on = self.passed_on.lock().expect("no thread panicked");
                    std::mem::swap(&mut held, &mut passed_on);
                }
                97 => {
                    self.mm
                        .pages()
                        .drain_cpu(&self.host, CpuId(dice.below(CPUS)));
                }
                98 => {
                    self.mm.pages().drain_all(&self.host);
                }
                _ => self.mm.pages().count(&self.host, Pfn(0), ZoneItem::Anon, 1),
            }
        }
        held.into_iter().for_each(|block| self.free(block));
    }

    fn run(&self, seed: u64, time: Duration) {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for cpu in (0..CPUS).map(CpuId) {
                let stop = &stop;
                scope.spawn(move || self.act(cpu, seed, stop));
            }
            thread::sleep(time);
            stop.store(true, Relaxed);
        });
    }

    /// Checks that every page is free, counted, and merged into the largest possible blocks. No
    /// operation may be in progress.
    fn is_whole(&self) {
        let _entered = self.host.enter(CpuId(0));
        let pages = self.mm.pages();
        let left = std::mem::take(&mut *self.passed_on.lock().expect("no thread panicked"));
        left.into_iter().for_each(|block| self.free(block));
        let view = &pages.view(&self.host)[0];
        assert_eq!(view.free + view.listed, Pages(PAGES), "{view:?}");
        pages.drain_all_sync(&self.host);
        let view = &pages.view(&self.host)[0];
        assert_eq!(
            (view.free.0, view.counted_free),
            (PAGES, u64::from(PAGES)),
            "{view:?}"
        );
        assert_eq!(view.listed, Pages::ZERO);
        // The pages at the end of the zone do not fill a block of the largest order. There are 333
        // of them, in blocks of 256 + 64 + 8 + 4 + 1 pages.
        assert_eq!(view.blocks, [1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 6]);
    }
}

/// The kinds of fronts that this computer has.
fn kinds() -> impl Iterator<Item = Fronts> {
    let all = [Fronts::Restartable, Fronts::Owned, Fronts::Off];
    all.into_iter().filter(|fronts| fronts.is_available())
}

#[test]
fn threads_neither_share_nor_lose_pages() {
    for (seed, holds) in (0..).zip(HOLDS) {
        let design = Design {
            holds,
            ..Design::OURS
        };
        for index in [FreeIndex::Lists, FreeIndex::Bitmaps] {
            for fronts in kinds() {
                let shared = Shared::new(design, index, fronts);
                shared.run(seed, Duration::from_millis(100));
                shared.is_whole();
            }
        }
    }
}

#[test]
fn nor_do_they_if_blocks_have_owners() {
    for (seed, owning) in [(20, Owning::Rfc), (21, Owning::Inbox)] {
        let design = Design {
            owning,
            ..Design::OURS
        };
        let shared = Shared::new(design, FreeIndex::Lists, Fronts::Off);
        shared.run(seed, Duration::from_millis(400));
        shared.is_whole();
    }
}

#[test]
fn nor_do_they_while_workers_refresh_every_other_millisecond() {
    for (seed, design, index) in [
        (10, Design::OURS, FreeIndex::Bitmaps),
        (11, Design::UNPATCHED, FreeIndex::Lists),
        (12, Design::PATCHED, FreeIndex::Lists),
    ] {
        let shared = std::sync::Arc::new(Shared::new(design, index, Fronts::Restartable));
        let refreshes = std::sync::Arc::new(AtomicU32::new(0));
        {
            let _entered = shared.host.enter(CpuId(0));
            let pages = shared.mm.pages();
            pages
                .set_tunable(&shared.host, Knob::StatInterval, 2)
                .expect("in bounds");
            shared.mm.start(&shared.host);
        }
        let (of_jobs, counted) = (std::sync::Arc::clone(&shared), refreshes.clone());
        let handler = move |host: &Host, job| {
            counted.fetch_add(u32::from(job == Job::VmstatUpdate), Relaxed);
            of_jobs.mm.run(host, job);
        };
        let workers = shared
            .host
            .start(handler)
            .expect("no other thread started workers");
        shared.run(seed, Duration::from_millis(500));
        goes_dormant(&shared);
        drop(workers);
        shared.is_whole();
        // Linux's schedule rounds the first run of each CPU's vmstat work to a whole second. So few
        // runs happen during a test with that schedule. Plimsoll's schedule, `phased`, does not
        // round, so more runs happen.
        let least = if design.schedule.name() == "phased" {
            20
        } else {
            1
        };
        assert!(
            refreshes.load(Relaxed) >= least,
            "{design:?}: {refreshes:?}"
        );
    }
}

/// Waits until every CPU has added its own counts to the shared counters, as part of its vmstat
/// work. By then this work has stopped, because nothing is left to do.
fn goes_dormant(shared: &Shared) {
    let start = Instant::now();
    let is_quiet = |cpu| {
        shared.host.job_state(cpu, Job::VmstatUpdate) == JobState::Dormant
            && !shared.mm.is_dirty(&shared.host, cpu)
    };
    while !(0..CPUS).map(CpuId).all(is_quiet) {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "some work never goes dormant"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Two threads free all pages in random order. Afterwards every block of the largest orders can be
/// allocated.
#[test]
fn after_a_drain_every_block_that_can_exist_can_be_had() {
    for (seed, holds) in (0..40).zip(HOLDS.into_iter().cycle()) {
        let design = Design {
            holds,
            ..Design::OURS
        };
        let index = if seed % 4 < 2 {
            FreeIndex::Bitmaps
        } else {
            FreeIndex::Lists
        };
        let shared = Shared::new(design, index, Fronts::Restartable);
        let dice = &mut Dice(seed);
        let mut all: Vec<Block> = {
            let _entered = shared.host.enter(CpuId(0));
            std::iter::from_fn(|| shared.alloc(9, Order::ZERO)).collect()
        };
        assert_eq!(all.len(), PAGES as usize, "every page can be had");
        dice.shuffle(&mut all);
        let rest = all.split_off(dice.below(PAGES) as usize);
        thread::scope(|scope| {
            for (cpu, part) in (0..).map(CpuId).zip([all, rest]) {
                let shared = &shared;
                scope.spawn(move || {
                    let _entered = shared.host.enter(cpu);
                    part.into_iter().for_each(|block| shared.free(block));
                });
            }
        });
        let order = if seed % 2 == 0 {
            Order::MAX
        } else {
            Order::HUGE
        };
        let _entered = shared.host.enter(CpuId(3));
        let had = std::iter::from_fn(|| shared.alloc(9, order)).count();
        assert_eq!(had, (PAGES >> order.get()) as usize, "seed {seed}");
    }
}
