//! The load of a soak: two threads, their chunks, and what disturbed each chunk.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_mm::Manager;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages, Pfn};

use super::{Histogram, Soak, SoakOptions, Times};
use crate::Host;
use crate::measure::clock::{self, Rate};
use crate::measure::{CannotMeasure, Pair};
use crate::sys;

/// The number of operations in a chunk.
const CHUNK: usize = 64;
/// The number of gaps in an idle chunk, which takes about as long as a chunk of operations.
const IDLE_GAPS: usize = 4 * CHUNK;
/// The largest difference between the clock and the CPU time of a thread that does not count as a
/// disturbance, in nanoseconds. The two are read one after the other.
const SLACK_NS: u64 = 3000;
/// The number of blocks that a thread holds at most.
const HELD: usize = 6000;

type Block = (Pfn, Order);

struct World {
    host: Host,
    manager: Manager<Host>,
    /// The blocks that each thread passes on to the other one.
    passed: [Mutex<Vec<Block>>; 2],
    end: Instant,
    drain_every: Duration,
    rate: Rate,
}

pub(super) fn run(pair: Pair, options: &SoakOptions) -> Result<Soak, CannotMeasure> {
    let decayed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&decayed);
    let observer = move |_cpu: CpuId, _at: Nanos, event: Event| {
        if let Event::Refresh { decayed, .. } = event {
            // Relaxed is enough: the sum is read after the workers have ended.
            count.fetch_add(decayed.0.into(), Relaxed);
        }
    };
    let host = Host::with_observer(Topology::flat(2), observer);
    let pages = options.pages.max(Pages(1 << 14));
    let manager = Manager::new(&host, Config::new(Layout::arena(pages)));
    let world = Arc::new(World {
        manager: manager.expect("an arena of many pages is a layout"),
        host,
        passed: [(); 2].map(|()| Mutex::new(Vec::with_capacity(HELD))),
        rate: Rate::measure(),
        end: Instant::now() + options.length,
        drain_every: options.drain_every,
    });
    let upkeep = Arc::clone(&world);
    let workers = world
        .host
        .start(move |host, job| upkeep.manager.run(host, job));
    let workers = workers.map_err(|why| CannotMeasure::Refused(std::io::Error::other(why)))?;
    world.manager.start(&world.host);
    let (one, other) = pair.run(|| world.work(0), || world.work(1))?;
    drop(workers);
    let mut soak = one.map_err(CannotMeasure::Refused)?;
    soak.merge(&other.map_err(CannotMeasure::Refused)?);
    soak.decayed = decayed.load(Relaxed);
    Ok(soak)
}

impl World {
    fn work(&self, thread: usize) -> std::io::Result<Soak> {
        let _entered = self
            .host
            .enter(CpuId(u32::try_from(thread).expect("0 or 1")));
        let mut worker = Worker {
            world: self,
            thread,
            held: Vec::with_capacity(HELD),
            remote: Vec::with_capacity(HELD),
            chunk: Chunk::default(),
            random: 0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1),
            target: 0,
            soak: Soak::default(),
        };
        let mut next_drain = Instant::now() + self.drain_every;
        let mut turn = 0u32;
        while Instant::now() < self.end {
            turn += 1;
            match turn % 4 {
                0 => worker.chunk(Worker::idle)?,
                2 if Instant::now() >= next_drain => {
                    worker.chunk(Worker::drain)?;
                    next_drain = Instant::now() + self.drain_every;
                }
                _ => worker.chunk(Worker::operate)?,
            }
            if turn.is_multiple_of(16) {
                worker.exchange();
            }
        }
        worker.free_all();
        Ok(worker.soak)
    }

    fn free(&self, (pfn, order): Block) {
        let freed = self.manager.pages().free(&self.host, pfn, order);
        freed.expect("it was handed out with this order");
    }
}

/// The times of the chunk that is under way.
#[derive(Default)]
struct Chunk {
    allocs: Histogram,
    frees: Histogram,
    idle: Histogram,
    drains: Histogram,
}

struct Worker<'a> {
    world: &'a World,
    thread: usize,
    held: Vec<Block>,
    /// Blocks that the other thread allocated.
    remote: Vec<Block>,
    chunk: Chunk,
    random: u64,
    /// The number of blocks that the thread wants to hold, which changes from time to time, so that
    /// lists fill and empty.
    target: usize,
    soak: Soak,
}

impl Worker<'_> {
    /// Runs one chunk, and files its times by what disturbed it.
    fn chunk(&mut self, body: fn(&mut Self)) -> std::io::Result<()> {
        let before = Usage::now()?;
        let started = clock::ticks_after_loads();
        body(self);
        let ended = clock::ticks_after_loads();
        let after = Usage::now()?;
        let wall = self.ns(ended.saturating_sub(started));
        // The CPU time spans a little more than the clock's reading, so a difference means that the
        // thread did not run.
        let missing = wall.saturating_sub(after.cpu_ns.saturating_sub(before.cpu_ns));
        let is_disturbed = after.switches != before.switches || missing > SLACK_NS;
        self.soak.chunks[0] += 1;
        self.soak.chunks[1] += u64::from(is_disturbed);
        let (soak, chunk) = (&mut self.soak, &mut self.chunk);
        for (times, chunk) in [
            (&mut soak.allocs, &mut chunk.allocs),
            (&mut soak.frees, &mut chunk.frees),
            (&mut soak.idle, &mut chunk.idle),
            (&mut soak.drains, &mut chunk.drains),
        ] {
            file(times, chunk, is_disturbed, missing);
        }
        Ok(())
    }

    fn ns(&self, ticks: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and far below 2^53"
        )]
        let ns = self.world.rate.ns(ticks) as u64;
        ns
    }

    fn idle(&mut self) {
        for _ in 0..IDLE_GAPS {
            let started = clock::ticks();
            let ended = clock::ticks_after_loads();
            let gap = self.ns(ended.saturating_sub(started));
            self.chunk.idle.add(gap);
        }
    }

    fn drain(&mut self) {
        let started = clock::ticks();
        self.world.manager.pages().drain_all(&self.world.host);
        let ended = clock::ticks_after_loads();
        let ns = self.ns(ended.saturating_sub(started));
        self.chunk.drains.add(ns);
    }

    fn operate(&mut self) {
        if self.random().is_multiple_of(256) {
            self.target = usize::try_from(self.random() % (HELD as u64 - 64)).expect("small");
        }
        for _ in 0..CHUNK {
            // Three quarters of the steps go towards the target.
            let up = (self.held.len() < self.target) ^ self.random().is_multiple_of(4);
            if up && self.held.len() < HELD - 1 {
                self.alloc();
            } else {
                self.free();
            }
        }
    }

    fn alloc(&mut self) {
        let random = self.random();
        let order = if random.is_multiple_of(16) {
            Order::new(u8::try_from(1 + random / 16 % 3).expect("at most 3"))
        } else {
            Order::new(0)
        };
        let order = order.expect("at most 3");
        let started = clock::ticks();
        let pages = self.world.manager.pages();
        let pfn = pages.alloc(&self.world.host, Request::new(order));
        let ended = clock::ticks_after_loads();
        let ns = self.ns(ended.saturating_sub(started));
        self.chunk.allocs.add(ns);
        match pfn {
            Ok(pfn) => self.held.push((pfn, order)),
            Err(_why) => self.soak.failed += 1,
        }
    }

    fn free(&mut self) {
        let take_remote = self.random().is_multiple_of(2);
        let block = match (take_remote, self.remote.pop()) {
            (true, Some(block)) => Some(block),
            (_, other) => {
                self.remote.extend(other);
                self.held.pop()
            }
        };
        let Some(block) = block else { return };
        let started = clock::ticks();
        self.world.free(block);
        let ended = clock::ticks_after_loads();
        let ns = self.ns(ended.saturating_sub(started));
        self.chunk.frees.add(ns);
    }

    /// Passes a third of the held blocks on to the other thread, which will free them.
    fn exchange(&mut self) {
        let passed = &self.world.passed;
        let lock = |thread: usize| {
            let lock = passed[thread].lock();
            lock.unwrap_or_else(PoisonError::into_inner)
        };
        let mut to = lock(1 - self.thread);
        let room = (to.capacity() - to.len()).min(self.held.len() / 3);
        to.extend(self.held.drain(..room));
        drop(to);
        let mut from = lock(self.thread);
        let room = (self.remote.capacity() - self.remote.len()).min(from.len());
        let start = from.len() - room;
        self.remote.extend(from.drain(start..));
    }

    fn free_all(&mut self) {
        let blocks = self.held.drain(..).chain(self.remote.drain(..));
        blocks.for_each(|block| self.world.free(block));
    }

    fn random(&mut self) -> u64 {
        // The generator xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }
}

/// Moves the times of a chunk to where they belong. In a disturbed chunk the thread did not run for
/// `missing` nanoseconds.
fn file(times: &mut Times, chunk: &mut Histogram, is_disturbed: bool, missing: u64) {
    if chunk.count() == 0 {
        return;
    }
    if is_disturbed {
        let left = chunk.max().saturating_sub(missing);
        times.left_of_disturbed = times.left_of_disturbed.max(left);
        chunk.move_to(&mut times.disturbed);
    } else {
        chunk.move_to(&mut times.undisturbed);
    }
}

/// What the kernel says about the calling thread.
struct Usage {
    /// How often the thread was switched from its CPU.
    switches: u64,
    /// The time that the thread has run, without the time that a hypervisor took.
    cpu_ns: u64,
}

impl Usage {
    fn now() -> std::io::Result<Self> {
        Ok(Self {
            switches: sys::context_switches()?,
            cpu_ns: sys::thread_cpu_ns()?,
        })
    }
}
