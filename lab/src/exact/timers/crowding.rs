//! Compares how many CPUs start their vmstat work together in a recording and on a simulated
//! machine.
//!
//! The simulated CPUs are always busy and always have counts to add to the zones' counters, like
//! the CPUs in a recording with `nohz=off` and a load on every CPU. The simulation covers as much
//! time as the recording, but at most 30 seconds. It runs twice: without late ticks (timer
//! interrupts that come a jiffy late), and with the recording's share of late ticks.

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Hz, Nanos};
use plimsoll_recording::Header;
use plimsoll_sim::SimOptions;
use plimsoll_sim::profile::{Card, Profile};

use super::chain::Chain;
use crate::report::Table;
use crate::run::testbed::{Cause, Testbed, crowd, crowd_on_one_tick};
use crate::workload::stress_vm::{Pause, StressVm};

/// The profile (description of a simulated machine) that gives the times of the simulated steps.
/// Any other profile would do, because these times do not affect when timers fire.
const PRICES: &str = "laptop-2";

/// In this time from the beginning of a recording, the comparison ignores starts of vmstat work,
/// because the first starts are caused by the shepherd and not by timers. If the recording is
/// shorter than twice this time, the comparison ignores the starts in the first half.
const SETTLED: Nanos = Nanos(5 * Nanos::SECOND.0);

/// The greatest length of a simulation. A longer simulation would show nothing new. If a recording
/// is longer, all of it is still evaluated.
const SIMULATED_MAX: Nanos = Nanos(30 * Nanos::SECOND.0);

/// The largest number of CPUs to simulate. A simulation of a larger machine would take too long.
const CPUS_MAX: u32 = 512;

/// The lengths, in milliseconds, of the windows in which CPUs that start their vmstat work together
/// are counted.
const WINDOWS_MS: [u64; 5] = [1, 4, 31, 32, 64];

/// A table of the largest crowds in the recording and in the simulation. A crowd is a group of CPUs
/// that all start their vmstat work within one tick, or within one of the windows [`WINDOWS_MS`].
/// Returns `None` if no timer started vmstat work after the time [`SETTLED`].
pub(super) fn table(hz: Hz, header: &Header, chain: &Chain) -> Option<Table> {
    let span = Nanos(chain.ended.0.saturating_sub(chain.began.0));
    let settled = Nanos(SETTLED.0.min(span.0 / 2));
    let from = chain.began + settled;
    let starts: Vec<Nanos> = chain
        .starts
        .iter()
        .copied()
        .filter(|&at| at >= from)
        .collect();
    if starts.is_empty() {
        return None;
    }
    let mut rows = vec![row("recorded".to_owned(), &starts, hz)];
    if (1..=CPUS_MAX).contains(&header.cpus) {
        let length = Nanos(span.0.min(SIMULATED_MAX.0));
        let late = chain.late_percent().min(50);
        let simulated = |late| simulate(hz, header.cpus, length, late);
        rows.push(row("simulated".to_owned(), &simulated(0), hz));
        rows.push(row(
            format!("with {late} % late ticks"),
            &simulated(late),
            hz,
        ));
    }
    let mut columns = vec![
        "machine".to_owned(),
        "starts".to_owned(),
        "one tick".to_owned(),
    ];
    columns.extend(WINDOWS_MS.map(|ms| format!("{ms} ms")));
    Some(Table {
        title: format!(
            "Largest number of {} CPUs whose vmstat work starts together, HZ {}",
            header.cpus,
            hz.get()
        ),
        note: format!(
            "Starts by timer, without the first {} s. The simulated CPUs are all busy.",
            settled.0 / Nanos::SECOND.0
        ),
        columns,
        rows,
    })
}

fn row(name: String, starts: &[Nanos], hz: Hz) -> Vec<String> {
    let all = || starts.iter().copied();
    let mut row = vec![name, starts.len().to_string()];
    row.push(crowd_on_one_tick(all(), hz).to_string());
    row.extend(WINDOWS_MS.map(|ms| crowd(all(), Nanos::from_ms(ms)).to_string()));
    row
}

/// Runs `cpus` busy simulated CPUs for the time `length`. Returns the times at which timers started
/// vmstat work.
pub(super) fn simulate(hz: Hz, cpus: u32, length: Nanos, late_ticks_percent: u32) -> Vec<Nanos> {
    let profile = Profile::load(PRICES, Card::Mid).expect("built in");
    let profile = Profile {
        topology: Topology::flat(cpus),
        hz,
        node_bytes: vec![2 << 30],
        ..profile
    };
    let options = SimOptions {
        seed: 1,
        late_ticks_percent,
        ..SimOptions::default()
    };
    let testbed = Testbed::with_options(&profile, Design::LINUX, options);
    // The CPUs are never idle. At nearly every refresh, the number of mapped pages differs from the
    // number at the last refresh, so the work finds counts to add to the shared counters and rearms
    // its timer.
    let worker = StressVm {
        bytes: 32 * 4096,
        use_ns_per_page: 1_500_000,
        pause: Pause::Awake(Nanos::from_ms(1)),
    };
    worker.start(&testbed, testbed.sim.topology().ids(), length);
    testbed.sim.run_until(length);
    let (_, log) = testbed.finish();
    let settled = Nanos(SETTLED.0.min(length.0 / 2));
    log.starts(settled, Some(Cause::Schedule)).collect()
}
