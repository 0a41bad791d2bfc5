//! A process whose own heap is managed by Plimsoll. All its boxes, vectors and threads, and all
//! heap memory that Plimsoll itself needs, are in pages from Plimsoll's allocator. Tenants use up
//! the rest of the pages. When no page is left, a tenant is killed and exits or is reaped; the
//! process continues.
//!
//! `cargo run --release -p plimsoll-host --example own_heap -- 600` runs for ten minutes. Without a
//! number it runs until several tenants have been killed and at least one has been reaped.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

mod slab;
mod tenants;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::CpuId;
use slab::{OwnHeap, Source};
use tenants::{Machinery, PAGES, Tenant};

#[global_allocator]
static HEAP: OwnHeap = OwnHeap::new();

/// The run ends only when at least this many tenants have been killed, and at least [`REAPED`] of
/// them have been reaped.
const KILLS: u64 = 2;
const REAPED: u64 = 1;
/// The number of CPUs of the memory manager. Each thread acts as one of them.
const CPUS: u32 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(0), |text| text.parse());
    let seconds = seconds.map_err(|_| "usage: own_heap [SECONDS]")?;
    live(Duration::from_secs(seconds))
}

fn live(time: Duration) -> Result<(), Box<dyn Error>> {
    let all: &'static Machinery = Box::leak(Box::new(Machinery::new()?));
    HEAP.start(Source {
        arena: &all.arena,
        host: &all.host,
        pages: all.manager.pages(),
    });
    let (stop, until) = (AtomicBool::new(false), Instant::now() + time);
    // Once `until` has passed, this condition becomes false sooner or later: tenants take pages
    // until memory is short, and about every second tenant that is killed waits to be reaped.
    let goes_on = || Instant::now() < until || all.kills() < KILLS || all.reaped() < REAPED;
    let rounds = thread::scope(|scope| -> Result<u64, Box<dyn Error>> {
        let reaper = scope.spawn(|| all.reap(&stop));
        // If no run time is given, as in the test of this example, start one thread of each kind
        // instead of two. The locks serve threads in the order of arrival. If other programs also
        // need the CPUs, the thread that is next often has no CPU, and all threads behind it have
        // to wait. With many threads, hardly any of them would make progress.
        let many = if time.is_zero() { 1 } else { 2 };
        let (mut tenants, mut workers) = (Vec::new(), Vec::new());
        for nth in 0..many {
            let (stop, tenant) = (&stop, Tenant::new(all, nth));
            tenants.push(scope.spawn(move || tenant.live(stop)));
            workers.push(scope.spawn(move || {
                let _entered = all.host.enter(CpuId(2 + nth));
                work(u64::from(nth), goes_on)
            }));
        }
        let mut rounds = 0;
        for worker in workers {
            rounds += worker.join().map_err(|_| "a worker panicked")?;
        }
        stop.store(true, Relaxed);
        for tenant in tenants {
            tenant.join().map_err(|_| "a tenant panicked")?;
        }
        reaper.join().map_err(|_| "the reaper panicked")?;
        Ok(rounds)
    })?;
    report(all, rounds);
    Ok(())
}

/// Uses the heap as a process typically does: for lists of any size, a map, strings, and
/// occasionally a thread. Checks that all of them keep their contents. Returns the number of
/// rounds.
fn work(seed: u64, goes_on: impl Fn() -> bool) -> u64 {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let (mut lists, mut map) = (Vec::new(), BTreeMap::new());
    lists.resize_with(256, Vec::<u64>::new);
    let mut rounds = 0;
    while goes_on() {
        rounds += 1;
        let slot = random.below(lists.len());
        let mark = lists[slot].first().copied().unwrap_or(0);
        assert!(
            lists[slot].iter().all(|&word| word == mark),
            "memory was lost"
        );
        let largest = if rounds % 64 == 0 { 60_000 } else { 600 };
        let (words, mut list) = (random.below(largest), Vec::new());
        // If memory is short, the heap may refuse the request, as any allocator may.
        if list.try_reserve_exact(words).is_ok() {
            list.resize(words, random.next());
        }
        lists[slot] = list;
        map.insert(random.below(1000), format!("round {rounds}"));
        if let Some((key, _)) = map.range(random.below(1000)..).next() {
            let key = *key;
            black_box(map.remove(&key));
        }
        if rounds % 2000 == 0 {
            let words = words % 1000;
            let grown = thread::spawn(move || (0..words).collect::<Vec<_>>());
            assert_eq!(grown.join().expect("it only counts").len(), words);
        }
    }
    rounds
}

fn report(all: &Machinery, rounds: u64) {
    let (host, pages) = (&all.host, all.manager.pages());
    let (kills, reaped) = (all.kills(), all.reaped());
    println!(
        "{rounds} rounds of work on {} pages of heap; {} requests refused",
        HEAP.used(),
        HEAP.refused()
    );
    println!("{kills} tenants were killed, {reaped} of them reaped");
    let asked = HEAP.asked();
    println!("the reaper and exiting tenants asked for memory {asked} times");
    assert_eq!(asked, 0, "what frees memory must not wait for any");
    pages.drain_all_sync(host);
    let free = pages.view(host)[0].free;
    // While `view` counted the free pages, the list that it returned occupied memory of the heap.
    // By now the list has been freed, and perhaps a page of the heap with it. So the free pages and
    // the pages that the heap uses now may add up to a few pages more or fewer than all pages.
    let (used, all_pages) = (HEAP.used(), u64::from(PAGES.0));
    assert!(
        u64::from(free.0).abs_diff(all_pages - used) <= 4,
        "{free} free, {used} used"
    );
    assert!(used < 2000, "{used} pages of heap are left");
    println!("at the end {free} of {PAGES} pages are free, {used} are the heap's");
    let places = all.spaces.plan().area().groups(host);
    assert_eq!(places, 0, "every tenant gave its counters back");
    assert!(host.topology().cpus() == CPUS);
}

/// A xorshift generator, which needs no heap memory.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from((self.next() >> 11) % end as u64).expect("below `end`")
    }
}

#[test]
fn it_lives_on_its_own_heap() -> Result<(), Box<dyn Error>> {
    live(Duration::ZERO)
}
