//! Tenants that share a budget of memory, and are asked for it at every allocation.
//!
//! Far from the limit a cheap look at the counter is enough to say yes. Only near it, where the
//! look cannot tell, is every CPU's part summed. The example counts how often that is.
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
/// How often each tenant takes until it is refused, and then gives half of it back.
const ROUNDS: u32 = 100;

/// The only counter of its group.
const USED: usize = 0;

/// Memory that tenants take from.
struct Budget {
    host: Host,
    used: AnyCounters<Host>,
    /// Statistics of this example, which you would not have.
    asked: AtomicI64,
    summed: AtomicI64,
}

impl Budget {
    /// Takes `pages`, if there are as many.
    fn take(&self, pages: i64) -> bool {
        // First add, then look: of two who take the last pages, at least one sees the other.
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

    /// How the pages in use compare with the budget. That is `precise_compare_value`; its cheap
    /// half is asked first here only to count how often that was not enough.
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

    // What tenants really hold, by a slow shared counter, and the most that ever was.
    let (held, most) = (AtomicI64::new(0), AtomicI64::new(0));
    thread::scope(|scope| {
        for cpu in (0..TENANTS).map(CpuId) {
            let (budget, held, most) = (&budget, &held, &most);
            scope.spawn(move || {
                // One that stays on its CPU saves asking the kernel for it, and what it gives back
                // is subtracted where it was added: no sum sees the one without the other.
                let _entered = budget.host.enter(cpu);
                live(budget, held, most);
            });
        }
    });

    let (asked, summed) = (budget.asked.into_inner(), budget.summed.into_inner());
    println!("{asked} requests, {summed} of them so near the limit that every CPU was summed");
    assert!(summed * 5 < asked, "the cheap look decides nearly always");

    // The limit is sharp but for additions of others that are under way at the very moment.
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

/// Takes until it is refused and gives half back, many times; all of it at the end.
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
