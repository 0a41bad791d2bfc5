//! Many threads fill the caches of tenants. When memory is short, the largest tenant is emptied.
//!
//! A counter counts the pages of each tenant. An approximate sum of the counter is cheap and gives
//! a range; a precise sum reads every CPU's part of the counter and gives the exact number. The
//! selection reads the range of every tenant and the precise sum of only a few, and still chooses
//! the largest tenant. Some tenants pay for protection: such a tenant is spared if another tenant
//! is nearly as large.
//!
//! `cargo run --release -p plimsoll-host --example choose_victim`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::cell::Cell;
use std::error::Error;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::counter::{AnyCounters, Batch, Counters, Counting, Plan, Reading};
use plimsoll_mm::oom::{
    Bounded, Candidates, Facts, Outcome, Scope, ScoreAdj, Selecting, Slot, TotalPages,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

const CPUS: u32 = 16;
const TENANTS: u32 = 500;
/// Every tenant whose number is a multiple of 100 pays for protection.
const PAYING: u32 = 100;
const TOTAL_PAGES: u64 = 1 << 20;

/// The index of a tenant's counter. Each tenant has a group of counters with only this counter.
const HELD: usize = 0;

/// The tenants and the memory that they hold, in pages.
struct Tenants {
    host: Host,
    held: Vec<AnyCounters<Host>>,
    /// The number of precise sums (reads of every CPU's part of a counter) so far, as a statistic.
    sums: Cell<u64>,
}

impl Candidates for Tenants {
    fn len(&self) -> u32 {
        TENANTS
    }

    fn facts(&self, tenant: u32) -> Option<Facts> {
        // An adjustment of -1 subtracts a thousandth of all pages, which is 1048 pages, from the
        // points of a paying tenant.
        let adj = if tenant.is_multiple_of(PAYING) { -1 } else { 0 };
        let adj = ScoreAdj::new(adj).ok()?;
        Some(Facts {
            adj,
            ..Facts::PROCESS
        })
    }

    fn approximate(&self, tenant: u32) -> Option<Reading> {
        let range = self.held[tenant as usize].min_max(&self.host, HELD);
        let estimate = i64::midpoint(range.min, range.max);
        Some(Reading { estimate, range })
    }

    fn precise(&self, tenant: u32) -> Option<i64> {
        self.sums.set(self.sums.get() + 1);
        Some(self.held[tenant as usize].precise_sum(&self.host, HELD))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::with_topology(Topology::flat(CPUS));
    let plan = Plan::new(&host, Counting::OneSided, 1, Batch::RSS)?;
    let held: Result<Vec<_>, _> = (0..TENANTS).map(|_| plan.init_many(&host)).collect();
    let (held, sums) = (held?, Cell::new(0));

    // Each thread adds pages to every tenant. A tenant with a higher number gets more pages.
    thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (host, held) = (&host, &held);
            scope.spawn(move || {
                let _entered = host.enter(CpuId(cpu));
                for page in 0..1200 {
                    for (tenant, held) in (0_u32..).zip(held) {
                        let share = 600 + tenant;
                        if page < share {
                            held.add(host, HELD, 1);
                        }
                    }
                }
            });
        }
    });
    let tenants = Tenants { host, held, sums };
    let _entered = tenants.host.enter(CpuId(0));

    // The slots, in which a selection keeps candidates, are allocated in advance, because a
    // selection runs when memory is short.
    let mut slots = vec![Slot::EMPTY; TENANTS as usize];
    let scope = Scope::machine(TotalPages::new(TOTAL_PAGES)?);
    for selecting in Selecting::ALL {
        tenants.sums.set(0);
        let selection = selecting.select(&tenants, &scope, &mut slots)?;
        println!("{:19} {:?}", selecting.name(), selection);
        assert_eq!(selection.precise_sums, tenants.sums.get());
    }

    let selection = Bounded::new().select(&tenants, &scope, &mut slots)?;
    let Outcome::Victim(victim) = selection.outcome else {
        return Err(format!("no victim: {selection:?}").into());
    };
    assert_eq!(
        (victim.candidate, victim.behind),
        (TENANTS - 1, 0),
        "the largest, for certain"
    );
    assert!(
        selection.precise_sums < u64::from(TENANTS) / 4,
        "and few were summed"
    );

    // With at most two precise sums, the victim may not be the largest tenant. `behind` is an upper
    // bound: no other tenant has more points than the victim's points plus `behind`.
    let hurried = Bounded::with_budget(2).select(&tenants, &scope, &mut slots)?;
    println!("two sums at most:   {hurried:?}");
    assert!(hurried.precise_sums <= 2);
    for held in tenants.held {
        held.destroy_many(&tenants.host);
    }
    Ok(())
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
