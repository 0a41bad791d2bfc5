//! The longest time that an allocation takes on this computer, in a long run on two CPUs. For
//! comparison, the benchmark also measures the longest gap in an idle loop that only reads the
//! clock.

use std::time::{Duration, Instant};

use plimsoll_host::measure::{self, Histogram, Soak, SoakOptions, Times};

use super::{Found, Row};
use crate::error::Error;
use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::value::{NOTHING, human};
use crate::run::progress::Progress;

/// The target: no allocation should take longer than this many nanoseconds, unless the scheduler
/// took the CPU away.
const TARGET_NS: u64 = 50_000;

/// The columns of the tables that show percentiles. Each has its title, and its percentile as a
/// fraction.
const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.99", 0.9999)];

/// The columns of the histogram. Each has its title, and the time in nanoseconds above which it
/// counts operations.
const LONGER_THAN: [(&str, u64); 7] = [
    ("100 ns", 100),
    ("1 µs", 1_000),
    ("10 µs", 10_000),
    ("50 µs", TARGET_NS),
    ("100 µs", 100_000),
    ("500 µs", 500_000),
    ("1 ms", 1_000_000),
];

/// Runs a soak: two CPUs allocate and free for the time `length`.
pub(super) fn run(progress: &Progress, length: Duration) -> Result<Found, Error> {
    progress.start("bench soak");
    progress.expect(1);
    let options = SoakOptions {
        length,
        ..SoakOptions::default()
    };
    let begun = Instant::now();
    let soak = measure::soak(&options);
    let soak = soak.map_err(|why| Error::Invalid(format!("bench soak: {why}")))?;
    progress.step();
    Ok(Found {
        tables: vec![table(&soak, begun.elapsed()), histogram(&soak)],
        rows: rows(&soak),
    })
}

/// For each kind of operation that is timed: the name of the kind in the table, and the times of
/// the operations.
fn kinds(soak: &Soak) -> [(&'static str, &Times); 4] {
    [
        ("allocation", &soak.allocs),
        ("free", &soak.frees),
        ("idle loop", &soak.idle),
        ("drain of all lists", &soak.drains),
    ]
}

fn table(soak: &Soak, took: Duration) -> Table {
    let [chunks, disturbed] = soak.chunks;
    let own = soak.longest_own();
    let verdict = if own <= TARGET_NS { "within" } else { "above" };
    let mut columns = vec!["operation", "thread", "samples"];
    columns.extend(SHARES.map(|(name, _)| name));
    columns.extend(["longest", "over 50 µs", "per sampled second"]);
    let rows = kinds(soak).into_iter().flat_map(|(kind, times)| {
        [
            row(kind, "ran", &times.undisturbed),
            row("", "waited for one that lost its CPU", &times.behind),
            row("", "lost its CPU", &times.disturbed),
        ]
    });
    Table {
        title: "Times of single operations on two CPUs".into(),
        note: format!(
            "The longest allocation that the scheduler did not cause took {}, {verdict} the target \
             of {}; the longest gap of the idle loop was {}. In {disturbed} of {chunks} chunks a \
             thread lost its CPU. {} allocations found no page, decay gave {} pages back, and the \
             threads had {} page faults. The run took {:.1} s.",
            ns(own),
            ns(TARGET_NS),
            ns(soak.idle.undisturbed.max()),
            soak.failed,
            soak.decayed,
            soak.faults,
            took.as_secs_f64(),
        ),
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// How often undisturbed operations took longer than some times. The counts are per second of such
/// operations, so that those of allocations and of the idle loop can be compared.
fn histogram(soak: &Soak) -> Table {
    let mut columns = vec!["operation".to_owned()];
    columns.extend(LONGER_THAN.map(|(title, _)| format!("> {title}")));
    let rows = kinds(soak).into_iter().map(|(kind, times)| {
        let mut cells = vec![kind.to_owned()];
        cells.extend(LONGER_THAN.map(|(_, than)| {
            let often = per_second(&times.undisturbed, than);
            often.map_or(NOTHING.to_owned(), |often| human(often, Unit::Count))
        }));
        cells
    });
    Table {
        title: "Undisturbed operations that took longer, per sampled second".into(),
        note: String::new(),
        columns,
        rows: rows.collect(),
    }
}

/// How many times per second of `times` were longer than `than` nanoseconds. `None` if there are no
/// times.
fn per_second(times: &Histogram, than: u64) -> Option<f64> {
    let seconds = times.sum() as f64 / 1e9;
    (seconds > 0.0).then(|| times.above(than) as f64 / seconds)
}

fn row(kind: &str, state: &str, times: &Histogram) -> Vec<String> {
    let mut cells = vec![kind.to_owned(), state.to_owned(), times.count().to_string()];
    let or_nothing = |value: u64| {
        if times.count() == 0 {
            NOTHING.to_owned()
        } else {
            ns(value)
        }
    };
    cells.extend(SHARES.map(|(_, share)| or_nothing(times.quantile(share))));
    cells.push(or_nothing(times.max()));
    cells.push(times.above(TARGET_NS).to_string());
    let often = per_second(times, TARGET_NS);
    cells.push(often.map_or(NOTHING.to_owned(), |often| human(often, Unit::Count)));
    cells
}

fn rows(soak: &Soak) -> Vec<Row> {
    let [chunks, disturbed] = soak.chunks.map(|count| usize::try_from(count).unwrap_or(0));
    let row = |case: &str, metric, value: f64| Row {
        machine: "host".into(),
        load: "soak".into(),
        case: case.into(),
        metric,
        median: value,
        low: value,
        high: value,
        ratio: None,
        ratio_low: None,
        ratio_high: None,
        rounds: chunks,
        disturbed,
    };
    let mut rows = vec![row(
        "allocation",
        "longest_own_ns",
        soak.longest_own() as f64,
    )];
    for (kind, times) in kinds(soak) {
        for (state, times) in [
            ("", &times.undisturbed),
            (", behind", &times.behind),
            (", disturbed", &times.disturbed),
        ] {
            let case = format!("{kind}{state}");
            rows.push(row(&case, "p50_ns", times.quantile(0.5) as f64));
            rows.push(row(&case, "p99_ns", times.quantile(0.99) as f64));
            rows.push(row(&case, "p9999_ns", times.quantile(0.9999) as f64));
            rows.push(row(&case, "longest_ns", times.max() as f64));
            rows.push(row(&case, "over_50us", times.above(TARGET_NS) as f64));
            let often = per_second(times, TARGET_NS).unwrap_or(0.0);
            rows.push(row(&case, "over_50us_per_s", often));
        }
    }
    rows
}

fn ns(value: u64) -> String {
    human(value as f64, Unit::Nanos)
}
