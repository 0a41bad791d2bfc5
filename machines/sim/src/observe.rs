//! The statistics of a machine, and the events and waits that are passed to its observers.

use std::cell::Cell;

use plimsoll_mm::event::{Changed, Event};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::Nanos;

use crate::engine::cpu::{Cpu, cpu_id};
use crate::engine::record::EMIT;
use crate::engine::state::{Inner, Sim};
use crate::stats::{CpuWaits, LongestWait, Stats};
use crate::tasks::wait::{Access, LockId, Wait};

impl Inner {
    pub(crate) fn stats(&self) -> Stats {
        let record = &self.record;
        let waits = |class: LockClass| {
            let of = |cpu: &Cpu| CpuWaits {
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
            disturbances: record.disturbances.each_ref().map(Cell::get),
            disturbed_ns: record.disturbed_ns.each_ref().map(Cell::get),
            lines: record.lines.each_ref().map(Cell::get),
            locks: LockClass::ALL.into_iter().map(locks).collect(),
            cpu_waits: LockClass::ALL.into_iter().map(waits).collect(),
        }
    }

    /// Counts a finished wait of the running task, and passes it to the observers of waits.
    pub(crate) fn waited(
        &self,
        lock: LockId,
        class: LockClass,
        site: Site,
        access: Access,
        wait: LongestWait,
        traced: bool,
    ) {
        self.record.lock(class, site).waited(wait, traced);
        self.cpu().record_wait(class, wait.wait.0);
        for observer in &mut *self.hooks.wait_observers.borrow_mut() {
            observer(&Wait {
                lock,
                class,
                site,
                access,
                cpu: wait.cpu,
                task: self.cpu().current.get(),
                from: wait.at,
                until: wait.at + wait.wait,
                blocker: wait.blocker,
                blocker_site: wait.blocker_site,
                traced,
            });
        }
    }
}

impl Sim {
    /// Calls `observer` for each wait for a lock, when the wait has ended.
    pub fn observe_waits(&self, observer: impl FnMut(&Wait) + 'static) {
        self.0
            .hooks
            .wait_observers
            .borrow_mut()
            .push(Box::new(observer));
    }

    /// Passes `event` to the observers that want it. Also adds it to the hash of the run's events,
    /// unless it is an event of a single page. The function is always inlined. So where the
    /// compiler knows that the event is one of a single page, only the test of one flag is left.
    #[inline(always)]
    pub(crate) fn note(&self, event: Event) {
        // For an event of a single page, `tell` gets a closure that builds the event again. If
        // `tell` got `event` itself, the compiler would have to store `event` in memory even if no
        // observer wants it.
        match event {
            Event::PageAlloc { pfn, order } => {
                if self.0.hooks.pages_observed.get() {
                    self.tell(|| Event::PageAlloc { pfn, order });
                }
            }
            Event::PageFree { pfn, order } => {
                if self.0.hooks.pages_observed.get() {
                    self.tell(|| Event::PageFree { pfn, order });
                }
            }
            Event::ZoneLocked { pfn, order, listed } => {
                if self.0.hooks.pages_observed.get() {
                    self.tell(|| Event::ZoneLocked { pfn, order, listed });
                }
            }
            Event::PcpuDrain { pfn, order } => {
                if self.0.hooks.pages_observed.get() {
                    self.tell(|| Event::PcpuDrain { pfn, order });
                }
            }
            other => self.note_slow(other),
        }
    }

    #[inline(never)]
    fn note_slow(&self, event: Event) {
        let (now, cpu) = (self.0.now(), self.0.cur.get());
        self.0.record.fold(now, cpu, EMIT | kind_of(event));
        if self.0.hooks.observed.get() {
            self.tell(|| event);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell(&self, event: impl FnOnce() -> Event) {
        let event = event();
        // The observers are taken out of their cell, because an observer may call the machine,
        // which then needs the cell.
        let mut observers = self.0.hooks.observers.take();
        let (cpu, at) = (cpu_id(self.0.cur.get()), Nanos(self.0.now()));
        for observer in &mut observers {
            observer(self, cpu, at, &event);
        }
        observers.append(&mut self.0.hooks.observers.borrow_mut());
        self.0.hooks.observers.replace(observers);
    }
}

/// Packs the kind of an event and its details into one number, which is added to the run's hash.
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
        Event::KswapdWake(node) => 14 ^ u64::from(node.0) << 8,
        Event::KswapdSleep(node) => 14 ^ 1 << 4 ^ u64::from(node.0) << 8,
        Event::ShrinkActive { node, deactivated } => {
            14 ^ 2 << 4 ^ u64::from(node.0) << 8 ^ u64::from(deactivated.0) << 24
        }
        Event::ShrinkInactive {
            node,
            by,
            scanned,
            reclaimed,
        } => {
            let pages = u64::from(scanned.0) << 24 ^ u64::from(reclaimed.0) << 44;
            14 ^ 3 << 4 ^ (by as u64) << 7 ^ u64::from(node.0) << 8 ^ pages
        }
        Event::Begin(phase) => 6 ^ (phase as u64) << 4,
        Event::End(phase) => 7 ^ (phase as u64) << 4,
        Event::PageSplit { pfn, order } => 5 ^ u64::from(order.get()) << 4 ^ u64::from(pfn.0) << 24,
    }
}
