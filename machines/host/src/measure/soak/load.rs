//! The load of a soak, which is a long measurement of allocations. Two threads work in chunks of 64
//! allocations and frees. For each chunk, this module also finds out what disturbed the chunk.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_mm::Manager;
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use super::outcome::{Kind, Outcome, ROOM, Usage, ns};
use super::{Soak, SoakOptions};
use crate::Host;
use crate::measure::clock::{self, Rate};
use crate::measure::watch::{Jumps, Span};
use crate::measure::{CannotMeasure, Pair};

/// The number of operations in a chunk.
const CHUNK: usize = 64;
/// The number of times that a thread reads the clock in an idle chunk, in which it does nothing
/// else. An idle chunk takes about as long as a chunk of operations.
const IDLE_GAPS: usize = 4 * CHUNK;
/// The largest number of blocks that a thread holds.
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
    begun: Instant,
    /// The time span of each job during which the job's worker thread lost the CPU.
    away: Mutex<Vec<Span>>,
    /// The number of pages by which page lists became shorter while jobs ran.
    decayed: AtomicU64,
}

pub(super) fn run(pair: Pair, options: &SoakOptions) -> Result<Soak, CannotMeasure> {
    // The machine has no observer, because with one it would have no fronts (stacks of free pages).
    let host = Host::with_topology(Topology::flat(2));
    let pages = options.pages.max(Pages(1 << 14));
    let mut config = Config::new(Layout::arena(pages).with_bitmaps());
    // A short interval of the periodic work makes page lists shrink (*decay*) often, so that the
    // shrinking coincides with allocations.
    let often = config.tunables.set(Knob::StatInterval, 50);
    often.expect("in bounds");
    let manager = Manager::new(&host, config);
    let world = Arc::new(World {
        manager: manager.expect("an arena of many pages is a layout"),
        host,
        passed: [(); 2].map(|()| Mutex::new(Vec::with_capacity(HELD))),
        rate: Rate::measure(),
        begun: Instant::now(),
        end: Instant::now() + options.length,
        away: Mutex::new(Vec::with_capacity(ROOM)),
        decayed: AtomicU64::new(0),
        drain_every: options.drain_every,
    });
    let upkeep = Arc::clone(&world);
    let workers = world.host.start(move |host, job| {
        upkeep.watched(|| upkeep.run_job(host, job));
    });
    let workers = workers.map_err(|why| CannotMeasure::Refused(std::io::Error::other(why)))?;
    world.manager.start(&world.host);
    let (one, other) = pair.run(|| world.work(0), || world.work(1))?;
    drop(workers);
    let one = one.map_err(CannotMeasure::Refused)?;
    let other = other.map_err(CannotMeasure::Refused)?;
    let mut away = std::mem::take(&mut *lock(&world.away));
    away.extend(one.away().iter().chain(other.away()));
    let away = Jumps::of(away);
    let mut soak = one.filed(&away);
    soak.merge(&mut other.filed(&away));
    soak.decayed = world.decayed.load(Relaxed);
    Ok(soak)
}

impl World {
    fn work(&self, thread: usize) -> std::io::Result<Outcome> {
        let _entered = self
            .host
            .enter(CpuId(u32::try_from(thread).expect("0 or 1")));
        let mut worker = Worker {
            world: self,
            thread,
            held: Vec::with_capacity(HELD),
            remote: Vec::with_capacity(HELD),
            random: 0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1),
            target: 0,
            outcome: Outcome::new(self.rate),
        };
        let mut next_drain = Instant::now() + self.drain_every;
        let mut turn = 0u32;
        while Instant::now() < self.end {
            turn += 1;
            match turn % 4 {
                0 => worker.chunk(Worker::idle)?,
                2 if self.drains_now() && Instant::now() >= next_drain => {
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
        Ok(worker.outcome)
    }

    fn drains_now(&self) -> bool {
        self.begun.elapsed().as_secs().is_multiple_of(2)
    }

    /// Runs `job` on its CPU, and adds to `decayed`.
    fn run_job(&self, host: &Host, job: Job) {
        let listed = || self.manager.pages().listed(host, host.this_cpu());
        let before = listed();
        self.manager.run(host, job);
        let shorter = before.saturating_sub(listed());
        // Relaxed is enough: the sum is read only after the workers have ended.
        self.decayed.fetch_add(shorter.0.into(), Relaxed);
    }

    /// Runs `job` on its worker thread. If the worker did not run all the time, records the span of
    /// the job in `away`.
    fn watched(&self, job: impl FnOnce()) {
        let before = Usage::now();
        let start = clock::ticks_after_loads();
        job();
        let span = span_since(start);
        if let (Ok(before), Ok(after)) = (before, Usage::now()) {
            let mut away = lock(&self.away);
            if before.was_away_until(&after, ns(self.rate, span)) && away.len() < ROOM {
                away.push(span);
            }
        }
    }

    fn free(&self, (pfn, order): Block) {
        let freed = self.manager.pages().free(&self.host, pfn, order);
        freed.expect("it was handed out with this order");
    }
}

struct Worker<'a> {
    world: &'a World,
    thread: usize,
    held: Vec<Block>,
    /// The blocks that this thread holds and that the other thread has allocated.
    remote: Vec<Block>,
    random: u64,
    /// The number of blocks that the thread tries to hold. This number changes from time to time,
    /// so that page lists fill and empty.
    target: usize,
    outcome: Outcome,
}

impl Worker<'_> {
    /// Runs one chunk. Adds its times to the histograms of disturbed or of undisturbed chunks.
    fn chunk(&mut self, body: fn(&mut Self)) -> std::io::Result<()> {
        let before = Usage::now()?;
        let started = clock::ticks_after_loads();
        body(self);
        let span = span_since(started);
        self.outcome.end_chunk(span, &before, &Usage::now()?);
        Ok(())
    }

    /// Each gap begins where the one before it ends. So each interrupt makes a gap longer, and the
    /// number of long gaps in a second is that of interrupts.
    fn idle(&mut self) {
        let mut start = clock::ticks();
        for _ in 0..IDLE_GAPS {
            let gap = span_since(start);
            self.outcome.add(Kind::Idle, gap);
            start = gap.end;
        }
    }

    fn drain(&mut self) {
        let started = clock::ticks();
        self.world.manager.pages().drain_all(&self.world.host);
        self.outcome.add(Kind::Drain, span_since(started));
    }

    fn operate(&mut self) {
        if self.random().is_multiple_of(256) {
            self.target = usize::try_from(self.random() % (HELD as u64 - 64)).expect("small");
        }
        for _ in 0..CHUNK {
            // Three quarters of the steps move the number of held blocks towards `target`.
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
        self.outcome.add(Kind::Alloc, span_since(started));
        match pfn {
            Ok(pfn) => self.held.push((pfn, order)),
            Err(_why) => self.outcome.soak.failed += 1,
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
        self.outcome.add(Kind::Free, span_since(started));
    }

    /// Passes a third of the held blocks on to the other thread, which will free them.
    fn exchange(&mut self) {
        let passed = &self.world.passed;
        let mut to = lock(&passed[1 - self.thread]);
        let room = (to.capacity() - to.len()).min(self.held.len() / 3);
        to.extend(self.held.drain(..room));
        drop(to);
        let mut from = lock(&passed[self.thread]);
        let room = (self.remote.capacity() - self.remote.len()).min(from.len());
        let start = from.len() - room;
        self.remote.extend(from.drain(start..));
    }

    fn free_all(&mut self) {
        let blocks = self.held.drain(..).chain(self.remote.drain(..));
        blocks.for_each(|block| self.world.free(block));
    }

    fn random(&mut self) -> u64 {
        // One step of the random number generator xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }
}

fn span_since(start: u64) -> Span {
    let end = clock::ticks_after_loads();
    Span { start, end }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
