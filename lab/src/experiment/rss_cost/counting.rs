//! Counting alone: every CPU adds to one counter and does nothing else.
//!
//! This setup shows which cache lines a kind of counter moves when no other work hides the moves.
//! Every addition increases the counter, as page faults do while a process fills memory. At full
//! speed, most CPUs wait for the busiest cache line, and only a few CPUs use the other cache lines.
//! So a counter may move fewer cache lines than it would under a workload. In a second run, the
//! CPUs therefore add at the rate of page faults.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::counter::{AnyCounters, Batch, Counters, Counting, Plan};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Distance;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::Sim;
use plimsoll_sim::profile::Profile;
use rand::RngExt;

use crate::experiment::driver::{Reading, read, readings};
use crate::measure::metric::{Metric, Unit};
use crate::run::testbed::simulated;
use crate::watch;

/// The number of cache lines that move to another socket per 1000 additions to a counter, if all
/// CPUs do nothing but add.
const REMOTE: Metric = Metric::lower("remote_lines_per_1000_adds", Unit::Count);
/// The number of additions per second by all CPUs together, if they do nothing but add.
const RATE: Metric = Metric::higher("adds_per_s", Unit::PerSecond);
/// The number of cache lines that move to another socket per 1000 additions, if CPUs add at the
/// rate of page faults.
const PACED_REMOTE: Metric = Metric::lower("paced_remote_lines_per_1000_adds", Unit::Count);

/// The metrics of the run in which all CPUs do nothing but add ([`Pace::Full`]).
const AT_FULL_PACE: &[Reading<Counted>] = readings!(|counted| {
    REMOTE => counted.per_1000(Distance::Remote),
    Metric::lower("lines_per_1000_adds", Unit::Count) => counted.all_per_1000(),
    RATE => counted.adds_per_s(),
});

/// The metrics of the run in which CPUs add as often as they fault in pages ([`Pace::Faults`]).
const AT_PACE_OF_FAULTS: &[Reading<Counted>] = readings!(|counted| {
    PACED_REMOTE => counted.per_1000(Distance::Remote),
    Metric::lower("paced_lines_per_1000_adds", Unit::Count) => counted.all_per_1000(),
});

/// The work that a CPU does between two additions to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// A CPU adds again immediately after each addition.
    Full,
    /// A CPU does the work of a page fault before each addition.
    Faults,
}

/// All paces at which CPUs add. The results of a run are in this order.
pub(super) const PACES: [Pace; 2] = [Pace::Full, Pace::Faults];

/// How many additions each CPU makes, on average, before the measurement. This is several times a
/// CPU's batch in every variant. A tree that tracks which CPUs add has therefore seen every CPU add
/// before the measurement begins.
const WARM_UP_ADDS: u64 = 4 << 10;

/// How many additions each CPU makes, on average, during the measurement. On a machine of 384 CPUs,
/// each CPU adds its part of the flat counter to the shared value about ten times during these
/// additions.
const ADDS: u64 = 8 << 10;

/// Each CPU draws a random number below this limit, so that the CPUs' batches do not all end at the
/// same time. A CPU that has drawn n computes for n nanoseconds before its first addition. It then
/// makes n additions without the work of a page fault.
const HEAD_START_MAX: u32 = 1 << 10;

/// The results of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) pace: Pace,
    /// The number of additions that were measured.
    adds: u64,
    /// The virtual time that the measured additions took.
    span: Nanos,
    /// The number of cache lines that moved in the time `span`, indexed by `Distance as usize`.
    lines: [u64; 5],
    /// The hash of everything that the run did. Equal runs have equal hashes.
    pub(super) hash: u64,
}

/// The counts at one moment of a run.
#[derive(Clone, Copy)]
struct Mark {
    adds: u64,
    now: Nanos,
    lines: [u64; 5],
}

impl Counted {
    /// Runs the setup once on all CPUs. If an addition is lost, the function panics and names the
    /// seed.
    pub(super) fn measure(profile: &Profile, counting: Counting, pace: Pace, seed: u64) -> Self {
        let sim = Sim::new(profile, simulated(seed));
        let watcher = watch::attach(&sim);
        let plan = Plan::new(&sim, counting, 1, Batch::RSS).expect("one counter fits");
        let counters = plan.init_many(&sim).expect("the host has memory for it");
        if let AnyCounters::OneSided(tree) = &counters {
            tree.grow(&sim).expect("the host has memory for it");
        }
        let [from, to] = add_on_all_cpus(&sim, &Rc::new(counters), pace);
        if let Some(watcher) = watcher {
            watcher.ended(&sim.stats());
        }
        let mut lines = to.lines;
        for (line, before) in lines.iter_mut().zip(from.lines) {
            *line -= before;
        }
        Self {
            pace,
            adds: to.adds - from.adds,
            span: Nanos(to.now.0 - from.now.0),
            lines,
            hash: sim.stats().hash,
        }
    }

    /// The number of cache lines moved over `distance`, per 1000 additions.
    pub(super) fn per_1000(&self, distance: Distance) -> f64 {
        1000.0 * self.lines[distance as usize] as f64 / self.adds as f64
    }

    /// The number of cache lines moved between CPUs, per 1000 additions.
    pub(super) fn all_per_1000(&self) -> f64 {
        FAR.iter().map(|distance| self.per_1000(*distance)).sum()
    }

    pub(super) fn adds_per_s(&self) -> f64 {
        self.adds as f64 * Nanos::SECOND.0 as f64 / self.span.0 as f64
    }

    pub(super) fn metrics(&self) -> Vec<(Metric, f64)> {
        read(self.pace.metrics(), self)
    }
}

impl Pace {
    pub(super) const fn metrics(self) -> &'static [Reading<Counted>] {
        match self {
            Self::Full => AT_FULL_PACE,
            Self::Faults => AT_PACE_OF_FAULTS,
        }
    }
}

/// All distances between two different CPUs.
pub(super) const FAR: [Distance; 4] = [
    Distance::Core,
    Distance::Llc,
    Distance::Socket,
    Distance::Remote,
];

/// Adds on all CPUs until they have made as many additions as the warm-up and the measurement need
/// together. Returns the counts at the beginning and at the end of the measurement.
fn add_on_all_cpus(sim: &Sim, counters: &Rc<AnyCounters<Sim>>, pace: Pace) -> [Mark; 2] {
    let cpus = u64::from(sim.topology().cpus());
    let ends = [WARM_UP_ADDS, WARM_UP_ADDS + ADDS].map(|adds| adds * cpus);
    let marks: Rc<[Cell<Option<Mark>>; 2]> = Rc::default();
    let total = Rc::new(Cell::new(0));
    for cpu in sim.topology().ids() {
        let (counters, marks, total) = (Rc::clone(counters), Rc::clone(&marks), Rc::clone(&total));
        sim.spawn(cpu, move |sim| {
            let mut head_start = sim.rng().random_range(0..HEAD_START_MAX);
            sim.spend(Work::Think, head_start);
            while total.get() < ends[1] {
                if head_start > 0 {
                    head_start -= 1;
                } else if pace == Pace::Faults {
                    sim.spend(Work::Fault, 1);
                }
                counters.add_growing(sim, 0, 1);
                let adds = total.get() + 1;
                total.set(adds);
                if let Some(end) = ends.iter().position(|end| *end == adds) {
                    let (now, lines) = (sim.now(), sim.stats().lines);
                    marks[end].set(Some(Mark { adds, now, lines }));
                }
            }
        });
    }
    sim.run();
    let sum = counters.precise_sum(sim, 0).cast_unsigned();
    assert_eq!(sum, total.get(), "an addition is lost; seed {}", sim.seed());
    let mark = |mark: &Cell<Option<Mark>>| mark.get().expect("the run goes on to the last mark");
    [mark(&marks[0]), mark(&marks[1])]
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::*;

    /// The cache line of the shared counter moves at nearly every addition. Our tree follows the
    /// topology, so none of its cache lines moves to another socket.
    #[test]
    fn a_shared_line_moves_at_each_addition_and_a_tree_along_the_machine_crosses_never() {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let counted = |counting| Counted::measure(&profile, counting, Pace::Faults, 1);
        let shared = counted(Counting::Shared);
        assert!(shared.all_per_1000() > 990.0, "{shared:?}");
        let one_sided = counted(Counting::OneSided);
        assert!(one_sided.per_1000(Distance::Remote) < 0.01, "{one_sided:?}");
    }
}
