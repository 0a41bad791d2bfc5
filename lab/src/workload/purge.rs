//! Threads that allocate, and a few threads that purge. Such threads exist in a program whose
//! allocator uses separate threads to return unused memory to the kernel (jemalloc, tcmalloc).
//!
//! A worker faults in spans of memory and uses them. It keeps a few spans, and hands the oldest to
//! the purger of its group of CPUs. From time to time, the purger unmaps all spans that workers
//! have handed to it. So one CPU frees the pages that another CPU has allocated.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos, Pfn};
use plimsoll_sim::Sim;

use super::stress_vm::Done;
use super::{Mapping, about};
use crate::run::testbed::Testbed;

/// The number of pages in a span (2 MiB), the unit that a worker maps and a purger unmaps.
pub(crate) const SPAN: usize = 512;

/// The load: workers, which allocate spans, and purgers, which free them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purge {
    /// The number of CPUs in a group. A purger runs on the first CPU of the group, and a worker on
    /// each other CPU of the group.
    pub(crate) group: u32,
    /// The number of spans (mapped blocks of 2 MiB) that a worker keeps before it hands the oldest
    /// span to the purger.
    pub(crate) kept: usize,
    /// How many spans (mapped blocks of 2 MiB) per worker are allowed to wait for a purger. While
    /// more spans wait, the workers sleep.
    pub(crate) waiting: usize,
    /// The time for which a worker computes with each page of a span, in nanoseconds.
    pub(crate) use_ns_per_page: u64,
    /// The mean time between two purges of a group.
    pub(crate) pause: Nanos,
}

/// Counts of the work that the purging threads have done.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    /// The number of spans that purgers have unmapped.
    pub(crate) spans: Cell<u64>,
    /// The total time that purgers took to unmap spans, in nanoseconds.
    pub(crate) ns: Cell<u64>,
    /// The longest time to unmap one span, in nanoseconds.
    pub(crate) longest_ns: Cell<u64>,
}

/// The spans that wait for a purger, each with the time from which the purger is allowed to unmap
/// the span.
#[derive(Default)]
struct Queue {
    spans: RefCell<VecDeque<(Nanos, Vec<Pfn>)>>,
    workers: Cell<u32>,
}

impl Purge {
    /// Starts workers and purgers on all CPUs of the machine. Workers stop at `until` and hand all
    /// their memory to the purgers. The purgers end when they have unmapped everything.
    pub(crate) fn start(self, testbed: &Testbed, until: Nanos) -> (Done, Rc<Purged>) {
        let (done, purged) = (Done::default(), Rc::<Purged>::default());
        let cpus = testbed.sim.topology().cpus();
        for first in (0..cpus).step_by(self.group as usize) {
            let queue = Rc::new(Queue::default());
            let workers = (first + self.group).min(cpus) - first - 1;
            queue.workers.set(workers);
            for cpu in (first + 1..=first + workers).map(CpuId) {
                let (mm, queue, done) = (Rc::clone(&testbed.mm), Rc::clone(&queue), done.clone());
                testbed.sim.spawn(cpu, move |sim| {
                    self.work(sim, &mm, &queue, &done, until);
                    queue.workers.set(queue.workers.get() - 1);
                });
            }
            let (mm, purged) = (Rc::clone(&testbed.mm), Rc::clone(&purged));
            testbed.sim.spawn(CpuId(first), move |sim| {
                self.purge(sim, &mm, &queue, &purged);
            });
        }
        (done, purged)
    }

    fn work(self, sim: &Sim, mm: &Manager<Sim>, queue: &Queue, done: &Done, until: Nanos) {
        sim.sleep(about(sim, Nanos::from_ms(1)));
        let mut kept = VecDeque::new();
        while sim.now() < until {
            let mut mapping = Mapping::new(mm);
            let whole = mapping.fault(sim, SPAN);
            let pages = mapping.into_pages(sim);
            done.add(pages.len());
            sim.compute(Nanos(self.use_ns_per_page * pages.len() as u64));
            kept.push_back(pages);
            if kept.len() > self.kept || !whole {
                leave(sim, queue, kept.pop_front());
            }
            while queue.spans.borrow().len() > self.waiting * queue.workers.get() as usize {
                sim.sleep(Nanos(100_000));
            }
        }
        kept.into_iter()
            .for_each(|pages| leave(sim, queue, Some(pages)));
    }

    fn purge(self, sim: &Sim, mm: &Manager<Sim>, queue: &Queue, purged: &Purged) {
        loop {
            sim.sleep(about(sim, self.pause));
            let is_over = queue.workers.get() == 0;
            while let Some(pages) = next(sim, queue) {
                let from = sim.now();
                let mut mapping = Mapping::of(mm, pages);
                mapping.unmap(sim);
                let took = sim.now().since(from).0;
                purged.spans.set(purged.spans.get() + 1);
                purged.ns.set(purged.ns.get() + took);
                purged.longest_ns.set(purged.longest_ns.get().max(took));
            }
            if is_over && queue.spans.borrow().is_empty() {
                break;
            }
        }
    }
}

fn leave(sim: &Sim, queue: &Queue, pages: Option<Vec<Pfn>>) {
    let pages = pages.into_iter().filter(|pages| !pages.is_empty());
    let timed = pages.map(|pages| (sim.now(), pages));
    queue.spans.borrow_mut().extend(timed);
}

/// Takes a span (a block of memory to unmap) that a worker put into `queue` at or before the
/// current time. `queue` can also have spans that workers put there at later times, because the
/// clocks of these workers' CPUs are later.
fn next(sim: &Sim, queue: &Queue) -> Option<Vec<Pfn>> {
    let now = sim.now();
    let mut spans = queue.spans.borrow_mut();
    let ready = spans.iter().position(|(from, _)| *from <= now)?;
    spans.remove(ready).map(|(_, pages)| pages)
}
