//! The counters of a running machine.
//!
//! They are plain cells: counting never waits, and changes nothing that the simulation looks at.
//! The run's hash is a sum of mixed events. So it depends on what happened when and where, but not
//! on the order in which the host got there: running ahead and waiting for each release give the
//! same hash.

use std::cell::Cell;

use plimsoll_mm::event::{Changed, Event};
use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Distance;
use plimsoll_mm::units::Nanos;

use crate::engine::Inner;
use crate::handle::Sim;
use crate::random::cpu_id;
use crate::stats::{CpuWaits, HIST_BINS, LockStats, LongestWait, Stats};

/// Event kinds in the hash; the low bits carry details.
pub(crate) const LOCK: u64 = 0x100;
pub(crate) const WORD: u64 = 0x200;
pub(crate) const JOB: u64 = 0x300;
pub(crate) const MIGRATE: u64 = 0x400;
const EMIT: u64 = 0x500;

/// The counters and the hash of a machine.
pub(crate) struct Record {
    hash: Cell<u64>,
    hashed: Cell<u64>,
    pub(crate) work_ns: [Cell<u64>; Work::ALL.len()],
    pub(crate) jobs_run: [Cell<u64>; Job::ALL.len()],
    pub(crate) jobs_ignored: Cell<u64>,
    pub(crate) wakeups: Cell<u64>,
    pub(crate) context_switches: Cell<u64>,
    pub(crate) preemptions: Cell<u64>,
    pub(crate) migrations: Cell<u64>,
    pub(crate) slips: Cell<u64>,
    pub(crate) stalls: Cell<u64>,
    lines: [Cell<u64>; 5],
    /// Number of holds in which no time passed, as in nearly all of a per-CPU lock. They are kept
    /// apart from the rest, so that they are in one cache line.
    instant: [[Cell<u64>; Site::ALL.len()]; LockClass::ALL.len()],
    locks: [[LockCells; Site::ALL.len()]; LockClass::ALL.len()],
}

/// The counters from which [`LockStats`] are made.
pub(crate) struct LockCells {
    acquisitions: Cell<u64>,
    hold_total: Cell<u64>,
    hold_max: Cell<u64>,
    contentions: Cell<u64>,
    perf_contentions: Cell<u64>,
    failed_tries: Cell<u64>,
    wait_total: Cell<u64>,
    wait_max: Cell<Option<LongestWait>>,
    hold_hist: [Cell<u64>; HIST_BINS],
    wait_hist: [Cell<u64>; HIST_BINS],
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            hash: Cell::default(),
            hashed: Cell::default(),
            work_ns: Default::default(),
            jobs_run: Default::default(),
            jobs_ignored: Cell::default(),
            wakeups: Cell::default(),
            context_switches: Cell::default(),
            preemptions: Cell::default(),
            migrations: Cell::default(),
            slips: Cell::default(),
            stalls: Cell::default(),
            lines: Default::default(),
            instant: Default::default(),
            locks: std::array::from_fn(|_| std::array::from_fn(|_| LockCells::new())),
        }
    }

    /// Folds an event into the hash.
    #[inline]
    pub(crate) fn fold(&self, time: u64, cpu: usize, kind: u64) {
        let place = (cpu as u64) << 40 ^ kind;
        let mut mixed = time.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place.rotate_left(20);
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^= mixed >> 29;
        self.hash.set(self.hash.get().wrapping_add(mixed));
        bump(&self.hashed);
    }

    /// Counts a cache line that moved over `distance`.
    #[inline]
    pub(crate) fn line_moved(&self, distance: Distance) {
        bump(&self.lines[distance as usize]);
    }

    /// Counts a hold that has ended.
    #[inline(always)]
    pub(crate) fn held(&self, class: LockClass, site: Site, hold_ns: u64) {
        if hold_ns == 0 {
            bump(&self.instant[class as usize][site as usize]);
        } else {
            self.lock(class, site).held(hold_ns);
        }
    }

    fn lock_stats(&self, class: LockClass, site: Site) -> LockStats {
        let mut stats = self.lock(class, site).stats();
        let instant = self.instant[class as usize][site as usize].get();
        stats.acquisitions += instant;
        stats.hold_hist[bin(0)] += instant;
        stats
    }

    #[inline]
    pub(crate) fn lock(&self, class: LockClass, site: Site) -> &LockCells {
        &self.locks[class as usize][site as usize]
    }
}

impl LockCells {
    fn new() -> Self {
        Self {
            acquisitions: Cell::default(),
            hold_total: Cell::default(),
            hold_max: Cell::default(),
            contentions: Cell::default(),
            perf_contentions: Cell::default(),
            failed_tries: Cell::default(),
            wait_total: Cell::default(),
            wait_max: Cell::default(),
            hold_hist: [const { Cell::new(0) }; HIST_BINS],
            wait_hist: [const { Cell::new(0) }; HIST_BINS],
        }
    }

    /// Counts a hold that has ended.
    #[inline]
    fn held(&self, hold_ns: u64) {
        bump(&self.acquisitions);
        self.hold_total.set(self.hold_total.get() + hold_ns);
        self.hold_max.set(self.hold_max.get().max(hold_ns));
        bump(&self.hold_hist[bin(hold_ns)]);
    }

    /// Counts an attempt that gave up.
    pub(crate) fn gave_up(&self) {
        bump(&self.failed_tries);
    }

    /// Counts a wait that has ended; `traced` says whether `perf` would show it.
    pub(crate) fn waited(&self, wait: LongestWait, traced: bool) {
        bump(&self.contentions);
        if traced {
            bump(&self.perf_contentions);
        }
        self.wait_total.set(self.wait_total.get() + wait.wait.0);
        bump(&self.wait_hist[bin(wait.wait.0)]);
        if self
            .wait_max
            .get()
            .is_none_or(|max| wait.rank() > max.rank())
        {
            self.wait_max.set(Some(wait));
        }
    }

    fn stats(&self) -> LockStats {
        LockStats {
            acquisitions: self.acquisitions.get(),
            contentions: self.contentions.get(),
            perf_contentions: self.perf_contentions.get(),
            failed_tries: self.failed_tries.get(),
            wait_total: Nanos(self.wait_total.get()),
            wait_hist: self.wait_hist.each_ref().map(Cell::get),
            wait_max: self.wait_max.get(),
            hold_total: Nanos(self.hold_total.get()),
            hold_max: Nanos(self.hold_max.get()),
            hold_hist: self.hold_hist.each_ref().map(Cell::get),
        }
    }
}

impl Inner {
    pub(crate) fn stats(&self) -> Stats {
        let record = &self.record;
        let waits = |class: LockClass| {
            let of = |cpu: &crate::cpu::Cpu| CpuWaits {
                total: Nanos(cpu.wait_total_ns[class as usize].get()),
                max: Nanos(cpu.wait_max_ns[class as usize].get()),
            };
            self.cpus.iter().map(of).collect()
        };
        let locks = |class: LockClass| {
            let of = |site| record.lock_stats(class, site);
            Site::ALL.into_iter().map(of).collect()
        };
        Stats {
            now: Nanos(self.now()),
            hash: record.hash.get(),
            hashed_events: record.hashed.get(),
            resumptions: self.epoch.get(),
            work_ns: record.work_ns.each_ref().map(Cell::get),
            jobs_run: record.jobs_run.each_ref().map(Cell::get),
            jobs_ignored: record.jobs_ignored.get(),
            wakeups: record.wakeups.get(),
            context_switches: record.context_switches.get(),
            preemptions: record.preemptions.get(),
            migrations: record.migrations.get(),
            causality_slips: record.slips.get(),
            stalls: record.stalls.get(),
            lines: record.lines.each_ref().map(Cell::get),
            locks: LockClass::ALL.into_iter().map(locks).collect(),
            cpu_waits: LockClass::ALL.into_iter().map(waits).collect(),
        }
    }
}

impl Sim {
    /// Hashes a slow-path event, and passes every event to observers that want it.
    #[inline]
    pub(crate) fn note(&self, event: Event) {
        // A closure makes the event anew, so that a page's event is not stored if there is no
        // observer.
        match event {
            Event::PageAlloc { pfn, order } => {
                if self.0.pages_observed.get() {
                    self.tell(|| Event::PageAlloc { pfn, order });
                }
            }
            Event::PageFree { pfn, order } => {
                if self.0.pages_observed.get() {
                    self.tell(|| Event::PageFree { pfn, order });
                }
            }
            Event::ZoneLocked { pfn, order, listed } => {
                if self.0.pages_observed.get() {
                    self.tell(|| Event::ZoneLocked { pfn, order, listed });
                }
            }
            Event::PcpuDrain { pfn, order } => {
                if self.0.pages_observed.get() {
                    self.tell(|| Event::PcpuDrain { pfn, order });
                }
            }
            other => self.note_slow(other),
        }
    }

    fn note_slow(&self, event: Event) {
        let (now, cpu) = (self.0.now(), self.0.cur.get());
        self.0.record.fold(now, cpu, EMIT | kind_of(event));
        if self.0.observed.get() {
            self.tell(|| event);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell(&self, event: impl FnOnce() -> Event) {
        let event = event();
        // Taken out of the cell, so that an observer may look at the machine.
        let mut observers = self.0.observers.take();
        let (cpu, at) = (cpu_id(self.0.cur.get()), Nanos(self.0.now()));
        for observer in &mut observers {
            observer(self, cpu, at, &event);
        }
        observers.append(&mut self.0.observers.borrow_mut());
        self.0.observers.replace(observers);
    }
}

/// The kind of an event and its details, as a number for the hash.
fn kind_of(event: Event) -> u64 {
    match event {
        Event::PageAlloc { .. }
        | Event::PageFree { .. }
        | Event::ZoneLocked { .. }
        | Event::PcpuDrain { .. } => 0,
        Event::ZoneHold {
            zone,
            site,
            pages,
            blocks,
            ..
        } => {
            let size = u64::from(pages.0) << 24 ^ u64::from(blocks) << 44;
            1 ^ (site as u64) << 4 ^ u64::from(zone) << 12 ^ size
        }
        Event::Refresh { changed, decayed } => {
            2 ^ u64::from(changed == Changed::Yes) << 4 ^ u64::from(decayed.0) << 24
        }
        Event::Kick { cpu } => 3 ^ u64::from(cpu.0) << 24,
        Event::OutOfMemory { order } => 4 ^ u64::from(order.get()) << 4,
        Event::OomKill(process) => 8 ^ u64::from(process.0) << 4,
        Event::MarkVictim(process) => 9 ^ u64::from(process.0) << 4,
        Event::WakeReaper(process) => 10 ^ u64::from(process.0) << 4,
        Event::StartTaskReaping(process) => 11 ^ u64::from(process.0) << 4,
        Event::FinishTaskReaping(process) => 12 ^ u64::from(process.0) << 4,
        Event::SkipTaskReaping(process) => 13 ^ u64::from(process.0) << 4,
        Event::Begin(phase) => 6 ^ (phase as u64) << 4,
        Event::End(phase) => 7 ^ (phase as u64) << 4,
        Event::PageSplit { pfn, order } => 5 ^ u64::from(order.get()) << 4 ^ u64::from(pfn.0) << 24,
    }
}

/// The histogram bin of a time span.
#[inline]
fn bin(span_ns: u64) -> usize {
    ((u64::BITS - span_ns.leading_zeros()) as usize).min(HIST_BINS - 1)
}

#[inline]
pub(crate) fn bump(count: &Cell<u64>) {
    count.set(count.get() + 1);
}
