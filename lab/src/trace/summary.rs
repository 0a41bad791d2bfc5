//! Counts of a recording's events, and of the frees that match no allocation.
//!
//! A recording covers only a part of a machine's running time. A block can be allocated before the
//! recording and freed during the recording. Its free is unmatched. A block can also be allocated
//! during the recording and still be in use at the end. It is never freed. Neither case is an
//! error.

use std::collections::{BTreeMap, HashMap};

use plimsoll_mm::units::Order;

use super::{Event, Record};
use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::value::human;

/// Counts of the events of one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of lines in the file, including comments.
    pub lines: u64,
    /// The time from the first event to the last, in nanoseconds.
    pub duration_ns: u64,
    /// The number of blocks allocated.
    pub allocs: u64,
    /// The number of allocations that failed.
    pub failed_allocs: u64,
    /// The number of blocks freed.
    pub frees: u64,
    /// The number of frees of blocks that were not allocated in the recording.
    pub unmatched_frees: u64,
    /// The number of blocks allocated in the recording and not freed in it.
    pub never_freed: u64,
    /// How many blocks were allocated twice without a free in between, because perf lost the free.
    pub lost_frees: u64,
    /// The number of `mm_page_free_batched` events whose page has a recorded free.
    pub batched_confirmed: u64,
    /// The number of `mm_page_free_batched` events whose page has no recorded free. These events do
    /// not count as frees.
    pub batched_alone: u64,
    /// The number of blocks drained from per-CPU lists.
    pub drains: u64,
    /// How many allocations and frees of each order the recording has.
    pub by_order: [OrderCount; Order::COUNT],
    /// How many allocations and frees each CPU has. CPUs without any are left out.
    pub by_cpu: BTreeMap<u32, CpuCount>,
    /// The events that a replay does not use: the name of each kind, and the number of its events.
    pub ignored: BTreeMap<String, u64>,
}

/// The counts of allocations and of frees of one order in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCount {
    /// The number of blocks of this order allocated.
    pub allocs: u64,
    /// The number of blocks of this order freed.
    pub frees: u64,
}

/// How many allocations and frees one CPU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCount {
    /// The number of blocks allocated on the CPU.
    pub allocs: u64,
    /// The number of blocks freed on the CPU.
    pub frees: u64,
}

/// Says whether a page was last seen allocated (`Live`) or freed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Live,
    Freed,
}

impl Summary {
    /// Counts `records`, which must be in order of time.
    #[must_use]
    pub fn of(records: &[Record]) -> Self {
        let mut summary = Self::default();
        let mut pages = HashMap::new();
        for record in records {
            summary.count(record, &mut pages);
        }
        if let [first, .., last] = records {
            summary.duration_ns = last.time_ns - first.time_ns;
        }
        let live = pages.values().filter(|page| **page == Page::Live).count();
        summary.never_freed = live as u64;
        summary
    }

    fn count(&mut self, record: &Record, pages: &mut HashMap<u64, Page>) {
        match record.event {
            Event::Alloc { pfn, order } => {
                self.allocs += 1;
                self.by_order[order.index()].allocs += 1;
                self.by_cpu.entry(record.cpu).or_default().allocs += 1;
                let lost = pages.insert(pfn, Page::Live) == Some(Page::Live);
                self.lost_frees += u64::from(lost);
            }
            Event::Free { pfn, order } => {
                self.frees += 1;
                self.by_order[order.index()].frees += 1;
                self.by_cpu.entry(record.cpu).or_default().frees += 1;
                let matched = pages.insert(pfn, Page::Freed) == Some(Page::Live);
                self.unmatched_frees += u64::from(!matched);
            }
            Event::FreeBatched { pfn } => match pages.get(&pfn) {
                Some(Page::Freed) => self.batched_confirmed += 1,
                Some(Page::Live) | None => self.batched_alone += 1,
            },
            Event::AllocFailed { .. } => self.failed_allocs += 1,
            Event::PcpuDrain { .. } => self.drains += 1,
        }
    }

    /// The counts as tables of a report: totals, and counts by order and by CPU.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let ignored = self
            .ignored
            .iter()
            .map(|(name, count)| format!("{count} of {name}"));
        let ignored: Vec<String> = ignored.collect();
        let note = if ignored.is_empty() {
            "Unmatched frees are of pages allocated before the recording began.".to_owned()
        } else {
            let ignored = ignored.join(", ");
            format!(
                "Unmatched frees are of pages allocated before the recording began. \
                 Events left out: {ignored}."
            )
        };
        let table = |title: &str, note: String, head: [&str; 3], rows| Table {
            title: title.to_owned(),
            note,
            columns: head.map(str::to_owned).to_vec(),
            rows,
        };
        let row = |name: String, allocs: u64, frees: u64| vec![name, count(allocs), count(frees)];
        let orders = self.by_order.iter().enumerate();
        let orders = orders.filter(|(_, of)| of.allocs + of.frees > 0);
        let orders = orders.map(|(order, of)| row(order.to_string(), of.allocs, of.frees));
        let cpus = self
            .by_cpu
            .iter()
            .map(|(cpu, of)| row(cpu.to_string(), of.allocs, of.frees));
        vec![
            Table {
                title: "The recording".to_owned(),
                note,
                columns: ["what", "how much"].map(str::to_owned).to_vec(),
                rows: self.totals(),
            },
            table(
                "By order",
                String::new(),
                ["order", "allocs", "frees"],
                orders.collect(),
            ),
            table(
                "By recorded CPU",
                String::new(),
                ["cpu", "allocs", "frees"],
                cpus.collect(),
            ),
        ]
    }

    fn totals(&self) -> Vec<Vec<String>> {
        let counts = [
            ("allocs", self.allocs),
            ("frees", self.frees),
            ("unmatched frees", self.unmatched_frees),
            ("never freed", self.never_freed),
            ("failed allocs", self.failed_allocs),
            ("lost frees", self.lost_frees),
            ("batched frees, confirmed", self.batched_confirmed),
            ("batched frees, alone", self.batched_alone),
            ("pages drained", self.drains),
        ];
        let duration = (
            "duration".to_owned(),
            human(self.duration_ns as f64, Unit::Nanos),
        );
        let counts = counts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), count(value)));
        [duration]
            .into_iter()
            .chain(counts)
            .map(|(name, value)| vec![name, value])
            .collect()
    }
}

fn count(value: u64) -> String {
    human(value as f64, Unit::Count)
}
