//! A database keeps blocks of its file in buffers. When memory is short, a *reclaimer* gives up the
//! buffers that were filled longest ago.
//!
//! Threads read blocks ahead, so they allocate the buffers for several blocks in one call. Named
//! counters count hits and misses without a cache line that all threads share.
//!
//! `cargo run --release -p plimsoll-host --example buffer_pool`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(unsafe_code, reason = "buffers are memory behind raw pointers")]

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_host::Host;
use plimsoll_host::pool::{Bound, Pool};
use plimsoll_mm::counter::{CounterId, CounterSpec};
use plimsoll_mm::page::{PageAllocator, Reclaimer, Request};
use plimsoll_mm::units::{CpuId, Order, PAGE_SIZE, Pages, Pfn};

/// The memory for buffers: 4 MiB.
const MEMORY: Pages = Pages(1024);
/// The number of blocks of the file, each of which fills a buffer of one page.
const BLOCKS: u32 = 4096;
const CPUS: u32 = 2;
/// The number of blocks that a thread reads together.
const AHEAD: u8 = 16;
/// The number of times that each thread reads `AHEAD` blocks.
const READS: u32 = 2000;
/// The largest number of buffers that one call of the reclaimer [`Evictor`] frees.
const TOGETHER: usize = 32;

/// The blocks that are in buffers. No thread allocates pages while it holds the lock of these
/// buffers. The allocation could call the reclaimer, which takes the same lock, and so the thread
/// would wait for itself.
#[derive(Default)]
struct Buffers {
    pages: HashMap<u32, Pfn>,
    /// The blocks in the order in which their buffers were filled.
    filled: VecDeque<u32>,
}

#[derive(Default)]
struct Cache(Mutex<Buffers>);

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the oldest buffers. The manager calls this reclaimer on the thread whose allocation found
/// no page.
struct Evictor(Arc<Cache>);

impl Reclaimer<Host> for Evictor {
    fn name(&self) -> &'static str {
        "buffers"
    }

    fn reclaim(&self, host: &Host, pages: &PageAllocator<Host>, wanted: Pages) -> Pages {
        let mut gone = [Pfn(0); TOGETHER];
        let wanted = wanted.index().clamp(TOGETHER / 2, TOGETHER);
        let mut count = 0;
        let mut buffers = self.0.lock();
        while count < wanted
            && let Some(block) = buffers.filled.pop_front()
        {
            gone[count] = buffers.pages.remove(&block).expect("a filled buffer");
            count += 1;
        }
        drop(buffers);
        let freed = pages.free_pages(host, &gone[..count]);
        freed.expect("buffers are single pages");
        Pages(u32::try_from(count).expect("few"))
    }
}

/// The ids of the pool's counters of buffer hits and misses.
#[derive(Clone, Copy)]
struct Counts {
    hits: CounterId,
    misses: CounterId,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cache = Arc::new(Cache::default());
    let spec = |name| CounterSpec {
        name,
        unit: "blocks",
    };
    let pool = Pool::builder()
        .pages(MEMORY)
        .cpus(CPUS)
        .reclaimer(Evictor(Arc::clone(&cache)))
        .counter(spec("buffer_hits"))
        .counter(spec("buffer_misses"))
        .build()?;
    let counter = |name| pool.counter(name).ok_or("it was named");
    let counts = Counts {
        hits: counter("buffer_hits")?,
        misses: counter("buffer_misses")?,
    };
    thread::scope(|scope| {
        for cpu in (0..CPUS).map(CpuId) {
            let (pool, cache) = (&pool, &cache);
            scope.spawn(move || {
                let here = pool.enter(cpu).expect("there are as many CPUs as threads");
                read_all(&here, cache, counts);
            });
        }
    });
    for row in pool.vmstat() {
        println!("{row}");
    }
    let (host, counters) = (pool.host(), pool.counters().ok_or("they were named")?);
    let of = |id| counters.precise(host, id);
    let all = i64::from(CPUS) * i64::from(READS) * i64::from(AHEAD);
    assert_eq!(of(counts.hits) + of(counts.misses), all);
    assert!(
        of(counts.hits) > 0,
        "some blocks were still in their buffers"
    );
    assert!(
        of(counts.misses) > i64::from(MEMORY.0),
        "more blocks were read than fit, so buffers were reclaimed"
    );

    // Free all buffers, to check that no page was lost.
    let left: Vec<Pfn> = cache.lock().pages.drain().map(|(_, pfn)| pfn).collect();
    pool.bind().free_pages(&left)?;
    pool.pages().drain_all_sync(host);
    assert_eq!(pool.pages().view(host)[0].free, MEMORY);
    Ok(())
}

/// Reads `AHEAD` blocks at a time, mostly near the beginning of the file.
fn read_all(here: &Bound<'_>, cache: &Cache, counts: Counts) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(here.cpu().0 + 1);
    for _ in 0..READS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let most = if random.is_multiple_of(4) {
            BLOCKS
        } else {
            BLOCKS / 8
        };
        let first = u32::try_from(random >> 40).expect("24 bits") % (most - u32::from(AHEAD));
        let missing = count_hits(here, cache, first, counts);
        fill(here, cache, &missing, counts);
    }
}

/// Looks for the `AHEAD` blocks from `first` on in the buffers. Checks and counts the blocks that
/// it finds, and returns the numbers of the other blocks.
fn count_hits(here: &Bound<'_>, cache: &Cache, first: u32, counts: Counts) -> Vec<u32> {
    let buffers = cache.lock();
    let mut missing = Vec::with_capacity(AHEAD.into());
    for block in (first..).take(AHEAD.into()) {
        match buffers.pages.get(&block) {
            Some(&pfn) => {
                // SAFETY: the byte is the first one of a buffer. No other thread frees the buffer
                // or writes to it while this thread holds the lock.
                let byte = unsafe { here.pool().page(pfn).read() };
                assert_eq!(byte, contents(block), "the buffer holds its block");
                here.count(counts.hits, 1);
            }
            None => missing.push(block),
        }
    }
    missing
}

/// Reads the blocks `missing` into newly allocated buffers.
fn fill(here: &Bound<'_>, cache: &Cache, missing: &[u32], counts: Counts) {
    let mut pfns = [Pfn(0); AHEAD as usize];
    let pfns = &mut pfns[..missing.len()];
    let request = Request::new(Order::ZERO);
    here.alloc_pages(request, pfns)
        .expect("the reclaimer frees buffers");
    let bytes = usize::try_from(PAGE_SIZE).expect("a page is smaller than memory");
    for (&block, &pfn) in missing.iter().zip(&*pfns) {
        // SAFETY: this thread owns the whole page, which is not in the cache yet.
        unsafe { here.pool().page(pfn).write_bytes(contents(block), bytes) };
        here.count(counts.misses, 1);
        let mut buffers = cache.lock();
        if let Some(theirs) = buffers.pages.insert(block, pfn) {
            // Another thread has put the same block into the cache since this thread looked.
            // `insert` has replaced the other thread's buffer, so free that buffer.
            drop(buffers);
            here.free(theirs, Order::ZERO).expect("it was in the cache");
        } else {
            buffers.filled.push_back(block);
        }
    }
}

/// The byte that fills a block of the file.
fn contents(block: u32) -> u8 {
    block.to_le_bytes()[0] ^ block.to_le_bytes()[1]
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
