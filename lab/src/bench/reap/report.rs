//! The results of the races between an exiting process and its helpers, as tables and as numbers.

use super::victim::Shape;
use super::{CASES, On, Raced, Took, sim};
use crate::bench::{Found, Row, Size, table};
use crate::measure::metric::Unit;
use crate::measure::stats::{self, Estimate};
use crate::report::Table;
use crate::report::value::{NOTHING, human, human_estimate};

/// A metric of a race: the metric's name for programs, the function that reads the value, and an
/// index in [`CASES`]. The case at this index is the one with which other cases are compared.
type Metric = (&'static str, fn(&Took) -> f64, usize);

const WALL: Metric = ("wall_ns", |took| took.wall_ns, ALONE);
const WORK: Metric = ("work_ns", |took| took.work_ns, ALONE);
const WAIT: Metric = ("table_wait_ns", |took| took.table_wait_ns, ASCENDING);

const ALONE: usize = 0;
/// The index in [`CASES`] of the case `ascending`. In this case, helper threads walk in the same
/// direction as the exiting thread, so they often wait for page-table locks that the exiting thread
/// holds.
const ASCENDING: usize = 2;

impl On {
    /// The heading of the table column for races that run in this way.
    const fn head(self) -> &'static str {
        match self {
            Self::GivenBack => "given back",
            Self::Kept => "own work",
            Self::Watched => "this computer",
            Self::Simulated => sim::MACHINE,
        }
    }

    /// The name of the machine and the name of the setting in results for other programs ([`Row`]).
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::GivenBack => ("host", "given back"),
            Self::Kept => ("host", "kept"),
            Self::Watched => ("host", "given back, watched"),
            Self::Simulated => (sim::MACHINE, "simulated"),
        }
    }

    /// The metrics that races in this setting can measure.
    fn metrics(self) -> &'static [Metric] {
        match self {
            Self::GivenBack | Self::Kept => &[WALL, WORK],
            // Reading the clock at each acquisition of a lock slows these races down. So the report
            // shows only the waits of these races, not the lengths of the races.
            Self::Watched => &[WAIT],
            Self::Simulated => &[WALL, WORK, WAIT],
        }
    }
}

/// Returns the tables and the numbers of all races. If this computer cannot race, `why_not_here`
/// says why, and `raced` has only simulated races.
pub(super) fn found(raced: &[Raced], size: &Size, why_not_here: Option<&str>) -> Found {
    let mut tables = Vec::new();
    for shape in Shape::ALL {
        let of = Shown { raced, shape };
        let title = |what| format!("{what}: {} MiB in {}", size.mib, shape.name());
        let compared = [On::GivenBack, On::Kept, On::Simulated];
        tables.push(of.table(&title("Until all is free"), WALL, &compared));
        tables.push(of.table(&title("Running time of all threads"), WORK, &compared));
        let waited = [On::Watched, On::Simulated];
        tables.push(of.table(&title("Waits for page-table locks"), WAIT, &waited));
    }
    tables[0].note = match why_not_here {
        Some(why) => format!("On this computer {why}. Simulated only."),
        None => how(raced, size),
    };
    if why_not_here.is_none() {
        tables[2].note =
            "This computer: measured apart, as watching takes time. A wait is longer than \
            99 of 100 acquisitions of exit alone, which waits for no other CPU: its row is the noise."
                .to_owned();
    }
    Found {
        tables,
        rows: raced.iter().flat_map(|one| rows(one, raced)).collect(),
    }
}

/// Returns a note for the report. It says how many threads and rounds the races had, and what the
/// columns mean.
fn how(raced: &[Raced], size: &Size) -> String {
    let threads = size.helpers + 1;
    let here = || raced.iter().filter(|raced| raced.on != On::Simulated);
    let rounds = || here().flat_map(|raced| &raced.rounds);
    let disturbed = rounds().filter(|took| took.disturbed).count();
    let freed = here().filter(|raced| raced.on == On::GivenBack);
    let freed = freed.flat_map(|raced| raced.rounds.iter().filter_map(|took| took.freed));
    let freed = freed.min().map_or_else(
        || "it could not be checked how much".to_owned(),
        |least| human(least.bytes() as f64, Unit::Bytes) + " or more each time",
    );
    let calls: u64 = rounds().map(|took| took.calls).sum();
    let given: u64 = rounds().map(|took| took.given).sum();
    let pages_a_call = given as f64 / calls.max(1) as f64;
    format!(
        "× is to exit alone of the same round, with its 95 % interval; last column: × here, given back, \
         over × simulated. {threads} threads, {} rounds in turns, medians; JSON has the intervals of \
         times too. Given back: the kernel takes the memory of every page with madvise ({freed}, \
         {pages_a_call:.0} pages a call). Own work: it does not, so this is what the manager does. {}: \
         prices of its profile, not of this computer. In {disturbed} of {} races here a thread was kept \
         off its CPU{}.",
        size.rounds,
        sim::MACHINE,
        rounds().count(),
        if disturbed == 0 {
            ""
        } else {
            ": run it again when the computer is idle"
        },
    )
}

/// The results of the races on victims of one shape (many small mappings, or one large one).
struct Shown<'a> {
    raced: &'a [Raced],
    shape: Shape,
}

impl Shown<'_> {
    fn find(&self, on: On, case: usize) -> Option<&Raced> {
        find(self.raced, on, self.shape, case)
    }

    /// Makes a table of one metric. It has two columns for each setting in `on` (where the race
    /// runs, and what happens to freed memory): the metric's value, and the ratio of this value to
    /// that of the base case in the same setting.
    fn table(&self, title: &str, (_, what, base): Metric, on: &[On]) -> Table {
        let states_ratio = base == ALONE;
        let to = if states_ratio { "×" } else { "of ascending" };
        let mut columns = vec!["emptied by"];
        for on in on {
            columns.extend([on.head(), to]);
        }
        if states_ratio {
            columns.push("× / ×");
        }
        let row = |case: usize| {
            let mut row = vec![CASES[case].name.to_owned()];
            let mut ratios = Vec::new();
            for &on in on {
                let raced = self.find(on, case);
                let estimate = raced.and_then(|raced| stats::estimate(&raced.of(what)));
                // If the next column shows a ratio with its interval, this cell shows only the
                // median, because there is no room for two intervals.
                let cell = estimate.map(|estimate| {
                    if states_ratio {
                        human(estimate.median, Unit::Nanos)
                    } else {
                        human_estimate(&estimate, Unit::Nanos)
                    }
                });
                row.push(cell.unwrap_or_else(|| NOTHING.to_owned()));
                let ratio = raced
                    .zip(self.find(on, base))
                    .and_then(|(raced, base)| ratio(raced, base, what));
                let cell = ratio.map(|ratio| shown(&ratio, states_ratio));
                row.push(cell.unwrap_or_else(|| NOTHING.to_owned()));
                ratios.push(ratio);
            }
            if states_ratio {
                let (here, simulated) = (ratios[0], ratios[ratios.len() - 1]);
                let both = here.zip(simulated);
                let cell =
                    both.map(|(here, simulated)| format!("{:.2}", here.median / simulated.median));
                row.push(cell.unwrap_or_else(|| NOTHING.to_owned()));
            }
            row
        };
        table(title, &columns, (0..CASES.len()).map(row).collect())
    }
}

/// Formats `ratio` as a ratio with its interval if `is_ratio`, and otherwise as a percentage
/// without an interval.
fn shown(ratio: &Estimate, is_ratio: bool) -> String {
    let Estimate { median, low, high } = ratio;
    if is_ratio {
        format!("{median:.2} {low:.2}–{high:.2}")
    } else {
        format!("{:.1} %", median * 100.0)
    }
}

fn find(raced: &[Raced], on: On, shape: Shape, case: usize) -> Option<&Raced> {
    let is = |raced: &&Raced| (raced.on, raced.shape, raced.case) == (on, shape, case);
    raced.iter().find(is)
}

/// Estimates a ratio: the values of `of`, divided by the values of `base` in the same rounds.
/// Returns `None` if the median ratio is not finite.
fn ratio(of: &Raced, base: &Raced, what: fn(&Took) -> f64) -> Option<Estimate> {
    let compared = stats::compare(&base.of(what), &of.of(what))?;
    Some(compared.ratio).filter(|ratio| ratio.median.is_finite())
}

fn rows(raced: &Raced, all: &[Raced]) -> Vec<Row> {
    let (machine, how) = raced.on.name();
    let row = |&(metric, what, base): &Metric| {
        let base = find(all, raced.on, raced.shape, base);
        let estimate = stats::estimate(&raced.of(what))?;
        let ratio = base.and_then(|base| ratio(raced, base, what));
        let finite =
            |end: fn(&Estimate) -> f64| ratio.as_ref().map(end).filter(|end| end.is_finite());
        Some(Row {
            machine: machine.to_owned(),
            load: format!("{}, {how}", raced.shape.name()),
            case: CASES[raced.case].name.to_owned(),
            metric,
            median: estimate.median,
            low: estimate.low,
            high: estimate.high,
            ratio: finite(|ratio| ratio.median),
            ratio_low: finite(|ratio| ratio.low),
            ratio_high: finite(|ratio| ratio.high),
            rounds: raced.rounds.len(),
            disturbed: raced.rounds.iter().filter(|took| took.disturbed).count(),
        })
    };
    raced.on.metrics().iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raced(on: On, case: usize, wall_ns: f64) -> Raced {
        let took = Took {
            wall_ns,
            ..Took::default()
        };
        Raced {
            on,
            shape: Shape::Many,
            case,
            rounds: vec![took; 3],
        }
    }

    #[test]
    fn ratios_are_to_exit_alone_on_the_same_machine() {
        let all = [
            raced(On::GivenBack, 0, 100.0),
            raced(On::GivenBack, 5, 60.0),
            raced(On::Simulated, 0, 1000.0),
            raced(On::Simulated, 5, 500.0),
        ];
        let found = found(&all, &Size::default(), None);
        let last = &found.tables[0].rows[5];
        assert_eq!(last[0], "meet-in-the-middle");
        assert_eq!((&*last[2], &*last[6]), ("0.60 0.60–0.60", "0.50 0.50–0.50"));
        assert_eq!(last[7], "1.20", "here over simulated");
        assert_eq!(last[3], NOTHING, "not measured");
        let wall = |row: &&Row| row.metric == "wall_ns" && row.case == "meet-in-the-middle";
        let ratios = found.rows.iter().filter(wall).map(|row| row.ratio);
        assert_eq!(ratios.collect::<Vec<_>>(), [Some(0.6), Some(0.5)]);
    }

    #[test]
    fn a_computer_with_one_cpu_says_so() {
        let all = [raced(On::Simulated, 0, 1000.0)];
        let why = "there is no race to measure: one CPU";
        let found = found(&all, &Size::default(), Some(why));
        assert!(found.tables[0].note.contains(why));
        assert_eq!(found.tables[0].rows[0][1], NOTHING);
    }
}
