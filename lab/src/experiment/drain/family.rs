//! The side workloads of the drain experiment. They have the workers of the main workload, but
//! memory in another state, more free memory, or a shorter use of each page.
//!
//! The main workload alone would be weak evidence, because we chose it. For example, a design that
//! moves whole blocks raises throughput most if memory is fresh and short. So a report gives the
//! range of each ratio over all of these workloads.

use super::setup::{DrainSetup, FIFTY, Kept, Pressure, RATE, SCALE, TEN, WAIT_MAX};
use super::{BOUNDED, BOUNDED_PAGES, MERGED, UNBATCHED};
use crate::error::Error;
use crate::experiment::driver::{Results, Run};
use crate::measure::metric::Metric;
use crate::measure::stats::Verdict;
use crate::report::misses::EQUAL_PERCENT;
use crate::report::{Table, tabulate};
use crate::run::aging::Memory;

/// The designs that run on the side workloads, which are variations of the main workload.
const DESIGNS: [&str; 4] = [UNBATCHED, MERGED, BOUNDED_PAGES, BOUNDED];

/// One workload of the drain experiment, and its results: the main workload or a side workload.
pub(super) struct Member {
    pub(super) setup: DrainSetup,
    pub(super) results: Results,
}

impl Member {
    fn use_of_pages(&self) -> &'static str {
        if self.setup.uses_quickly() {
            "quick"
        } else {
            "measured"
        }
    }

    /// `metric` with `design`, divided by `metric` with unbatched Linux (Linux before it freed
    /// pages in batches): the median over the seeds.
    fn ratio(&self, design: &str, metric: &Metric) -> f64 {
        self.results.ratio((UNBATCHED, design), metric)
    }
}

/// Runs all side workloads (variations of the main workload) on the machine. Returns their results
/// and the results of the main workload, which has already run.
pub(super) fn run(run: &Run<'_, DrainSetup, Kept>) -> Result<Vec<Member>, Error> {
    let designs = run.named(&DESIGNS);
    let seeds = run.numbers().count("family_seeds");
    let member = |setup: DrainSetup| {
        if setup.is_like(&run.setup) {
            let results = run.results.clone();
            return Ok(Member { setup, results });
        }
        let about = format!("{} memory, {}", setup.memory.name(), setup.pressure.name());
        // Run side workloads for as long as the main workload. In a shorter run, the workers' first
        // round, which only fills memory, would be a larger part.
        let (results, _) = run.further_on_few(&about, &setup, &designs, seeds)?;
        Ok(Member { setup, results })
    };
    setups(run).into_iter().map(member).collect()
}

fn setups(run: &Run<'_, DrainSetup, Kept>) -> Vec<DrainSetup> {
    let mut setups = Vec::new();
    for pressure in [Pressure::Plenty, Pressure::Short] {
        setups.extend(Memory::ALL.map(|memory| DrainSetup {
            memory,
            pressure,
            ..run.setup.clone()
        }));
    }
    setups.push(DrainSetup {
        use_ns: run.setup.quick_use_ns,
        ..run.setup.clone()
    });
    setups
}

/// Makes a table of ratios: `metric` with each design, divided by `metric` with unbatched Linux
/// (Linux before it freed pages in batches). There is a row for each workload, and a last row with
/// the range over all workloads.
pub(super) fn table(family: &[Member], metric: &Metric, title: &str) -> Table {
    let mut table = tabulate!(
        title,
        "B / A, where A is unbatched: medians over two seeds, or over all seeds for the workload of \
         the rest of the report. \
         `measured`: workers use each page for 2500 ns, as stress-ng does; `quick`: for 400 ns. The \
         last row has the range over all rows.",
        family,
        |member| {
            "memory" => member.setup.memory.name(),
            "amount" => member.setup.pressure.name(),
            "use of pages" => member.use_of_pages(),
            "batched" => ratio(member.ratio(MERGED, metric)),
            "bounded-pages" => ratio(member.ratio(BOUNDED_PAGES, metric)),
            "bounded" => ratio(member.ratio(BOUNDED, metric)),
        }
    );
    let range = |design| show_range(range(family, design, metric, |_| true));
    table.rows.push(vec![
        "range".to_owned(),
        String::new(),
        String::new(),
        range(MERGED),
        range(BOUNDED_PAGES),
        range(BOUNDED),
    ]);
    table
}

/// The smallest and the largest ratio over all workloads: `metric` with `design`, divided by
/// `metric` with Linux before it freed pages in batches. Workloads for which `of` returns false are
/// left out.
fn range(
    family: &[Member],
    design: &str,
    metric: &Metric,
    of: impl Fn(&DrainSetup) -> bool,
) -> (f64, f64) {
    let members = family.iter().filter(|member| of(&member.setup));
    let ratios = members.map(|member| member.ratio(design, metric));
    ratios.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), ratio| {
        (low.min(ratio), high.max(ratio))
    })
}

fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}")
}

fn show_range((low, high): (f64, f64)) -> String {
    let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
    if low == high {
        low
    } else {
        format!("{low}–{high}")
    }
}

/// Returns a sentence that says how two designs change the metrics: the merged patch, which frees
/// pages in batches, and our limit on how long the zone lock is held. `pressure` chooses the
/// workloads that the sentence covers: those with plenty of memory, or those that are short of
/// memory.
pub(super) fn worth(family: &[Member], pressure: Pressure) -> String {
    let of = |design, metric: &Metric| {
        let ratios = range(family, design, metric, |setup| setup.pressure == pressure);
        show_range(ratios)
    };
    format!(
        "{}, the merged patch multiplies the throughput of unbatched Linux by {} and its longest \
         wait for the zone lock by {}, and bounded holds multiply them by {} and {}",
        match pressure {
            Pressure::Plenty => "With plenty of memory",
            Pressure::Short => "if memory is short",
        },
        of(MERGED, &RATE),
        of(MERGED, &WAIT_MAX),
        of(BOUNDED, &RATE),
        of(BOUNDED, &WAIT_MAX),
    )
}

/// One of our workloads, and the changes of its throughput that were published for the patch that
/// frees pages in batches. The changes are in percent. The throughput is measured in three ways: as
/// the number of rounds, as the rounds per second of real time, and as the rounds per second of CPU
/// time.
struct Claim {
    setup: DrainSetup,
    published: [f64; 3],
}

/// Makes the table that shows how the merged patch, which frees pages in batches, changes
/// throughput, in our runs and as published. Returns `None` on a machine for which no changes were
/// published.
pub(super) fn claims(run: &Run<'_, DrainSetup, Kept>) -> Result<Option<Table>, Error> {
    if run.setup.shape != FIFTY {
        return Ok(None);
    }
    let designs = run.named(&[UNBATCHED, MERGED]);
    let mut rows = Vec::new();
    for Claim { setup, published } in published_claims(run) {
        let about = format!("{}, {}", setup.shape.name, setup.pressure.name());
        let compared = if setup.is_like(&run.setup) {
            run.results.compare((UNBATCHED, MERGED), &RATE)
        } else {
            let (results, _) = run.further(&about, &setup, &designs)?;
            results.compare((UNBATCHED, MERGED), &RATE)
        };
        let ratio = &compared.ratio;
        let delta = [ratio.low, ratio.median, ratio.high].map(|ratio| 100.0 * (ratio - 1.0));
        let verdict = equality(delta, compared.verdict);
        rows.push((setup, published, delta, verdict));
    }
    Ok(Some(tabulate!(
        "Throughput of the merged patch against unbatched Linux, beside the published changes",
        format!(
            "Medians of the ratios of equal seeds, with 95 % intervals. Workers are {SCALE} times \
             smaller than the published ones. Published: changes of rounds, of rounds per second of \
             real time, and per second of CPU time. `equal`: the interval lies within ±{EQUAL_PERCENT} \
             %, the largest published variation between runs. Nothing is swapped out here, although \
             10 x 30 GB are more than the published machine's 250 GB; in `drain-swap` it is.",
        ),
        &rows,
        |(setup, published, delta, verdict)| {
            "workers" => setup.shape.name,
            "memory" => setup.memory.name(),
            "amount" => setup.pressure.name(),
            "published" => published.map(|percent| format!("{percent:+.4} %")).join(", "),
            "ours" => format!("{:+.2} % [{:+.2}–{:+.2}]", delta[1], delta[0], delta[2]),
            "verdict" => verdict,
        }
    )))
}

fn published_claims(run: &Run<'_, DrainSetup, Kept>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (shape, published) in [
        (FIFTY, [-0.0011, -0.0091, 0.1049]),
        (TEN, [0.4728, 0.2029, -0.6381]),
    ] {
        let setup = run.setup.with_shape(shape, run.options.effort);
        claims.extend([Pressure::Plenty, Pressure::Short].map(|pressure| Claim {
            setup: DrainSetup {
                pressure,
                ..setup.clone()
            },
            published,
        }));
    }
    claims
}

/// Says whether the throughputs of two designs count as equal. The array has the difference between
/// the throughputs in percent: the low end of its interval, its median, and the high end of the
/// interval.
fn equality([low, _, high]: [f64; 3], compared: Verdict) -> &'static str {
    if compared == Verdict::TooFewSeeds {
        "too few seeds"
    } else if low >= -EQUAL_PERCENT && high <= EQUAL_PERCENT {
        "equal"
    } else if high < -EQUAL_PERCENT {
        "miss: lower"
    } else if low > EQUAL_PERCENT {
        "miss: higher"
    } else {
        "open: add seeds"
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::stats::Verdict;

    fn equality(delta: [f64; 3]) -> &'static str {
        super::equality(delta, Verdict::NoDifference)
    }

    #[test]
    fn throughputs_are_equal_only_if_the_whole_interval_says_so() {
        assert_eq!(equality([-0.5, 0.0, 0.5]), "equal");
        assert_eq!(equality([-0.7, 0.0, 0.5]), "open: add seeds");
        assert_eq!(equality([-3.0, -2.0, -1.0]), "miss: lower");
        assert_eq!(equality([1.0, 2.0, 3.0]), "miss: higher");
        let few = super::equality([0.0; 3], Verdict::TooFewSeeds);
        assert_eq!(few, "too few seeds");
    }
}
