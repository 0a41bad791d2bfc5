//! Tests the tables and the conclusion that the experiment draws from several workloads. The
//! results of the runs are invented.

use super::*;
use crate::experiment::vmstat::setup::METRICS;
use crate::measure::comparison::Sample;
use crate::run::progress::Progress;

const MAPPED: &str = "grace-72+kasan";
const MACHINES: [&str; 2] = [MAPPED, "grace-72"];

fn figures() -> Vec<Figure> {
    let experiment = crate::experiment::find("vmstat").expect("built in");
    experiment.figures().expect("built in")
}

/// Makes the results of all workloads without running them. `ratio` gets the names of a workload, a
/// machine and a metric, and returns the patch's value divided by Linux's value. All other designs
/// get the values of Linux.
fn family(ratio: fn(&str, &str, &str) -> f64) -> Family {
    let member = |machine: &'static str, workload: &'static Mix| {
        let designs = [&DESIGNS[..], &SEPARATE[..]].concat();
        let options = Options::of_seeds(6);
        let compared = Comparison::run(&designs, &options, &Progress::hidden(), |case| {
            let value = |metric: &Metric| {
                let is_patch = case.design == PATCH;
                let ratio = ratio(workload.name, machine, &metric.name);
                let linux = if workload.name == "idle" { 0.0 } else { 1000.0 };
                linux * if is_patch { ratio } else { 1.0 }
            };
            let metrics = METRICS.iter().map(|(metric, _)| metric);
            Sample {
                hash: 1,
                metrics: metrics
                    .map(|metric| (metric.clone(), value(metric)))
                    .collect(),
            }
        });
        Member {
            workload,
            machine: machine.to_owned(),
            results: Results::new(compared.expect("made-up runs do not differ")),
        }
    };
    let of_machine =
        |machine: &'static str| FAMILY.iter().map(move |workload| member(machine, workload));
    Family {
        members: MACHINES.into_iter().flat_map(of_machine).collect(),
        machines: MACHINES.map(str::to_owned).to_vec(),
        figures: figures(),
        seconds: 8,
        seeds: 6,
    }
}

/// The published value with the patch divided by the published value with Linux. Returns
/// 0.5 if one of the two values was not published.
fn published(machine: &str, metric: &str) -> f64 {
    let compared = COMPARED.into_iter();
    let mut found = compared.filter(|(_, of)| of.name == metric);
    let metric = found.next().map(|(_, metric)| metric);
    let ratio = metric.and_then(|metric| member::published_ratio(&figures(), machine, &metric));
    ratio.unwrap_or(0.5)
}

#[test]
fn each_table_has_a_row_for_each_workload_and_machine() {
    let family = family(|_, machine, metric| published(machine, metric));
    let [workloads, levels, patch, ours, causes] = family.tables();
    assert_eq!(workloads.rows.len(), FAMILY.len());
    assert_eq!(causes.rows.len(), FAMILY.len());
    for table in [levels, patch, ours] {
        for machine in MACHINES {
            for mix in &FAMILY {
                let of_member = |row: &&Vec<String>| row[0] == mix.name && row[1] == machine;
                let rows = table.rows.iter().filter(of_member).count();
                assert_eq!(rows, 1, "{} on {machine} in {}", mix.name, table.title);
            }
            let is_published = |row: &&Vec<String>| row[0] == "(published)" && row[1] == machine;
            assert_eq!(table.rows.iter().filter(is_published).count(), 1);
        }
    }
}

#[test]
fn a_workload_with_the_published_ratios_is_like_the_thread_s() {
    let family = family(|workload, machine, metric| {
        let off = if workload == "steady" { 1.0 } else { 3.0 };
        published(machine, metric) * off
    });
    let finding = family.sentences();
    let like = "workloads with all four ratios within a factor of 2 of the published ones on both \
                machines: steady; the nearest is steady, typically 1.0 × apart";
    assert!(finding.contains(like), "{finding}");
    let [_, _, patch, ..] = family.tables();
    let within = patch.columns.iter().position(|head| head == "within 2 ×");
    let within = within.expect("the table has the column");
    for row in &patch.rows {
        let expected = match row[0].as_str() {
            "steady" => "yes",
            // Two rows have no verdict. In the workload `idle`, Linux has no contention, so no
            // ratio can be computed. The published figures are not compared with themselves.
            "idle" | "(published)" => "–",
            _ => "no: none of them",
        };
        assert_eq!(row[within], expected, "{}", row[0]);
    }
}

#[test]
fn one_ratio_that_is_off_on_one_machine_makes_a_workload_unlike_the_thread_s() {
    let family = family(|workload, machine, metric| {
        let steady_longest = workload == "steady" && metric == "perf_max_wait_ns";
        let off = match (workload, machine) {
            ("steady", MAPPED) if steady_longest => 2.5,
            ("steady", _) => 1.0,
            _ => 3.0,
        };
        published(machine, metric) * off
    });
    let finding = family.sentences();
    let unlike = "no workload has all four ratios within a factor of 2 of the published ones on \
                  both machines; the nearest is steady";
    assert!(finding.contains(unlike), "{finding}");
    let [_, _, patch, ..] = family.tables();
    let steady = patch
        .rows
        .iter()
        .find(|row| row[0] == "steady" && row[1] == MAPPED);
    let within = steady.and_then(|row| row.last()).expect("a row");
    assert_eq!(within, "no: not longest");
}
