//! Tests that the OOM code selects the right victims by the sums of Plimsoll's per-CPU counters,
//! both while threads change the counters and while no thread does.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::counter::{Batch, Counting, Plan, Reading};
use plimsoll_mm::oom::{
    Candidates, Facts, Outcome, Scope, Selecting, Slot, TotalPages, Victim, sum_rss,
};
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

const CPUS: u32 = 64;

/// Processes, each represented only by the counters of its resident pages.
struct Processes<'a> {
    host: &'a Host,
    rss: &'a [Rss<Host>],
}

impl Candidates for Processes<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.rss.len()).expect("few")
    }

    fn facts(&self, _process: u32) -> Option<Facts> {
        Some(Facts::PROCESS)
    }

    fn approximate(&self, process: u32) -> Option<Reading> {
        Some(self.rss[process as usize].usage(self.host))
    }

    fn precise(&self, process: u32) -> Option<i64> {
        Some(self.rss[process as usize].usage_precise(self.host))
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        sum_rss(self.host, slots, |process| self.rss.get(process as usize));
    }

    fn batch_gain(&self) -> u32 {
        Counting::OneSided.batch_gain()
    }
}

impl Processes<'_> {
    fn select(&self, selecting: Selecting) -> (Victim, u64) {
        let scope = Scope::machine(TotalPages::new(1 << 22).expect("some"));
        let mut slots = vec![Slot::EMPTY; self.rss.len()];
        let selection = selecting.select(self, &scope, &mut slots);
        let selection = selection.expect("readings are in order");
        match selection.outcome {
            Outcome::Victim(victim) => (victim, selection.precise_sums),
            Outcome::Nobody(why) => panic!("{why:?}"),
        }
    }

    fn largest(&self) -> u32 {
        let sum = |process: &u32| self.precise(*process);
        (0..self.len())
            .max_by_key(sum)
            .expect("there is a candidate")
    }
}

/// Counts pages of several kinds on all CPUs: slightly more than `pages` for each process and CPU.
fn fill(host: &Host, rss: &[Rss<Host>], pages: i64) {
    for cpu in 0..CPUS {
        let _entered = host.enter(CpuId(cpu));
        for (nth, rss) in (0_i64..).zip(rss) {
            let mixed = (nth * 7919 + i64::from(cpu) * 104_729) % 61;
            rss.add_growing(host, RssKind::Anon, pages + mixed);
            rss.add_growing(host, RssKind::File, 61 - mixed);
            rss.add_growing(host, RssKind::Swap, nth % 7);
        }
    }
}

fn with_processes(counting: Counting, count: usize, test: impl Fn(&Host, &[Rss<Host>])) {
    let host = Host::with_topology(Topology::flat(CPUS));
    let _entered = host.enter(CpuId(0));
    let plan = Plan::new(&host, counting, Rss::<Host>::WIDTH, Batch::RSS).expect("a plan");
    let new = |_| Rss::new(&host, &plan).expect("there is memory");
    let rss: Vec<_> = (0..count).map(new).collect();
    test(&host, &rss);
}

#[test]
fn at_rest_the_largest_is_chosen_whatever_counts() {
    for counting in Counting::ALL {
        with_processes(counting, 300, |host, rss| {
            fill(host, rss, 10);
            let processes = Processes { host, rss };
            let largest = processes.largest();
            for selecting in [Selecting::Precise, Selecting::Bounded] {
                let (victim, _) = processes.select(selecting);
                assert_eq!(
                    (victim.candidate, victim.behind),
                    (largest, 0),
                    "{counting:?}"
                );
            }
            for selecting in [Selecting::Approximate, Selecting::TwoPass16] {
                let (victim, _) = processes.select(selecting);
                let [most, chosen] = [largest, victim.candidate].map(|at| processes.precise(at));
                let regret = most.expect("alive").abs_diff(chosen.expect("alive"));
                assert!(regret <= victim.behind, "{counting:?}, {selecting:?}");
            }
        });
    }
}

#[test]
fn exact_counters_need_no_sum() {
    with_processes(Counting::Shared, 300, |host, rss| {
        fill(host, rss, 10);
        let (_, sums) = Processes { host, rss }.select(Selecting::Bounded);
        assert_eq!(sums, 0);
    });
}

#[test]
fn a_hog_is_found_while_all_others_count() {
    for counting in Counting::ALL {
        with_processes(counting, 200, |host, rss| {
            fill(host, rss, 10);
            rss[77].add_growing(host, RssKind::Anon, 10_000_000);
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for cpu in [1, CPUS - 1] {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let _entered = host.enter(CpuId(cpu));
                        // The thread adds and removes the same number of pages, so the size of each
                        // process varies by only a few pages.
                        while !is_over.load(Relaxed) {
                            for rss in rss {
                                rss.add_growing(host, RssKind::Anon, 5);
                                rss.add_growing(host, RssKind::Anon, -5);
                            }
                        }
                    });
                }
                for _ in 0..200 {
                    let (victim, sums) = Processes { host, rss }.select(Selecting::Bounded);
                    assert_eq!((victim.candidate, victim.behind), (77, 0), "{counting:?}");
                    assert_eq!(sums, 0, "{counting:?}");
                }
                is_over.store(true, Relaxed);
            });
        });
    }
}
