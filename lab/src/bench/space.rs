//! The cost of an address space on this computer. The benchmark uses one CPU. There is no memory
//! behind the pages, so the benchmark measures only the manager's own work.
//!
//! Each step of the benchmark has a floor: the cost of the page allocator without an address space.
//! An address space allocates and frees each page through the page allocator. So the difference
//! between a step and its floor is the cost of page tables, counters and lists. In each round,
//! every step runs once. The result of a step is the time of its fastest round. The work of a step
//! is the same in every round, and other load can only make a round longer.

use std::time::Instant;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, AddressSpace, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn, Vpn};

use super::table;
use crate::error::Error;
use crate::report::Table;
use crate::run::progress::Progress;

const ROUNDS: usize = 40;
/// The number of pages that each step of the benchmark touches or frees.
const COUNT: u64 = 1 << 14;
/// How many page tables a sparse address space has. Each of these tables maps one page.
const TABLES: u64 = 1 << 11;
/// The number of pages that a full page table maps.
const ENTRIES: u64 = 512;
/// How many frames the machine has. This is twice [`COUNT`], so that free memory stays above the
/// watermarks.
const FRAMES: Pages = Pages(1 << 15);
/// How many single pages are freed in one call. An address space also frees 31 pages in one call.
const TOGETHER: usize = 31;

const STEPS: [&str; 9] = [
    "page alone, taken",
    "page alone, given back",
    "fault, page by page",
    "fault, many at once",
    "unmap",
    "exit",
    "exit, by tables",
    "exit, of a table with one page",
    "exit by tables, of a table with one page",
];

/// For each step, the index in [`STEPS`] of its floor (the step with which it is compared). The
/// time of a step is divided by the time of its floor.
const FLOORS: [usize; STEPS.len()] = [0, 1, 0, 0, 1, 1, 1, 7, 7];

/// Measures every step of the benchmark.
pub(super) fn tables(progress: &Progress) -> Result<Vec<Table>, Error> {
    progress.start("bench space");
    progress.expect(ROUNDS);
    measure(ROUNDS, progress).map(|table| vec![table])
}

fn measure(rounds: usize, progress: &Progress) -> Result<Table, Error> {
    let machine = Small::new()?;
    let _entered = machine.host.enter(CpuId(0));
    let mut best = [f64::INFINITY; STEPS.len()];
    for _ in 0..rounds {
        for (best, ns) in best.iter_mut().zip(machine.round()) {
            *best = best.min(ns);
        }
        progress.step();
    }
    let row = |nth: usize| {
        let (ns, floor) = (best[nth], best[FLOORS[nth]]);
        vec![
            STEPS[nth].to_owned(),
            format!("{ns:.1}"),
            format!("{:.2}", ns / floor),
            STEPS[FLOORS[nth]].to_owned(),
        ]
    };
    let rows = (0..STEPS.len()).map(row).collect();
    let mut table = table(
        "Address spaces, ns per page",
        &["step", "ns", "×", "of"],
        rows,
    );
    table.note = format!(
        "One CPU, {COUNT} pages in one mapping, or {TABLES} tables with a page each; best of {rounds} \
         rounds in turns. No memory is behind the pages: nothing of the kernel's is in it."
    );
    Ok(table)
}

/// A machine of one CPU with a memory manager, on which the steps of the benchmark run.
struct Small {
    host: Host,
    manager: Manager<Host>,
    /// The state that all address spaces of a machine share. There is one set of this state for
    /// each of two ways to empty an address space: from the lowest to the highest mapping, and by
    /// claiming one page table after another.
    spaces: [Spaces<Host>; 2],
}

impl Small {
    fn new() -> Result<Self, Error> {
        let host = Host::with_topology(Topology::flat(1));
        let cannot = |why: &dyn std::fmt::Display| Error::Invalid(why.to_string());
        let config = Config::new(Layout::arena(FRAMES));
        let manager = Manager::new(&host, config).map_err(|why| cannot(&why))?;
        let spaces = |reaping| {
            let design = Design {
                reaping,
                ..Design::OURS
            };
            Spaces::new(&host, &design, 0).map_err(|why| cannot(&why))
        };
        let spaces = [
            spaces(Reaping::Ascending)?,
            spaces(Reaping::MeetInTheMiddle)?,
        ];
        Ok(Self {
            host,
            manager,
            spaces,
        })
    }

    /// Runs every step of the benchmark once and returns each step's nanoseconds per page.
    fn round(&self) -> [f64; STEPS.len()] {
        let (taken, given) = self.pages_alone();
        let one_by_one = self.mapped(0);
        let fault = ns_per(COUNT, || {
            for page in 0..COUNT {
                let touched = one_by_one.fault(self.memory(0), Vpn(ENTRIES + page), Access::Write);
                touched.expect("there are enough frames");
            }
        });
        let unmap = ns_per(COUNT, || {
            let unmapped = one_by_one.unmap(self.memory(0), Vpn(ENTRIES), COUNT);
            unmapped.expect("it is mapped");
        });
        self.end(&one_by_one, 0);
        self.forget(one_by_one);
        let [(at_once, exit), (_, by_tables)] = [0, 1].map(|nth| self.filled(nth));
        let [sparse, sparse_by_tables] = [0, 1].map(|nth| self.sparse(nth));
        [
            taken,
            given,
            fault,
            at_once,
            unmap,
            exit,
            by_tables,
            sparse,
            sparse_by_tables,
        ]
    }

    fn pages_alone(&self) -> (f64, f64) {
        let (host, pages) = (&self.host, self.manager.pages());
        let mut held: Vec<Pfn> = Vec::with_capacity(FRAMES.0 as usize);
        let taken = ns_per(COUNT, || {
            let take = |_| pages.alloc(host, Request::new(Order::ZERO));
            held.extend((0..COUNT).map(|nth| take(nth).expect("there are enough frames")));
        });
        let given = ns_per(COUNT, || {
            for some in held.chunks(TOGETHER) {
                pages.free_pages(host, some).expect("all were taken");
            }
        });
        (taken, given)
    }

    /// Returns two times in nanoseconds per page: for touching all pages in one call, and for the
    /// exit that follows. `nth` is the way to empty the address space, an index in `spaces`.
    fn filled(&self, nth: usize) -> (f64, f64) {
        let space = self.mapped(nth);
        let at_once = ns_per(COUNT, || {
            let all = Vpn(ENTRIES)..Vpn(ENTRIES + COUNT);
            let touched = space.populate(self.memory(nth), all);
            touched.expect("there are enough frames");
        });
        let exit = ns_per(COUNT, || self.end(&space, nth));
        self.forget(space);
        (at_once, exit)
    }

    /// Returns the time of the exit of an address space, in nanoseconds per page table. Each page
    /// table of this address space maps one page.
    fn sparse(&self, nth: usize) -> f64 {
        let space = self.space(nth, TABLES * ENTRIES);
        for table in 0..TABLES {
            let page = Vpn(ENTRIES * (1 + table) + table % ENTRIES);
            let touched = space.fault(self.memory(nth), page, Access::Write);
            touched.expect("there are enough frames");
        }
        let exit = ns_per(TABLES, || self.end(&space, nth));
        self.forget(space);
        exit
    }

    fn mapped(&self, nth: usize) -> AddressSpace<Host> {
        self.space(nth, COUNT)
    }

    fn space(&self, nth: usize, pages: u64) -> AddressSpace<Host> {
        let space = AddressSpace::new(self.memory(nth)).expect("there is memory");
        let request = MapRequest::anonymous(Place::Fixed(Vpn(ENTRIES)), pages);
        space
            .map(self.memory(nth), request)
            .expect("nothing is there");
        space
    }

    fn memory(&self, nth: usize) -> Memory<'_, Host> {
        Memory::new(&self.host, &self.manager, &self.spaces[nth])
    }

    fn end(&self, space: &AddressSpace<Host>, nth: usize) {
        space.exit(self.memory(nth)).expect("it ends once");
    }

    fn forget(&self, space: AddressSpace<Host>) {
        assert_eq!(space.destroy(&self.host), Ok(()), "nothing is left");
    }
}

fn ns_per(items: u64, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos() as f64 / items as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_takes_time_and_gives_all_pages_back() {
        let machine = Small::new().expect("a small machine");
        let _entered = machine.host.enter(CpuId(0));
        assert!(machine.round().iter().all(|&ns| ns > 0.0));
        machine.manager.pages().drain_all_sync(&machine.host);
        let free = machine.manager.pages().view(&machine.host)[0].free;
        assert_eq!(free, FRAMES, "no page is lost");
    }
}
