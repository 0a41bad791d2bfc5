//! Tests the course of a run (what happened in it, over time) as a page shows it. Watching must
//! change no result, and the page must show what the machine has counted.

use std::num::NonZeroUsize;

use plimsoll_lab::experiment;
use plimsoll_lab::html::{self, Page};
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::{Plan, command, prepare};
use plimsoll_lab::report::Report;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::options::{Effort, Options};
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::watch::{Course, Courses, Unit};

/// A comparison of the design `linux` with the design `ours`.
struct Comparison {
    workload: &'static str,
    machine: &'static str,
    length_ms: u64,
    seeds: u64,
}

fn compare(what: &Comparison, watch: Option<Courses>) -> Report {
    let (workload, machine) = (what.workload, what.machine);
    let plan = Plan {
        length_ms: Some(what.length_ms),
        seeds: what.seeds,
        ..command::plan(workload, machine, &["linux", "ours"], &[]).expect("known names")
    };
    let prepared = prepare::prepare(&plan).expect("a plan that can run");
    let how = How {
        jobs: Jobs::new(NonZeroUsize::MIN),
        record: None,
        watch,
        trace: None,
    };
    let run = drive::run(&prepared, &prepared.machines[0], &how, &Progress::hidden());
    run.expect("designs that differ").0
}

/// Returns the report of a comparison, and the course of each design's run (what happened over
/// virtual time). Checks that watching does not change the hash of the comparison.
fn watched(what: &Comparison) -> (Report, Vec<Course>) {
    let courses = Courses::default();
    let report = compare(what, Some(courses.clone()));
    let plain = compare(what, None);
    assert_eq!(
        report.hash, plain.hash,
        "{}: watching changes nothing",
        what.workload
    );
    let courses = courses.take();
    assert_eq!(courses.len(), 2, "one course for each design");
    (report, courses)
}

fn sum(course: &Course, map: &str) -> f64 {
    let maps = course.maps.iter().filter(|of| of.name == map);
    maps.flat_map(|map| map.values()).sum()
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 0.06 * one.max(other)
}

#[test]
fn a_course_has_the_waits_that_the_machine_counted() {
    let (report, courses) = watched(&Comparison {
        workload: "stress-vm-bursts",
        machine: "grace-72",
        length_ms: 1200,
        seeds: 2,
    });
    for course in &courses {
        let name = &course.design;
        assert_eq!((course.cpus, course.seed), (72, 1), "{name}");
        assert!(course.length_ns >= 1_200_000_000, "{name}");
        assert!(
            course.bin_ns * course.bins as u64 > course.length_ns,
            "{name}"
        );
        // The table of waits and the course (the data of the charts) are about the same run: the
        // run with the first seed.
        let title = format!("Waits for locks under {name}, first seed");
        let table = report.tables.iter().find(|table| table.title == title);
        let table = table.expect("the report has the locks of each design");
        assert_eq!(table.rows.len(), course.waits.len(), "{name}");
        for (row, waits) in table.rows.iter().zip(&course.waits) {
            let count = row[0].replace(',', "");
            assert_eq!(count, waits.count.to_string(), "{name}, {}", waits.site);
            assert!(
                row.contains(&waits.site) && row.contains(&waits.lock),
                "{row:?}"
            );
            let in_bins: u64 = waits.hist.iter().map(|(_, count)| count).sum();
            assert_eq!(in_bins, waits.count, "{name}");
        }
        let zone = course.waits.iter().filter(|row| row.lock == "zone->lock");
        let zone_ns: u64 = zone.map(|row| row.total_ns).sum();
        for map in [
            "waited for zone->lock",
            "let other CPUs wait for zone->lock",
        ] {
            let shown = sum(course, map);
            assert!(
                is_near(shown, zone_ns as f64),
                "{name}: {map}: {shown} of {zone_ns}"
            );
        }
        let all_ns: u64 = course.waits.iter().map(|row| row.total_ns).sum();
        let pairs_ns: u64 = course.pairs.iter().map(|pair| pair.total_ns).sum();
        let between = course.between.as_ref().expect("CPUs waited");
        let between_ns: u64 = between.cells.iter().map(|cell| cell.2).sum();
        assert_eq!((pairs_ns, between_ns), (all_ns, all_ns), "{name}");
        let longest = course.waits.iter().map(|row| row.max_ns).max();
        assert_eq!(
            longest,
            course.longest.first().map(|wait| wait.wait_ns),
            "{name}"
        );
    }
}

#[test]
fn a_course_has_lines_of_vmstat_work_and_of_page_lists() {
    let (_, courses) = watched(&Comparison {
        workload: "stress-vm-bursts",
        machine: "grace-72",
        length_ms: 5000,
        seeds: 1,
    });
    for course in &courses {
        let line = |name: &str| {
            let found = course.lines.iter().find(|line| line.name == name);
            found.unwrap_or_else(|| panic!("{}: {name} is missing", course.design))
        };
        let total = |name: &str| line(name).values.iter().flatten().sum::<i64>();
        let fired = total("vmstat work ran");
        assert!(fired >= 72, "each CPU works at least once: {fired}");
        assert!(is_near(sum(course, "ran vmstat work"), fired as f64));
        let listed = line("on the lists of all CPUs");
        assert_eq!(listed.unit, Unit::Pages);
        assert!(listed.values.iter().flatten().any(|pages| *pages > 0));
        let taken = total("rmqueue_bulk")
            + course
                .lines
                .iter()
                .find(|line| line.name == "rmqueue_buddy")
                .map_or(0, |line| line.values.iter().flatten().sum());
        let back = [
            "free_frozen_page_commit",
            "decay_pcp_high",
            "drain_pages_zone",
            "free_one_page",
        ];
        let back = course
            .lines
            .iter()
            .filter(|line| back.contains(&&*line.name));
        let back: i64 = back.flat_map(|line| line.values.iter().flatten()).sum();
        let outside = line("taken from the zones since the start");
        let last = outside.values.iter().flatten().last().copied();
        assert_eq!(last, Some(taken - back), "{}", course.design);
        let names: Vec<&str> = course.phases.iter().map(|frame| &*frame.name).collect();
        assert!(names.contains(&"vmstat_update"), "{names:?}");
        let spinning = course
            .time
            .iter()
            .find(|frame| frame.name == "spinning for locks");
        let spins = course.waits.iter().filter(|row| !row.sleeps);
        let spins: u64 = spins.map(|row| row.total_ns).sum();
        assert_eq!(
            spinning.map(|frame| frame.ns),
            Some(spins),
            "{}",
            course.design
        );
    }
}

#[test]
fn a_course_has_exits_and_the_reaper_beside_them() {
    let (_, courses) = watched(&Comparison {
        workload: "killed-apps",
        machine: "phone-8",
        length_ms: 1200,
        seeds: 1,
    });
    for course in &courses {
        let of = |phase: &str| {
            course
                .spans
                .iter()
                .filter(|span| span.phase == phase)
                .count()
        };
        assert!(of("exit_mmap") > 0, "{}", course.design);
        let helpers = of("__oom_reap_task_mm") + of("process_mrelease");
        assert!(helpers > 0, "{}", course.design);
        let inside = course.spans.iter().filter(|span| span.depth > 0);
        for span in inside {
            let encloses = |outer: &&plimsoll_lab::watch::Span| {
                outer.task == span.task
                    && outer.depth + 1 == span.depth
                    && (outer.from_ns..=outer.until_ns).contains(&span.from_ns)
                    && span.until_ns <= outer.until_ns
            };
            assert!(
                course.spans.iter().any(|outer| encloses(&outer)),
                "{span:?}"
            );
        }
    }
}

/// Watches the runs of an experiment on a machine without a page allocator.
#[test]
fn the_error_of_a_counter_over_time_is_that_of_the_report() {
    let courses = Courses::default();
    let options = Options {
        effort: Effort::Quick,
        watch: Some(courses.clone()),
        ..Options::of_seeds(2)
    };
    let experiment = experiment::find("rss-accuracy").expect("in the catalog");
    let reports = experiment.run(&options, &Progress::hidden());
    let reports = reports.expect("runs that are deterministic");
    let courses = courses.take();
    assert!(!courses.is_empty());
    for course in &courses {
        let line = course.lines.iter().find(|line| line.chart == "rss");
        let values = line.expect("the counter was read").values.iter().flatten();
        let exact = ["shared"].contains(&&*course.design);
        let worst = values.map(|error| error.unsigned_abs()).max().unwrap_or(0);
        assert_eq!(worst == 0, exact, "{}: {worst}", course.design);
    }
    let page = html::render(&Page {
        command: "plimsoll reproduce rss-accuracy",
        facts: &[],
        reports: &reports,
        figures: None,
        courses: &courses,
        machines: &[],
    });
    for course in &courses {
        assert!(page.contains(&format!("\"design\":\"{}\"", course.design)));
    }
}
