//! Tests of timelines: CPUs that go offline and come back, and knobs that change, in whole runs.

use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos, Pages};

use super::data::{Knobs, Moment, Plan};
use super::prepare::prepare;
use super::text::CpuList;
use super::timeline::of_design;
use super::{command, drive};
use crate::run::testbed::Testbed;

fn moment(at: &str, offline: &str, online: &str) -> Moment {
    let cpus = |list: &str| match list {
        "" => CpuList::default(),
        list => list.parse().unwrap(),
    };
    Moment {
        at: at.parse().unwrap(),
        offline: cpus(offline),
        online: cpus(online),
        ..Moment::default()
    }
}

fn plan(workload: &str, timeline: Vec<Moment>) -> Plan {
    Plan {
        timeline,
        length_ms: Some(200),
        ..command::plan(workload, "phone-8", &["linux", "ours"], &[]).unwrap()
    }
}

/// Runs `plan` up to the virtual time `ms` (milliseconds), and returns the testbed in the state at
/// this time.
fn run(plan: &Plan, ms: u64) -> Testbed {
    let prepared = prepare(plan).unwrap();
    let planned = &prepared.machines[0];
    let testbed = drive::testbed(&prepared, planned, &prepared.designs[0], 1);
    (prepared.workload.start)(&testbed, &planned.values, prepared.length);
    testbed.sim.run_until(Nanos::from_ms(ms));
    testbed
}

#[test]
fn a_cpu_that_went_offline_has_no_pages_and_no_tasks_and_can_come_back() {
    for workload in ["stress-vm", "make-like", "killed-apps", "overcommit"] {
        let away = moment("20ms", "2-3,7", "");
        let mut back = moment("150ms", "", "3");
        back.set = Knobs::from([("vm.stat_interval".to_owned(), 4)]);
        let plan = plan(workload, vec![back, away]);
        for (ms, here) in [(19, [2, 3]), (149, [0, 0]), (199, [0, 3])] {
            let Testbed { sim, mm, .. } = &run(&plan, ms);
            for cpu in [2, 3, 7] {
                let is_online = ms == 19 || here.contains(&cpu);
                assert_eq!(
                    sim.is_online(CpuId(cpu)),
                    is_online,
                    "{workload} {ms} {cpu}"
                );
                if !is_online {
                    assert!(!sim.has_tasks(CpuId(cpu)), "{workload} {ms} {cpu}");
                    assert_eq!(mm.pages().listed(sim, CpuId(cpu)), Pages::ZERO);
                }
            }
            let interval = if ms == 199 { 4000 } else { 1000 };
            assert_eq!(mm.pages().tunable(sim, Knob::StatInterval), interval);
        }
    }
}

#[test]
fn cpus_that_are_offline_from_the_start_get_no_workers() {
    for workload in ["stress-vm", "make-like", "killed-apps", "overcommit"] {
        let plan = plan(workload, vec![moment("0s", "1,3,5-7", "")]);
        assert_eq!(prepare(&plan).unwrap().machines[0].values.get("workers"), 3);
        let Testbed { sim, mm, .. } = &run(&plan, 100);
        let at = |cpu: u32| mm.pages().listed(sim, CpuId(cpu));
        assert!([0, 2, 4].into_iter().any(|cpu| at(cpu) > Pages::ZERO));
        assert_eq!([1, 3, 5, 6, 7].map(at), [Pages::ZERO; 5], "{workload}");
    }
}

#[test]
fn a_timeline_that_cannot_happen_is_refused() {
    let keys = |timeline| {
        let problems = prepare(&plan("stress-vm", timeline)).map(drop).unwrap_err();
        let keys = problems
            .iter()
            .map(|of| of.key.strip_prefix("timeline").unwrap().to_owned());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(vec![moment("200ms", "1", "")]), ["[0].at"]);
    assert_eq!(keys(vec![moment("1ms", "0-1", "")]), ["[0].offline"]);
    assert_eq!(
        keys(vec![moment("1ms", "8", "")]),
        ["[0].offline", "[0].offline"]
    );
    assert_eq!(keys(vec![moment("1ms", "", "2")]), ["[0].online"]);
    assert_eq!(keys(vec![moment("1ms", "", "")]), ["[0]"]);
    // The check goes through the moments in the order of time, and not in the order of the file. In
    // this test, the first entry of the file brings a CPU back at 2 ms. The second entry takes this
    // CPU away at 1 ms.
    let (back, away) = (moment("2ms", "", "1"), moment("1ms", "1", ""));
    prepare(&plan("stress-vm", vec![back.clone(), away.clone()])).unwrap();
    assert_eq!(keys(vec![away.clone(), away]), ["[1].offline"]);
}

#[test]
fn a_knob_can_change_in_one_design_only() {
    let mut change = moment("10ms", "", "");
    change.set = Knobs::from([("batch_scale_max".to_owned(), 0)]);
    change.designs = vec!["ours".to_owned()];
    let plan = plan("stress-vm", vec![change]);
    assert!(of_design(&plan, "linux").is_empty());
    assert_eq!(of_design(&plan, "ours").len(), 1);
}
