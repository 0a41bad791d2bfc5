//! Tests of the table of results in the README. Each row must belong to an experiment. Its values
//! must be those of the experiment's last full run, which `docs/misses.md` shows too.

use super::find;
use crate::report::misses::stored::Stored;
use crate::run::options::Effort;

/// A row of the README's table, and the experiment that measures the row's values.
struct Row {
    /// Words from the row's question.
    question: &'static str,
    /// The name by which the README calls the machine.
    called: &'static str,
    experiment: &'static str,
    machine: &'static str,
    metric: &'static str,
    /// True if the row's cells are values of the metric. False if they are computed from such
    /// values, as ratios, ranges or shares are.
    has_values: bool,
}

const fn row(
    [question, called]: [&'static str; 2],
    [experiment, machine, metric]: [&'static str; 3],
) -> Row {
    Row {
        question,
        called,
        experiment,
        machine,
        metric,
        has_values: true,
    }
}

/// Like [`row`], but for a row whose cells are computed from several values.
const fn derived(of: [&'static str; 2], from: [&'static str; 3]) -> Row {
    Row {
        has_values: false,
        ..row(of, from)
    }
}

/// The rows of the table of results in the README, in the same order.
const ROWS: &[Row] = &[
    row(
        ["contentions of the zone lock", "72 CPUs, KASAN"],
        ["vmstat", KASAN, "perf_contentions"],
    ),
    row(
        ["contentions of the zone lock", "72 CPUs"],
        ["vmstat", "grace-72", "perf_contentions"],
    ),
    row(
        ["their total wait", "72 CPUs, KASAN"],
        ["vmstat", KASAN, "perf_total_wait_ns"],
    ),
    row(
        ["their total wait", "72 CPUs"],
        ["vmstat", "grace-72", "perf_total_wait_ns"],
    ),
    derived(
        ["contentions against Linux", "72 CPUs, KASAN"],
        ["vmstat", KASAN, "perf_contentions"],
    ),
    derived(
        ["contentions against Linux", "72 CPUs"],
        ["vmstat", "grace-72", "perf_contentions"],
    ),
    derived(
        ["total wait against Linux", "72 CPUs, KASAN"],
        ["vmstat", KASAN, "perf_total_wait_ns"],
    ),
    derived(
        ["total wait against Linux", "72 CPUs"],
        ["vmstat", "grace-72", "perf_total_wait_ns"],
    ),
    row(
        ["longest zone-lock hold", "176 CPUs"],
        ["drain", "bergamo-176", "hold_max_ns"],
    ),
    row(
        ["longest zone-lock hold", "316 CPUs"],
        ["drain", "turin-316", "hold_max_ns"],
    ),
    row(
        ["longest wait for the zone lock", "176 CPUs"],
        ["drain", "bergamo-176", "wait_max_ns"],
    ),
    row(
        ["longest wait for the zone lock", "316 CPUs"],
        ["drain", "turin-316", "wait_max_ns"],
    ),
    derived(
        ["throughput against Linux", "176 CPUs"],
        ["drain", "bergamo-176", "pages_per_s"],
    ),
    derived(
        ["throughput against Linux", "316 CPUs"],
        ["drain", "turin-316", "pages_per_s"],
    ),
    row(
        ["error of a process's resident pages", "384 CPUs"],
        ["rss-accuracy", EPYC, "worst_error_bytes"],
    ),
    derived(
        ["largest possible error", "384 CPUs"],
        ["rss-accuracy", EPYC, "bound_pages"],
    ),
    row(
        ["memory of a process's four counters", "384 CPUs"],
        ["rss-memory", "this computer", "bytes_at_384_cpus"],
    ),
    row(
        ["page faults a second", "384 CPUs"],
        ["rss-cost", EPYC, "faults_per_s_processes_1"],
    ),
    row(
        ["the same, 96 processes", "384 CPUs"],
        ["rss-cost", EPYC, "faults_per_s_processes_96"],
    ),
    row(
        ["the same, 192 processes", "384 CPUs"],
        ["rss-cost", EPYC, "faults_per_s_processes_192"],
    ),
    row(
        ["the same, 96 threads", "384 CPUs"],
        ["rss-cost", EPYC, "faults_per_s_threads_96"],
    ),
    row(
        ["the same, 192 threads", "384 CPUs"],
        ["rss-cost", EPYC, "faults_per_s_threads_192"],
    ),
    row(
        ["cache lines that move between CPUs", "384 CPUs"],
        ["rss-cost", EPYC, "lines_per_1000_adds"],
    ),
    row(
        ["lines that cross sockets", "384 CPUs"],
        ["rss-cost", EPYC, "remote_lines_per_1000_adds"],
    ),
    row(
        ["additions a second", "384 CPUs"],
        ["rss-cost", EPYC, "adds_per_s"],
    ),
    row(
        ["running time of exit and OOM reaper", "phone"],
        ["reaper", "phone-8", "ran_ns"],
    ),
    derived(
        ["share of that running time", "phone"],
        ["reaper", "phone-8", "table_lock_ns"],
    ),
    row(
        ["from the kill until all its memory", "phone"],
        ["reaper", "phone-8", "wall_ns"],
    ),
    row(
        ["from the kill of a process of 16 GiB", "384 CPUs"],
        ["mrelease", EPYC, "wall_ns"],
    ),
    row(
        ["one of them far larger", "256 CPUs"],
        ["oom-latency", EPYC_256, "select_at_10000_ns"],
    ),
    row(
        ["cannot tell apart", "256 CPUs"],
        ["oom-latency", EPYC_256, "band_at_10000_ns"],
    ),
    row(
        ["choices of a wrong victim", "256 CPUs"],
        ["oom-accuracy", EPYC_256, "wrong_percent"],
    ),
    row(
        ["an allocator's wait", "256 CPUs"],
        ["oom-storm", EPYC_256, "exits_waited_ns"],
    ),
    row(
        ["processes killed", "256 CPUs"],
        ["oom-storm", EPYC_256, "crowd_kills"],
    ),
];

const KASAN: &str = "grace-72+kasan";
const EPYC: &str = "epyc-9654-2s";
const EPYC_256: &str = "epyc-9654-256";

fn file(name: &str) -> String {
    let path = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a file of the repository")
}

/// The cells of the README's rows. A row without a question gets the question of the row above it.
fn readme() -> Vec<Vec<String>> {
    let text = file("README.md");
    let table = text.split("<!-- results:begin -->").nth(1);
    let table = table.expect("the README marks where its results begin");
    let lines = table.lines().skip_while(|line| !line.starts_with('|'));
    let lines = lines.take_while(|line| line.starts_with('|')).skip(2);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let cells = line.trim_matches('|').split('|');
        let mut cells: Vec<String> = cells.map(|cell| cell.trim().to_owned()).collect();
        if cells[0].is_empty() {
            cells[0].clone_from(&rows.last().expect("the first row has a question")[0]);
        }
        rows.push(cells);
    }
    rows
}

#[test]
fn every_row_of_the_readme_belongs_to_an_experiment_that_measures_it() {
    let rows = readme();
    assert_eq!(rows.len(), ROWS.len(), "add the new row to `ROWS`");
    for (cells, row) in rows.iter().zip(ROWS) {
        assert!(
            cells[0].contains(row.question),
            "{cells:?} is not {}",
            row.question
        );
        assert_eq!(cells[1], row.called, "{cells:?}");
        let experiment = find(row.experiment).unwrap();
        assert!(experiment.machines().contains(&row.machine), "{cells:?}");
        let metrics = experiment.reported_metrics(Effort::Full).unwrap();
        assert!(
            metrics.iter().any(|metric| metric == row.metric),
            "{}",
            row.metric
        );
    }
}

/// The number at the beginning of a cell, and its rounding error: half a unit of its last digit.
/// Returns `None` if the cell has no number.
fn value(cell: &str) -> Option<(f64, f64)> {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let factor = match unit {
        "" => 1.0,
        "s" => 1e9,
        "ms" | "M" => 1e6,
        "µs" => 1e3,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        _ => return None,
    };
    let number = number.replace(',', "");
    let decimals = number
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    let parsed: f64 = number.parse().ok()?;
    let digit = 10_f64.powi(-i32::try_from(decimals).expect("few decimals"));
    Some((parsed * factor, digit / 2.0 * factor))
}

#[test]
fn the_readme_has_the_values_of_the_last_full_run() {
    let stored = Stored::read(&file("docs/misses.md")).unwrap();
    let mut compared = 0;
    for (cells, row) in readme().iter().zip(ROWS).filter(|(_, row)| row.has_values) {
        let of = stored
            .iter()
            .find(|other| other.experiment == row.experiment && other.machine == row.machine);
        let measured = of.and_then(|of| of.linux_and_patch(row.metric));
        for (cell, measured) in cells[2..4].iter().zip(measured.into_iter().flatten()) {
            if let Some((shown, half_a_digit)) = value(cell) {
                let off = (shown - measured).abs();
                assert!(
                    off <= half_a_digit * 1.001,
                    "the README has {cell} for {} of {} on {}, but docs/misses.md keeps {measured}",
                    row.metric,
                    row.experiment,
                    row.machine
                );
                compared += 1;
            }
        }
    }
    // If no cell had been compared with a stored value, the test would pass without having checked
    // anything.
    assert!(compared >= 18, "{compared}");
}
