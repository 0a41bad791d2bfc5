//! Tenants share a budget of memory, which is checked at every allocation.
//!
//! Far below the limit, an approximate sum of the counter is enough to allow a request. Only near
//! the limit, where the approximate sum cannot decide, are the parts of all CPUs added up. The
//! example counts how many requests need this precise sum.
//!
//! `cargo run --release -p plimsoll-host --example memory_budget`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::cmp::Ordering;
use std::error::Error;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::counter::{AnyCounters, Batch, Counters, Counting, Plan};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

const TENANTS: u32 = 4;
const BUDGET_PAGES: i64 = 100_000;
const REQUEST_PAGES_MAX: i64 = 64;
/// The number of rounds. In each round, a tenant takes pages until a request is refused, then
/// returns half of its pages.
const ROUNDS: u32 = 100;

/// The index of the budget's counter. The budget has a group of counters with only this counter.
const USED: usize = 0;

/// The memory from which tenants take pages.
struct Budget {
    host: Host,
    used: AnyCounters<Host>,
    /// Two statistics, which a real budget would not need: `asked` counts the comparisons with the
    /// budget, and `summed` counts those comparisons that needed a precise sum.
    asked: AtomicI64,
    summed: AtomicI64,
}

impl Budget {
    /// Takes `pages` pages if they fit into the budget. Returns whether they did.
    fn take(&self, pages: i64) -> bool {
        // The addition comes before the comparison. So if two threads take the last pages, at least
        // one of them sees the addition of the other.
        self.used.add(&self.host, USED, pages);
        let fits = self.compare() != Ordering::Greater;
        if !fits {
            self.give_back(pages);
        }
        fits
    }

    fn give_back(&self, pages: i64) {
        self.used.add(&self.host, USED, -pages);
    }

    /// Compares the pages in use with the budget. `precise_compare_value` alone would be enough,
    /// because it begins with an approximate comparison. Here the approximate comparison is also
    /// made separately, to count how often it cannot decide.
    fn compare(&self) -> Ordering {
        let Self { host, used, .. } = self;
        self.asked.fetch_add(1, Relaxed);
        if used.approximate_compare_value(host, USED, BUDGET_PAGES) == Ordering::Equal {
            self.summed.fetch_add(1, Relaxed);
        }
        used.precise_compare_value(host, USED, BUDGET_PAGES)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::with_topology(Topology::flat(TENANTS));
    let plan = Plan::new(&host, Counting::OneSided, 1, Batch::RSS)?;
    let budget = Budget {
        used: plan.init_many(&host)?,
        host,
        asked: AtomicI64::new(0),
        summed: AtomicI64::new(0),
    };

    // `held` is the number of pages that tenants actually hold, kept in a slow shared counter.
    // `most` is its highest value so far.
    let (held, most) = (AtomicI64::new(0), AtomicI64::new(0));
    thread::scope(|scope| {
        for cpu in (0..TENANTS).map(CpuId) {
            let (budget, held, most) = (&budget, &held, &most);
            scope.spawn(move || {
                // The thread plays one CPU throughout, for two reasons. First, an addition then
                // need not ask the kernel on which CPU the thread runs. Second, pages are added to
                // and subtracted from the same part of the counter. So no sum can include the
                // subtraction without the addition.
                let _entered = budget.host.enter(cpu);
                live(budget, held, most);
            });
        }
    });

    let (asked, summed) = (budget.asked.into_inner(), budget.summed.into_inner());
    println!("{asked} requests, {summed} of them so near the limit that every CPU was summed");
    assert!(summed * 5 < asked, "the cheap look decides nearly always");

    // The pages in use can exceed the budget, but only by the additions that other threads are
    // making at the same moment.
    let under_way = plan.shape().in_flight(REQUEST_PAGES_MAX);
    let allowed = BUDGET_PAGES.saturating_add_unsigned(u64::from(TENANTS - 1) * under_way);
    let most = most.into_inner();
    println!("at most {most} pages were held at a time, of {BUDGET_PAGES}; {allowed} are promised");
    assert!(most <= allowed, "the budget holds");
    assert!(most > BUDGET_PAGES * 9 / 10, "and can be used");
    let left = budget.used.precise_sum(&budget.host, USED);
    assert_eq!(left, 0, "all was given back");
    budget.used.destroy_many(&budget.host);
    Ok(())
}

/// Plays one tenant. In each round the tenant takes pages until a request is refused, then returns
/// half of its pages to the budget. At the end it returns the rest.
fn live(budget: &Budget, held: &AtomicI64, most: &AtomicI64) {
    let mut mine = Vec::new();
    for _ in 0..ROUNDS {
        for pages in (1..=REQUEST_PAGES_MAX).cycle() {
            if !budget.take(pages) {
                break;
            }
            most.fetch_max(held.fetch_add(pages, Relaxed) + pages, Relaxed);
            mine.push(pages);
        }
        give_back(budget, held, mine.split_off(mine.len() / 2));
    }
    give_back(budget, held, mine);
}

fn give_back(budget: &Budget, held: &AtomicI64, pages: Vec<i64>) {
    for pages in pages {
        held.fetch_sub(pages, Relaxed);
        budget.give_back(pages);
    }
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
