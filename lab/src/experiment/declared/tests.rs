//! A declaration with a wrong name is refused before the first run, and a missing number is never
//! replaced by another.

use super::*;
use crate::measure::metric::Unit;
use crate::report::misses::{Agreement, Basis, Thread};

const WAITS: Metric = Metric::lower("waits", Unit::Count);
/// A published figure of the declaration [`whole`].
const WAITED: Figure = Figure {
    what: "waits",
    metric: "waits",
    values: Reported::One("linux", 100.0),
    basis: Basis::Independent,
    why: "A cause.",
};
const RATE: Metric = Metric::higher("rate", Unit::PerSecond);

fn whole() -> Declaration<(), (), &'static str> {
    Declaration {
        name: "made-up",
        question: "does a declaration with a wrong name run?",
        answer: Headlines {
            sides: &["Linux", "ours"],
            rows: const { &[Headline::new("waits", "waits", &["linux", "ours"])] },
        },
        machines: &["desk"],
        clock: Clock::Virtual,
        designs: || Ok(vec!["linux", "ours"]),
        verdicts: &[("linux", OTHERS)],
        published: &[Published {
            machine: "desk",
            thread: Thread::Selftest,
            source: "a made-up thread",
            figures: &[WAITED],
        }],
        setup: |_, _, _| Ok(()),
        metrics: |()| vec![WAITS],
        shown: None,
        compared: None,
        measure: |(), case| {
            let waits = if case.design == "linux" { 100.0 } else { 50.0 };
            let metrics = vec![(WAITS, waits)];
            (Sample { hash: 1, metrics }, ())
        },
        cards: None,
        conclude: |run| {
            let ratio = run.results.show_ratio(("linux", "ours"), &WAITS);
            Ok((
                Vec::new(),
                Finding::new("Yes.", [("ours over linux", ratio)]),
            ))
        },
    }
}

const SLIPPED_CARDS: Cards<()> = Cards {
    title: "At each cost card",
    note: "",
    effort: Effort::Quick,
    with_mid: false,
    pairs: &[("linux", "ours", |()| vec![RATE])],
    columns: &[("ratio", cards::ratio)],
};

fn report(declared: &Declaration<(), (), &'static str>) -> Result<Report, Error> {
    let reports = declared.run(&Options::of_seeds(6), &Progress::hidden())?;
    Ok(reports.into_iter().next().expect("one machine"))
}

#[test]
fn a_whole_declaration_becomes_a_report() {
    let report = report(&whole()).expect("it is whole");
    assert_eq!(report.rows[0].published, Some(100.0));
    assert_eq!(report.rows[1].published, None);
    assert_eq!(report.verdicts.len(), 1);
    assert_eq!(
        report.finding,
        "Yes. In numbers: ours over linux 0.500 [0.500–0.500]."
    );
}

#[test]
fn every_wrong_name_is_an_error_that_offers_the_nearest() {
    let published = |machine, design, metric| Published {
        machine,
        thread: Thread::Selftest,
        source: "a made-up thread",
        figures: Vec::leak(vec![Figure {
            metric,
            values: Reported::One(design, 1.0),
            ..WAITED
        }]),
    };
    let of = |published: Published| Declaration {
        published: Vec::leak(vec![published]),
        ..whole()
    };
    let slips = [
        (
            of(published("desk", "linux", "wait")),
            "a made-up thread: no metric is called `wait`; did you mean `waits`?",
        ),
        (
            of(published("desk", "linus", "waits")),
            "a made-up thread: no design is called `linus`; did you mean `linux`?",
        ),
        (
            of(published("desc", "linux", "waits")),
            "no machine is called `desc`; did you mean `desk`?",
        ),
        (
            Declaration {
                verdicts: &[("linux", "our")],
                ..whole()
            },
            "no design is called `our`; did you mean `ours`?",
        ),
        (
            Declaration {
                cards: Some(&SLIPPED_CARDS),
                ..whole()
            },
            "no metric is called `rate`; choose one of `waits`",
        ),
        (
            Declaration {
                shown: Some(|()| vec![RATE]),
                ..whole()
            },
            "no metric is called `rate`; choose one of `waits`",
        ),
    ];
    for (declared, wanted) in slips {
        assert_refused(&declared, wanted);
    }
}

fn assert_refused(declared: &Declaration<(), (), &'static str>, wanted: &str) {
    let error = report(declared).expect_err(wanted);
    assert_eq!(error.to_string(), wanted);
    assert!(declared.check().is_err(), "{wanted}");
}

#[test]
fn a_wrong_answer_is_an_error_that_says_what_is_wrong() {
    const WRONG_METRIC: &[Headline] = &[Headline::new("waits", "wait", &["linux", "ours"])];
    const WRONG_DESIGN: &[Headline] = &[Headline::new("waits", "waits", &["linux", "our"])];
    const TOO_SHORT: &[Headline] = &[Headline::new("waits", "waits", &["linux"])];
    const TOO_LONG: &[Headline] = &[Headline::new(
        "waits for all of the locks",
        "waits",
        &["linux", "ours"],
    )];
    for (rows, wanted) in [
        (
            WRONG_METRIC,
            "no metric is called `wait`; did you mean `waits`?",
        ),
        (
            WRONG_DESIGN,
            "no design is called `our`; did you mean `ours`?",
        ),
        (
            TOO_SHORT,
            "`waits` of an answer has 1 designs for 2 columns",
        ),
        (
            TOO_LONG,
            "`waits for all of the locks` of an answer is longer than 21 characters",
        ),
        (&[], "an answer has 1 to 3 metrics, not 0"),
    ] {
        let sides = &["Linux", "ours"];
        let declared = Declaration {
            answer: Headlines { sides, rows },
            ..whole()
        };
        assert_refused(&declared, wanted);
    }
}

#[test]
#[should_panic(expected = "a run of `linux` measured other metrics than are declared")]
fn a_run_measures_what_is_declared() {
    let declared = Declaration {
        metrics: |()| vec![WAITS, RATE],
        ..whole()
    };
    drop(report(&declared));
}

#[test]
#[should_panic(expected = "no design is called `patch`")]
fn a_lookup_of_a_design_that_did_not_run_is_a_bug() {
    let declared = Declaration {
        conclude: |run| {
            let waits = run.results.show("patch", &WAITS);
            Ok((Vec::new(), Finding::new(waits, [])))
        },
        ..whole()
    };
    drop(report(&declared));
}

#[test]
#[should_panic(expected = "`ours` has not measured `rate`")]
fn a_lookup_of_a_metric_that_was_not_measured_is_a_bug() {
    let declared = Declaration {
        conclude: |run| {
            let rate = run.results.show("ours", &RATE);
            Ok((Vec::new(), Finding::new(rate, [])))
        },
        ..whole()
    };
    drop(report(&declared));
}

#[test]
fn a_report_has_ours_beside_each_published_figure() {
    let declared = whole();
    let figures = &report(&declared).unwrap().figures;
    assert_eq!(figures.len(), 1);
    assert_eq!(figures[0].agreement(), Agreement::Match);
    assert_eq!(figures[0].levels_off(), [1.0]);
    let undone = declared.figures().unwrap();
    assert_eq!(undone[0].agreement(), Agreement::NotMeasured);
    assert_eq!(
        (&undone[0].what, undone[0].unit),
        (&figures[0].what, figures[0].unit)
    );
}
