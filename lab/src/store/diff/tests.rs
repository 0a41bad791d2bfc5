//! Tests of the comparison of two runs of a store.

use super::*;
use crate::experiment;
use crate::measure::metric::{Better, Unit};
use crate::measure::stats::Verdict;
use crate::report::{Report, table};
use crate::run::journal::Title;
use crate::run::options::Options;
use crate::run::progress::Progress;
use crate::store::head::{Inputs, Machine, New, Program};
use crate::store::{Measured, RunFolder, Store};

fn head(id: &str) -> Head {
    let program = Program {
        version: "0.1.0".to_owned(),
        commit: "0123456789ab".to_owned(),
        build: "1".to_owned(),
    };
    Head {
        schema: 1,
        id: id.to_owned(),
        command: vec!["compare".to_owned(), "make-like".to_owned()],
        program,
        started: "2026-11-23T23:15:00.123Z".to_owned(),
        machines: vec![Machine::unpriced("grace-72")],
        inputs: Inputs::from([("workers".to_owned(), id.to_owned())]),
    }
}

fn key(machine: &str, about: &str) -> ComparisonKey {
    ComparisonKey {
        experiment: "compare".to_owned(),
        title: Title {
            what: "make-like".to_owned(),
            machine: machine.to_owned(),
            about: about.to_owned(),
        },
        nth: 0,
    }
}

fn cases(key: &ComparisonKey, design: &str, seeds: std::ops::Range<u64>, by: f64) -> Vec<CaseLine> {
    let case = |seed: u64| CaseLine {
        comparison: key.clone(),
        design: design.to_owned(),
        seed,
        hash: format!("{:016x}", seed + by.to_bits()),
        metrics: vec![Measured {
            metric: "wait_ns".to_owned(),
            unit: Unit::Nanos,
            better: Better::Lower,
            value: by * (1000 + seed * 100) as f64,
        }],
    };
    seeds.map(case).collect()
}

fn diff(a: &[CaseLine], b: &[CaseLine]) -> Diff {
    Diff::of_cases((&head("one"), a), (&head("two"), b))
}

#[test]
fn values_with_the_same_seed_are_compared_and_what_one_run_lacks_is_listed() {
    let here = key("grace-72", "");
    let a = [
        cases(&here, "linux", 1..9, 1.0),
        cases(&here, "old", 1..2, 1.0),
    ]
    .concat();
    let b = [
        cases(&here, "linux", 3..13, 0.5),
        cases(&here, "new", 1..2, 1.0),
    ]
    .concat();
    let found = diff(&a, &b);
    let row = &found.comparisons[0].rows[0];
    let compared = row.compared.unwrap();
    assert_eq!((row.pairs, compared.ratio.median), (6, 0.5));
    assert_eq!(compared.verdict, Verdict::Lower);
    let only = |run, what: &str| Only {
        run,
        comparison: "make-like on grace-72".to_owned(),
        what: what.to_owned(),
    };
    assert_eq!(
        found.only,
        [only('B', "design new"), only('A', "design old")]
    );
    assert!(!found.identical);
    insta::assert_snapshot!(table::render_tables(&found.tables(), 90), @r"
    what     A                             B
    -------------------------------------------------------------------
    id       one                           two
    command  plimsoll compare make-like    plimsoll compare make-like
    version  0.1.0 of commit 0123456789ab  0.1.0 of commit 0123456789ab
    workers  one                           two

    No comparison is identical in both.

    make-like on grace-72
    design  metric            A                    B                B / A  verdict
    ------------------------------------------------------------------------------------------
    linux   wait        1.45 µs   875 ns [700–1,050]  0.500 [0.500–0.500]  B is lower (better)
                    [1.10–1.80]

    A and B are medians over all seeds of a run, which may contradict B / A: ratios are of
    values with the same seed, and both runs have 6 of the seeds.

    In one run only
    run  comparison             what
    --------------------------------------
    B    make-like on grace-72  design new
    A    make-like on grace-72  design old
    ");
}

#[test]
fn the_user_chooses_metrics_that_both_runs_have() {
    let here = key("grace-72", "");
    let with_waits = |by: f64| {
        let mut all = cases(&here, "linux", 1..9, by);
        for case in &mut all {
            let mut other = case.metrics[0].clone();
            other.metric = "faults".to_owned();
            case.metrics.push(other);
        }
        all
    };
    let found = diff(&with_waits(1.0), &with_waits(0.5));
    let shown = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let chosen = found
            .clone()
            .only_metrics(&names)
            .map_err(|error| error.to_string())?;
        let rows = chosen.comparisons.iter().flat_map(|of| &of.rows);
        Ok(rows
            .map(|row| row.metric.name.to_string())
            .collect::<Vec<_>>())
    };
    assert_eq!(
        shown(&[]),
        Ok(vec!["wait_ns".to_owned(), "faults".to_owned()])
    );
    let table = &found.tables()[1];
    let designs = table.rows.iter().map(|row| &row[0]);
    assert_eq!(
        designs.collect::<Vec<_>>(),
        ["linux"; 2],
        "each row names its design"
    );
    assert_eq!(shown(&["wait"]), Ok(vec!["wait_ns".to_owned()]));
    assert_eq!(shown(&["faults"]), Ok(vec!["faults".to_owned()]));
    assert_eq!(
        shown(&["kills"]),
        Err("no metric is called `kills`; choose one of `wait_ns`, `faults`".to_owned())
    );
}

#[test]
fn runs_of_two_machines_are_compared_if_it_is_clear_what_is_meant() {
    let (one, other) = (key("grace-72", ""), key("bergamo-176", ""));
    let a = cases(&one, "linux", 1..7, 1.0);
    let b = cases(&other, "linux", 1..7, 1.0);
    let found = diff(&a, &b);
    assert_eq!((found.comparisons.len(), found.only.len()), (1, 0));
    assert_eq!(
        found.comparisons[0].rows[0].compared.unwrap().verdict,
        Verdict::Equal
    );
    // Run B now has comparisons on two machines, so it is not clear which of them matches the
    // comparison of run A. So no comparisons match.
    let third = cases(&key("phone-8", ""), "linux", 1..7, 1.0);
    let found = diff(&a, &[b.clone(), third].concat());
    assert_eq!((found.comparisons.len(), found.only.len()), (0, 3));
    // If run B also has a comparison on the machine of run A, this comparison matches the one of
    // run A.
    let found = diff(&a, &[b, a.clone()].concat());
    assert_eq!((found.comparisons.len(), found.only.len()), (1, 1));
    assert!(found.comparisons[0].identical && !found.identical);
}

#[test]
fn runs_with_no_seed_in_common_get_medians_and_no_verdict() {
    let here = key("grace-72", "");
    let found = diff(
        &cases(&here, "linux", 1..7, 1.0),
        &cases(&here, "linux", 7..13, 1.0),
    );
    let row = &found.comparisons[0].rows[0];
    assert_eq!((row.pairs, row.compared), (0, None));
    let text = table::render_tables(&found.tables(), 110);
    assert!(text.contains("no seed in common"), "{text}");
}

#[test]
fn identical_runs_say_so() {
    let here = cases(&key("grace-72", ""), "linux", 1..7, 1.0);
    let found = diff(&here, &here);
    assert!(found.identical);
    let tables = found.tables();
    assert_eq!(tables.len(), 1);
    assert!(tables[0].note.starts_with("The runs are identical"));
    // If a run of a design has another hash, there is a difference, even if all values are the
    // same.
    let mut others = here.clone();
    others[0].hash = "0".to_owned();
    let found = diff(&here, &others);
    assert!(!found.identical);
    assert_eq!(
        found.comparisons[0].rows[0].compared.unwrap().verdict,
        Verdict::Equal
    );
}

/// Runs the self-test in a store.
fn selftest(store: &Store, seeds: u64) -> Report {
    let new = New {
        command: vec!["reproduce".to_owned(), "selftest".to_owned()],
        program: head("").program,
        machines: Vec::new(),
        inputs: Inputs::new(),
    };
    let run = RunFolder::begin(store, new).unwrap();
    let progress = Progress::hidden().kept_in(run.journal(), "selftest");
    let selftest = experiment::find("selftest").unwrap();
    let report = selftest
        .run(&Options::of_seeds(seeds), &progress)
        .unwrap()
        .remove(0);
    run.finish().unwrap();
    report
}

/// A comparison of two designs in two stored runs gives the same verdict as a comparison within one
/// run.
#[test]
fn a_comparison_through_the_store_has_the_verdict_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_make(folder.path()).unwrap();
    let report = selftest(&store, 8);
    let all = store.find("last").unwrap().cases().unwrap();
    let of = |design: &str| -> Vec<CaseLine> {
        let cases = all.iter().filter(|case| case.design == design);
        let renamed = |case: &CaseLine| CaseLine {
            design: "it".to_owned(),
            ..case.clone()
        };
        cases.map(renamed).collect()
    };
    assert!(!report.verdicts.is_empty());
    for verdict in &report.verdicts {
        let found = diff(&of(&verdict.a), &of(&verdict.b));
        let rows = &found.comparisons[0].rows;
        let row = rows
            .iter()
            .find(|row| row.metric == verdict.metric)
            .unwrap();
        assert_eq!(row.compared, Some(verdict.comparison));
        for (side, estimate) in [(&verdict.a, row.a), (&verdict.b, row.b)] {
            let mut of_report = report.rows.iter();
            let of_report =
                of_report.find(|other| &other.design == side && other.metric == row.metric);
            assert_eq!(of_report.unwrap().estimate, estimate);
        }
    }
}

/// If this test fails, the JSON object of a difference has changed. In this case, raise [`SCHEMA`],
/// and describe the change in `docs/results.md`.
#[test]
fn the_object_has_the_keys_of_this_schema() {
    let here = key("grace-72", "");
    let found = diff(
        &cases(&here, "linux", 1..7, 1.0),
        &cases(&here, "linux", 1..7, 2.0),
    );
    let keys = crate::store::tests::keys_of(&found.json());
    insta::assert_snapshot!(format!("{SCHEMA}: {keys}"), @r"
    1: {a{command[] id inputs{workers} machines[{name profile}] program{build commit
    version} schema started} b{command[] id inputs{workers} machines[{name profile}]
    program{build commit version} schema started} comparisons[{a{about experiment
    machine nth what} b{about experiment machine nth what} identical rows[{a{high low
    median} b{high low median} compared{ratio{high low median} verdict} design
    metric{better name unit} pairs}]}] identical only[] schema}
    ");
}
