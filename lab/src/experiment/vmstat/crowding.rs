//! Counts the CPUs that start their vmstat work together, at several tick rates. The counts show
//! how the timer wheel affects each schedule (rule for when a CPU's vmstat work runs next).
//!
//! All CPUs are busy, so every timer fires on time. All CPUs also allocate a little, so every CPU
//! always has its next vmstat work scheduled. At each tick rate, therefore, only the schedule
//! determines how many CPUs start together.

use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{Hz, Nanos};
use plimsoll_sim::profile::Profile;
use rand::RngExt;

use super::SCHEDULES;
use crate::catalog::designs;
use crate::error::Error;
use crate::measure::comparison::run_checked;
use crate::report::{Table, tabulate};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;
use crate::run::testbed::{self, Cause, Testbed};
use crate::workload::Mapping;

const HZ: [u32; 4] = [100, 250, 300, 1000];
const SHEPHERD: &str = "shepherd-at-once";

/// The largest crowds (numbers of CPUs whose vmstat work starts together) of each schedule at each
/// tick rate.
#[derive(Clone, Debug)]
pub(super) struct Crowding {
    cpus: u32,
    crowds: Vec<Crowd>,
}

#[derive(Clone, Debug, PartialEq)]
struct Crowd {
    schedule: &'static str,
    hz: u32,
    /// The largest number of CPUs whose vmstat work starts within one tick, within 1 ms, within 4
    /// ms, and within 32 ms, in this order.
    most: [usize; 4],
}

pub(super) fn measure(
    profile: &Profile,
    options: &Options,
    progress: &Progress,
) -> Result<Crowding, Error> {
    let seeds = match options.effort {
        Effort::Full => 2,
        Effort::Quick => 1,
    };
    let mut cases = Vec::new();
    for schedule in SCHEDULES {
        let design = designs::find(&format!("patched+{schedule}+{SHEPHERD}"))?.design;
        for hz in HZ {
            cases.push((schedule, design, hz));
        }
    }
    let crowds = run_checked(&cases, options, progress, |&(schedule, design, hz)| {
        let tick_rate = Hz::new(hz).expect("one of the four");
        let profile = profile.with_hz(tick_rate);
        let seeds = options.seeds.iter().take(seeds);
        let most = seeds
            .map(|&seed| crowd(&profile, design, seed))
            .fold([0; 4], |most: [usize; 4], one| {
                std::array::from_fn(|nth| most[nth].max(one[nth]))
            });
        Crowd { schedule, hz, most }
    })?;
    Ok(Crowding {
        cpus: profile.topology.cpus(),
        crowds,
    })
}

fn crowd(profile: &Profile, design: plimsoll_mm::design::Design, seed: u64) -> [usize; 4] {
    const SECOND: u64 = Nanos::SECOND.0;
    let end = Nanos(7 * SECOND);
    let testbed = Testbed::new(profile, design, seed);
    // No CPU is ever idle: each CPU repeatedly maps a few pages and lets time pass. The number of
    // pages varies, so that each run of the vmstat work finds counts to add to the shared counters.
    // The CPU lets time pass by advancing its clock and not by simulated computation. Simulated
    // computation would take the host longer and would not change any timer.
    for cpu in testbed.sim.topology().ids() {
        let mm = Rc::clone(&testbed.mm);
        testbed.sim.spawn(cpu, move |sim| {
            sim.spend(Work::Think, sim.rng().random_range(0..16_000_000));
            let mut mapping = Mapping::new(&mm);
            while sim.now() < end {
                mapping.fault(sim, sim.rng().random_range(16..=48));
                sim.spend(Work::Think, 16_000_000);
                mapping.unmap(sim);
            }
        });
    }
    testbed.sim.run_until(end);
    let (_, log) = testbed.finish();
    // Leave out the first runs of the vmstat work: with every schedule, the shepherd
    // (`vmstat_shepherd`) starts them all at once.
    let settled = Nanos(7 * SECOND / 2);
    let starts = || log.starts(settled, Some(Cause::Schedule));
    let ms = |ms| testbed::crowd(starts(), Nanos::from_ms(ms));
    [
        testbed::crowd_on_one_tick(starts(), profile.hz),
        ms(1),
        ms(4),
        ms(32),
    ]
}

impl Crowding {
    pub(super) fn table(&self) -> Table {
        const WITHIN: [&str; 4] = ["one tick", "1 ms", "4 ms", "32 ms"];
        let table = tabulate!(
            format!(
                "Crowding: most of {} CPUs whose work starts together",
                self.cpus
            ),
            self.note(),
            &self.crowds,
            |crowd| {
                "schedule" => crowd.schedule,
                "HZ" => crowd.hz,
            }
        );
        table.with_each(
            &self.crowds,
            WITHIN.into_iter().zip(0_usize..),
            |crowd, nth| crowd.most[*nth].to_string(),
        )
    }

    fn note(&self) -> String {
        let on_a_tick = |schedule: &str, hz: u32| {
            let mut crowds = self.crowds.iter();
            let found = crowds.find(|crowd| crowd.schedule == schedule && crowd.hz == hz);
            found.expect("every schedule runs at every tick rate").most[0]
        };
        format!(
            "All CPUs busy, so timers fire on time; starts by the schedule, not by the shepherd, once \
             it has settled. Linux's work is not aligned: its skew keeps CPUs 3 jiffies apart, and the \
             timer wheel puts {} of {} back on one tick at HZ 1000 but {} at HZ 250; exact phases put \
             at most {} on one tick, phases through the wheel {}.",
            on_a_tick("round-jiffies", 1000),
            self.cpus,
            on_a_tick("round-jiffies", 250),
            on_a_tick("phased", 1000),
            on_a_tick("phased-wheel", 1000),
        )
    }
}
