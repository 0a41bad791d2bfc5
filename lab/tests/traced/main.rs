//! Tests of traces and of explanations of simulated runs.

mod read;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use plimsoll_lab::plan::data::Plan;
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::{command, prepare};
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::slices::{
    Count, Counted, Disturbed, Held, Limits, Mark, Moved, PhaseSlice, Releaser, Run, SLICES_MOST,
    Slices, Traces, Waited, Window,
};
use plimsoll_lab::{explain, perfetto};
use plimsoll_mm::event::Phase;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::Disturbance;
use plimsoll_sim::{Access, Hold, Runs, Wait};

use self::read::{Read, lines, read};

/// A plan that runs two designs on 72 CPUs for a few milliseconds.
fn plan() -> Plan {
    let plan = command::plan("stress-vm", "grace-72", &["linux", "ours"], &[]);
    Plan {
        length_ms: Some(8),
        seeds: 1,
        ..plan.expect("the knobs are set well")
    }
}

fn run(plan: &Plan, trace: Option<Traces>) -> String {
    let how = How {
        jobs: Jobs::new(NonZeroUsize::new(2).expect("not zero")),
        record: None,
        watch: None,
        trace,
    };
    let prepared = prepare::prepare(plan).expect("the names exist");
    let report = drive::run(&prepared, &prepared.machines[0], &how, &Progress::hidden());
    format!("{:?}", report.expect("the designs differ").0)
}

fn traced(plan: &Plan, limits: Limits) -> Vec<Slices> {
    let traces = Traces::new(limits);
    run(plan, Some(traces.clone()));
    traces.take()
}

/// Writes a trace of `runs`, reads the trace again, and returns its contents.
fn written(runs: &[Slices]) -> Read {
    let mut trace = Vec::new();
    let events = perfetto::write(runs, &mut trace).expect("memory takes it");
    let read = read(&trace);
    assert_eq!(read.events, events);
    read
}

fn whole_run() -> Limits {
    Limits {
        windows: vec![Window::ALL],
        slices_max: SLICES_MOST,
    }
}

#[test]
fn a_trace_has_every_slice_and_each_flow_goes_from_a_wait_to_its_release() {
    let runs = traced(&plan(), whole_run());
    let read = written(&runs);
    let named = |design| format!("{design} on grace-72, seed 1");
    assert_eq!(read.processes, [named("linux"), named("ours")]);
    let cpus = |name: &str| read.tracks.values().filter(|track| track.0 == name).count();
    assert!((0..72).all(|cpu| cpus(&format!("CPU {cpu}")) == 2));
    let count = |begin: &str| {
        let slices = read.slices.values().flatten();
        slices.filter(|slice| slice.0.starts_with(begin)).count()
    };
    let sum = |of: fn(&Slices) -> usize| runs.iter().map(of).sum::<usize>();
    assert!(runs.iter().all(|run| run.cut.is_none()));
    assert_eq!(count("wait for "), sum(|run| run.waits.len()));
    assert_eq!(count("hold "), sum(|run| run.holds.len()));
    assert!(count("wait for zone->lock") > 500);
    let [begins, ends] = &read.flows;
    assert_eq!(
        begins.keys().collect::<Vec<_>>(),
        ends.keys().collect::<Vec<_>>()
    );
    assert!(
        begins.len() * 10 > 9 * count("wait for "),
        "nearly all waits have a flow"
    );
    assert!(begins.iter().all(|(flow, at)| *at <= ends[flow]));
}

/// Two holds by task 7 on CPU 0. `like` is any hold.
fn holds(like: Hold) -> Vec<Held> {
    let held = |number, class, site, access, moved| Held {
        number,
        hold: Hold {
            class,
            site,
            access,
            cpu: CpuId(0),
            task: 7,
            from: Nanos(number * 10),
            until: Nanos(number * 10 + 10),
            ..like
        },
        moved,
    };
    let moved = Moved {
        pages: Pages(63),
        blocks: 9,
        lists_of: CpuId(3),
    };
    vec![
        held(1, LockClass::Zone, Site::Refill, Access::Spin, Some(moved)),
        held(3, LockClass::Mmap, Site::Fault, Access::Read, None),
    ]
}

/// Two waits by task 8 on CPU 1, the first of which ends with the first of the [`holds`]. `like` is
/// any wait.
fn waits(like: Wait) -> Vec<Waited> {
    let waited = |from, until, hold| Waited {
        wait: Wait {
            class: LockClass::Zone,
            site: Site::Spill,
            cpu: CpuId(1),
            task: 8,
            from: Nanos(from),
            until: Nanos(until),
            ..like
        },
        releaser: Releaser {
            cpu: CpuId(0),
            site: Site::Refill,
            hold,
        },
    };
    vec![waited(12, 20, Some(1)), waited(25, 26, None)]
}

/// A short run with at least one event of each kind. `hold` and `wait` are any hold and wait.
fn small_run(hold: Hold, wait: Wait) -> Slices {
    let count = |at, value| Count {
        at: Nanos(at),
        what: Counted::Listed,
        value,
    };
    Slices {
        cpus: 2,
        runs: vec![Run {
            cpu: CpuId(0),
            runs: Runs::Task(7),
            from: Nanos(0),
            until: Nanos(90),
            preempted: true,
        }],
        holds: holds(hold),
        waits: waits(wait),
        disturbed: vec![Disturbed {
            cpu: CpuId(1),
            kind: Disturbance::Steal,
            from: Nanos(50),
            until: Nanos(60),
        }],
        phases: vec![PhaseSlice {
            task: 7,
            cpu: CpuId(1),
            phase: Phase::Exit,
            from: Nanos(30),
            until: Nanos(45),
        }],
        marks: vec![Mark {
            cpu: CpuId(0),
            at: Nanos(15),
            what: "split",
            numbers: vec![("a", 1), ("b", 2), ("c", 3), ("d", 400)],
        }],
        counts: vec![count(5, 300), count(45, 299)],
        ..Slices::default()
    }
}

/// Each event of a trace has its own name, category, values and flow, and belongs to its own run.
#[test]
fn a_small_trace_has_these_lines() {
    let real = traced(&plan(), whole_run()).remove(0);
    let small = || small_run(real.holds[0].hold, real.waits[0].wait);
    let second = Slices {
        holds: small().holds.split_off(1),
        counts: vec![Count {
            value: -8,
            ..small().counts[0]
        }],
        waits: Vec::new(),
        marks: Vec::new(),
        phases: Vec::new(),
        disturbed: Vec::new(),
        ..small()
    };
    let runs = [("a", small()), ("b", second), ("c", small())];
    let runs = runs.map(|(design, run)| run.named("m", design));
    written(&runs);
    let mut trace = Vec::new();
    perfetto::write(&runs, &mut trace).expect("memory takes it");
    let lines = lines(&trace);
    let wanted: Vec<&str> = include_str!("small.txt").lines().collect();
    assert_eq!(lines, wanted, "{}", lines.join("\n"));
}

/// The total times of what was kept of `runs`, for three kinds of tracks: those of CPUs, those of
/// disturbances, and those of tasks.
fn kept_ns(runs: &[Slices]) -> [u64; 3] {
    let mut kept = [0; 3];
    for run in runs {
        for of in &run.runs {
            kept[0] += of.until.0 - of.from.0;
        }
        for Held { hold, .. } in &run.holds {
            kept[usize::from(hold.class.sleeps()) * 2] += hold.until.0 - hold.from.0;
        }
        for Waited { wait, .. } in &run.waits {
            kept[usize::from(wait.class.sleeps()) * 2] += wait.until.0 - wait.from.0;
        }
        for of in &run.disturbed {
            kept[1] += of.until.0 - of.from.0;
        }
        for of in &run.phases {
            kept[2] += of.until.0 - of.from.0;
        }
    }
    kept
}

/// The slices of a track must lie inside or beside one another. Otherwise, the trace would shorten
/// one of them.
#[test]
fn the_slices_of_each_track_nest_with_their_whole_lengths() {
    let small = |workload, machine, length_ms| Plan {
        length_ms: Some(length_ms),
        seeds: 1,
        ..command::plan(workload, machine, &["linux", "ours"], &[]).expect("the names exist")
    };
    let cut = Limits {
        slices_max: 5000,
        ..whole_run()
    };
    for (plan, limits) in [
        (plan(), whole_run()),
        (plan(), cut),
        (small("make-like", "grace-72", 10), whole_run()),
        (small("killed-apps", "phone-8", 400), whole_run()),
        (small("overcommit", "laptop-2", 40), whole_run()),
    ] {
        let runs = traced(&plan, limits);
        let read = written(&runs);
        let total = |begin: &str| {
            let named = |track: &u64| read.tracks[track].0.starts_with(begin);
            let of = read.slices.iter().filter(|(track, _)| named(track));
            let of = of.flat_map(|(_, slices)| slices);
            of.map(|(_, from, until)| until - from).sum::<u64>()
        };
        let total = [total("CPU "), total("disturbances of CPU "), total("task ")];
        assert_eq!(total, kept_ns(&runs), "{}", plan.name);
        assert!(total[0] > 0);
        let has_phases = ["killed-apps", "overcommit"].contains(&plan.name.as_str());
        assert_eq!(total[2] > 0, has_phases, "{}", plan.name);
    }
}

#[test]
fn counters_count_the_waiters_and_the_pages() {
    let runs = traced(&plan(), whole_run());
    let read = written(&runs);
    for (track, (name, _)) in &read.tracks {
        let Some(values) = read.values.get(track) else {
            continue;
        };
        let most = values.iter().map(|(_, value)| *value).max();
        let (most, last) = (most.unwrap_or(0), values.last().map_or(0, |last| last.1));
        match name.as_str() {
            "CPUs that wait for zone->lock" => assert!((2..=72).contains(&most) && last == 0),
            "pages on the lists of all CPUs" => assert!((1000..1_000_000).contains(&most)),
            _ => assert!(values.iter().all(|(_, value)| *value >= 0), "{name}"),
        }
    }
    let names: BTreeSet<&str> = read.tracks.values().map(|track| track.0.as_str()).collect();
    assert!(names.contains("CPUs that wait for zone->lock"));
    assert!(names.contains("pages on the lists of all CPUs"));
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("free pages of zone "))
    );
}

#[test]
fn a_traced_run_has_the_same_report() {
    let plan = Plan { seeds: 2, ..plan() };
    let traces = Traces::new(whole_run());
    assert_eq!(run(&plan, Some(traces.clone())), run(&plan, None));
    let seeds: Vec<u64> = traces.take().iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [1, 1], "only the first seed is traced");
}

#[test]
fn a_window_and_a_limit_bound_a_trace() {
    let plan = plan();
    let window = Window::parse("2ms..2500us").expect("a window");
    let within = |run: &Slices| {
        let times = run.waits.iter().map(|of| (of.wait.from, of.wait.until));
        let holds = run.holds.iter().map(|of| (of.hold.from, of.hold.until));
        times
            .chain(holds)
            .all(|(from, until)| window.meets(from, until))
    };
    let limits = Limits {
        windows: vec![window],
        ..whole_run()
    };
    let part = traced(&plan, limits);
    let whole = traced(&plan, whole_run());
    for (part, whole) in part.iter().zip(&whole) {
        assert!(within(part) && !part.waits.is_empty());
        let waits = whole.waits.iter().map(|of| of.wait);
        let waits = waits.filter(|wait| window.meets(wait.from, wait.until));
        assert_eq!(part.waits.len(), waits.count());
        assert_eq!(part.hash, whole.hash);
    }
    let limits = Limits {
        slices_max: 1000,
        ..whole_run()
    };
    for run in traced(&plan, limits) {
        assert!(run.cut.is_some_and(|cut| cut < run.ended));
        assert!((1000..1000 + 2 * 72).contains(&run.len()), "{}", run.len());
    }
}

#[test]
fn the_longest_waits_are_explained() {
    let plan = plan();
    let pass = |traces: Traces| {
        run(&plan, Some(traces.clone()));
        traces.take()
    };
    let first = pass(explain::first_pass());
    let second = pass(explain::second_pass(&first));
    let whole = traced(&plan, whole_run());
    for (nth, slices) in second.iter().enumerate() {
        // Compare waits without the ids of their locks, because the id of a lock differs from run
        // to run.
        let times = |of: &Slices| {
            let of = of.longest.iter();
            of.map(|wait| (wait.cpu, wait.from, wait.until))
                .collect::<Vec<_>>()
        };
        assert_eq!(times(slices), times(&first[nth]));
        let explanation = explain::explain(slices);
        assert_eq!(explanation.waits.len(), 10);
        let mut lengths = whole[nth]
            .waits
            .iter()
            .map(|of| of.wait.until.0 - of.wait.from.0);
        assert_eq!(lengths.clone().max(), Some(explanation.waits[0].wait_ns));
        let longer = explanation.waits[9].wait_ns;
        assert!(lengths.by_ref().filter(|ns| *ns > longer).count() < 10);
        for wait in &explanation.waits {
            let holder = &wait.released_by;
            let (from, length) = (
                holder.from_ns.expect("a hold"),
                holder.hold_ns.expect("a hold"),
            );
            let end = wait.from_ns + wait.wait_ns;
            assert!(
                wait.from_ns < from + length && from + length <= end,
                "{wait:?}"
            );
            assert!(
                wait.lock != "zone->lock" || holder.pages.is_some(),
                "{wait:?}"
            );
            assert!(wait.holds >= 1 && wait.holds_ns <= wait.wait_ns, "{wait:?}");
            assert!(!wait.queued.contains(&wait.cpu));
        }
        let text = explain::text(&explanation, 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains(" 1. CPU ") && text.contains("10. CPU "));
        // The waits have the same explanation if the whole run is kept, not only what happened
        // during the longest waits.
        let of_whole = explain::explain(&whole[nth]);
        assert_eq!(of_whole, explanation);
    }
}
