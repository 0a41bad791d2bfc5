//! Tests a machine that has more tasks than the host can allocate stacks for.

use std::env;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::process::Command;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::{NoStack, Sim, SimOptions};

use crate::support;

use support::small;

/// The test runs only if the host limits a process to fewer mappings than this.
const MAPS_ENOUGH: usize = 100_000;

/// Runs the test `all_mappings_are_used_up` in a separate process. In this process, it would leave
/// no room for the stacks of other tests that run at the same time.
#[test]
fn a_task_without_room_for_its_stack_unwinds_with_the_reason() {
    let program = env::current_exe().expect("this program has a file");
    let ran = Command::new(program)
        .args(["--exact", "stacks::all_mappings_are_used_up", "--ignored"])
        .output()
        .expect("it can be run again");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("1 passed"), "the test has that name: {said}");
}

#[test]
#[ignore = "uses up the mappings of its process; the test above runs it"]
fn all_mappings_are_used_up() {
    let maps = fs::read_to_string("/proc/sys/vm/max_map_count");
    let maps = maps.ok().and_then(|text| text.trim().parse::<usize>().ok());
    let Some(maps) = maps.filter(|&maps| maps < MAPS_ENOUGH) else {
        return;
    };
    let sim = Sim::new(
        &small::profile(Topology::flat(2), 1000),
        SimOptions::default(),
    );
    let ran = panic::catch_unwind(AssertUnwindSafe(|| {
        // As in a workload, a task and not the test itself spawns the other tasks.
        sim.spawn(CpuId(0), move |sim| {
            for _ in 0..maps {
                sim.spawn(CpuId(1), |sim| sim.sleep(Nanos::SECOND));
            }
        });
        sim.run();
    }));
    let cause = ran.expect_err("there is no room for so many");
    let refused: &NoStack = cause.downcast_ref().expect("it says why");
    assert!(refused.stacks < maps / 2, "{refused}");
    drop(sim);
    let again = Sim::new(
        &small::profile(Topology::flat(2), 1000),
        SimOptions::default(),
    );
    again.spawn(CpuId(0), |sim| assert_eq!(sim.this_cpu(), CpuId(0)));
    again.run();
}
