//! Halves and doubles each price of a machine (the time of one kind of simulated step), and runs
//! the headline comparisons (the comparisons that people quote) again.
//!
//! Most prices decide nothing, so each price is first varied on the first seed alone. If no run
//! changes, no step of the workload has this price. If no headline's ratio changes by more than the
//! factor [`SCREEN`], the price is left out. All other prices are varied on all seeds.

use std::fmt;

use plimsoll_sim::profile::{CostKey, Profile, UnknownCost};

use super::headlines::{self, Headlines};
use super::kept::{Compared, Headline, Kept, Price, Varied, factor, hash_of_prices};
use crate::error::Error;
use crate::experiment::{self, Experiment};
use crate::measure::comparison::Comparison;
use crate::measure::stats;
use crate::run::options::Options;
use crate::run::progress::Progress;

/// A price (the time of a simulated step) is halved and doubled on the first seed. If this changes
/// the ratio of a headline comparison by more than this factor, the price is varied on all seeds.
pub const SCREEN: f64 = 1.1;
/// Half of a price and twice a price, in percent.
const SCALES: [u32; 2] = [50, 200];

/// Varies the prices of the experiments `names`, or of all experiments with headlines if `names` is
/// empty. Varies only `prices`, or all prices if `prices` is empty.
///
/// # Errors
/// If a name is unknown, or an experiment has no prices that could be varied.
pub fn run(
    names: &[String],
    prices: &[CostKey],
    options: &Options,
    progress: &Progress,
) -> Result<Kept, Error> {
    let chosen = chosen(names)?;
    let mut experiments = Vec::new();
    for headlines in chosen {
        let mut keys = prices_of(headlines.machine)?;
        keys.retain(|key| prices.is_empty() || prices.contains(key));
        experiments.push(vary(headlines, keys, options, progress)?);
    }
    Ok(Kept { experiments })
}

/// Returns the prices of simulated steps with these keys.
///
/// # Errors
/// If a key is unknown. The error names the nearest keys.
pub fn prices(keys: &[String]) -> Result<Vec<CostKey>, Error> {
    let one = |key: &String| {
        let key: Result<CostKey, UnknownCost> = key.parse();
        key.map_err(|error| Error::Invalid(error.to_string()))
    };
    keys.iter().map(one).collect()
}

/// Looks up the experiments called `names`, so that a misspelt name is found before anything runs.
///
/// # Errors
/// As for [`run`].
pub fn chosen(names: &[String]) -> Result<Vec<&'static Headlines>, Error> {
    if names.is_empty() {
        return Ok(headlines::ALL.iter().collect());
    }
    let one = |name: &String| -> Result<&'static Headlines, Error> {
        let experiment = experiment::find(name)?;
        let mut of = headlines::ALL
            .iter()
            .filter(|headlines| headlines.experiment == experiment.name());
        let with: Vec<&str> = headlines::ALL
            .iter()
            .map(|headline| headline.experiment)
            .collect();
        of.next().ok_or_else(|| {
            Error::Invalid(format!(
                "no prices decide `{name}`: name one of {}",
                with.join(", ")
            ))
        })
    };
    let mut chosen: Vec<&Headlines> = Vec::new();
    for name in names {
        let of = one(name)?;
        if chosen.iter().all(|known| known.experiment != of.experiment) {
            chosen.push(of);
        }
    }
    Ok(chosen)
}

fn vary(
    of: &Headlines,
    keys: Vec<CostKey>,
    options: &Options,
    progress: &Progress,
) -> Result<Varied, Error> {
    let experiment = experiment::find(of.experiment)?;
    let runs = Runs {
        of,
        experiment,
        options,
        progress,
    };
    progress.start(format!("prices of {}", of.experiment));
    progress.expect(2 + 2 * keys.len());
    let first = runs.at("", 1)?;
    let all = runs.at("", options.seeds.len())?;
    let mut uncharged = Vec::new();
    let mut wanted = Vec::new();
    for key in keys {
        let both = runs.both(key, 1)?;
        if both.iter().all(|run| run.hash() == first.hash()) {
            uncharged.push(key.to_string());
        } else if both.iter().any(|run| runs.moved(&first, run) > SCREEN) {
            wanted.push(key);
        }
    }
    progress.expect(2 * wanted.len());
    let mut ran = Vec::new();
    for key in wanted {
        ran.push((key, runs.both(key, options.seeds.len())?));
    }
    Ok(Varied {
        experiment: of.experiment.to_owned(),
        machine: of.machine.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        prices: hash_of_prices(of.machine)?,
        hash: format!("{:016x}", all.hash()),
        seeds: options.seeds.len(),
        uncharged,
        headlines: of.of.iter().map(|one| headline(one, &all, &ran)).collect(),
    })
}

/// The keys of all prices of steps in the machine's profile.
fn prices_of(machine: &str) -> Result<Vec<CostKey>, Error> {
    let text = Profile::describe(machine)?;
    Ok(text.costs.iter().map(|cost| cost.key).collect())
}

/// Everything that is needed to run the designs of one experiment's headlines with changed prices.
struct Runs<'a> {
    of: &'a Headlines,
    experiment: &'static dyn Experiment,
    options: &'a Options,
    progress: &'a Progress,
}

impl Runs<'_> {
    /// Runs the designs of the headlines (comparisons that people quote) on the first `seeds`
    /// seeds. `scaled` is appended to the name of the machine. It is empty or scales a price:
    /// `@work.fault=50` scales `work.fault` to 50 %.
    fn at(&self, scaled: impl fmt::Display, seeds: usize) -> Result<Comparison, Error> {
        let machine = format!("{}{scaled}", self.of.machine);
        let mut options = self.options.clone();
        options.seeds.truncate(seeds);
        let ran = self
            .experiment
            .compare_some(&machine, &self.of.designs(), &options)?;
        self.progress.step();
        Ok(ran)
    }

    /// Runs the designs of the headlines with half of the price `key`, and with twice that price.
    fn both(&self, key: CostKey, seeds: usize) -> Result<[Comparison; 2], Error> {
        let [half, twice] = SCALES.map(|percent| self.at(format!("@{key}={percent}"), seeds));
        Ok([half?, twice?])
    }

    /// Returns the factor between the ratio of a headline comparison in `plain` (the runs with
    /// unchanged prices) and its ratio in `run`. This is the largest factor of all headline
    /// comparisons.
    fn moved(&self, plain: &Comparison, run: &Comparison) -> f64 {
        let of = |headline| {
            factor(
                compared(plain, headline).ratio,
                compared(run, headline).ratio,
            )
        };
        self.of.of.iter().map(of).fold(1.0, f64::max)
    }
}

/// The ratio and the verdict of a headline comparison in `runs`. An earlier check has made sure
/// that the runs measured the headline's designs and its metric.
fn compared(runs: &Comparison, (a, b, metric): &headlines::Headline) -> Compared {
    let values = |design: &str| -> Vec<f64> {
        let nth = runs.designs().iter().position(|name| name == design);
        let nth = nth.unwrap_or_else(|| panic!("no design is called `{design}`"));
        let value = |sample: &crate::measure::comparison::Sample| {
            let mut found = sample
                .metrics
                .iter()
                .filter(|(known, _)| known.name == *metric);
            let found = found.next().map(|(_, value)| *value);
            found.unwrap_or_else(|| panic!("a quick run of `{design}` has no `{metric}`"))
        };
        runs.samples(nth).map(value).collect()
    };
    let compared = stats::compare(&values(a), &values(b)).expect("a seed runs");
    let finite = |value: f64| value.is_finite().then_some(value);
    Compared {
        ratio: finite(compared.ratio.median),
        low: finite(compared.ratio.low),
        high: finite(compared.ratio.high),
        verdict: compared.verdict.words().to_owned(),
    }
}

fn headline(
    of: &headlines::Headline,
    plain: &Comparison,
    ran: &[(CostKey, [Comparison; 2])],
) -> Headline {
    let price = |(key, [half, twice]): &(CostKey, [Comparison; 2])| Price {
        key: key.to_string(),
        half: compared(half, of),
        twice: compared(twice, of),
    };
    let mut headline = Headline {
        a: of.0.to_owned(),
        b: of.1.to_owned(),
        metric: of.2.to_owned(),
        plain: compared(plain, of),
        prices: Vec::new(),
    };
    let mut prices: Vec<Price> = ran.iter().map(price).collect();
    let flips = |price: &Price| {
        let both = [&price.half, &price.twice];
        both.into_iter().any(|at| headline.flips(at))
    };
    prices.sort_by(|one, next| {
        let by_factor = headline.effect(next).total_cmp(&headline.effect(one));
        by_factor.then(flips(next).cmp(&flips(one)))
    });
    headline.prices = prices;
    headline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::options::Effort;

    #[test]
    fn every_headline_is_of_an_experiment_that_has_its_designs_and_metric() {
        for of in headlines::ALL {
            let experiment = experiment::find(of.experiment).expect("an experiment");
            assert!(
                experiment.machines().contains(&of.machine),
                "{}",
                of.machine
            );
            assert!(experiment.is_simulated(), "{}", of.experiment);
            let metrics = experiment.quick_metrics(of.machine).unwrap();
            let designs = experiment.design_names();
            for (a, b, metric) in of.of {
                assert!(metrics.iter().any(|known| known == metric), "{metric}");
                for design in [a, b] {
                    assert!(designs.iter().any(|known| known == design), "{design}");
                }
            }
        }
    }

    #[test]
    fn every_simulated_experiment_of_the_catalog_has_headlines() {
        let simulated = experiment::CATALOG
            .iter()
            .filter(|experiment| experiment.is_simulated());
        let with: Vec<&str> = headlines::ALL
            .iter()
            .map(|headline| headline.experiment)
            .collect();
        for experiment in simulated {
            assert!(with.contains(&experiment.name()), "{}", experiment.name());
        }
    }

    #[test]
    fn an_experiment_without_prices_is_bad_input() {
        for name in ["rss-memory", "selftest", "vmstta"] {
            let error = chosen(&[name.to_owned()]).unwrap_err();
            assert!(error.is_bad_input(), "{error}");
        }
    }

    /// The test experiment empties an address space. Its workload never reads from swap (the price
    /// `work.swap_in`), but it takes pages out of page tables (`work.zap`).
    #[test]
    fn a_price_that_is_not_charged_is_named_and_one_that_is_charged_moves_a_ratio() {
        let options = Options {
            effort: Effort::Quick,
            ..Options::of_seeds(1)
        };
        let of = Headlines {
            experiment: "reaper",
            machine: "phone-8",
            of: &[("exit alone", "meet-in-the-middle", "wall_ns")],
        };
        let keys = prices(&["work.swap_in".to_owned(), "work.zap".to_owned()]).unwrap();
        let progress = Progress::hidden();
        let varied = vary(&of, keys.clone(), &options, &progress).unwrap();
        assert_eq!(varied.uncharged, ["work.swap_in"]);
        let runs = Runs {
            of: &of,
            experiment: experiment::find("reaper").unwrap(),
            options: &options,
            progress: &progress,
        };
        let ran = vec![(keys[1], runs.both(keys[1], 1).unwrap())];
        let plain = runs.at("", 1).unwrap();
        let headline = headline(&of.of[0], &plain, &ran);
        // It is enough that a price changes the ratio of one headline comparison. Here, the first
        // ratio cannot change, because it compares a design with itself.
        let both = Headlines {
            of: &[
                ("exit alone", "exit alone", "wall_ns"),
                ("exit alone", "meet-in-the-middle", "wall_ns"),
            ],
            ..of
        };
        let moved = Runs { of: &both, ..runs }.moved(&plain, &ran[0].1[0]);
        assert!(moved > 1.0, "{moved}");
        let effect = headline.effect(&headline.prices[0]);
        assert!((1.0..SCREEN).contains(&effect) == varied.headlines[0].prices.is_empty());
        assert!(
            headline.plain.ratio.is_some_and(|ratio| ratio < 0.8),
            "{headline:?}"
        );
    }

    #[test]
    fn an_experiment_that_is_named_twice_is_varied_once() {
        let names = ["reaper", "drain", "reaper"].map(str::to_owned);
        let chosen = chosen(&names).unwrap();
        let chosen: Vec<&str> = chosen
            .iter()
            .map(|headlines| headlines.experiment)
            .collect();
        assert_eq!(chosen, ["reaper", "drain"]);
    }

    #[test]
    fn the_largest_movers_come_first() {
        let run = |waits: [f64; 2]| {
            let case = |case: &crate::run::cases::Case<&str>| {
                let nth = usize::from(case.design == "ours");
                let metric = crate::measure::metric::Metric::lower(
                    "waits",
                    crate::measure::metric::Unit::Count,
                );
                crate::measure::comparison::Sample {
                    hash: 0,
                    metrics: vec![(metric, waits[nth])],
                }
            };
            let (options, progress) = (Options::of_seeds(6), Progress::hidden());
            Comparison::run(&["linux", "ours"], &options, &progress, case).unwrap()
        };
        let [fault, own] = prices(&["work.fault".to_owned(), "word.own".to_owned()])
            .unwrap()
            .try_into()
            .expect("two keys");
        let ran = [
            (fault, [run([8.0, 4.0]), run([8.0, 6.0])]),
            (own, [run([8.0, 1.0]), run([8.0, 9.0])]),
        ];
        let found = headline(&("linux", "ours", "waits"), &run([8.0, 4.0]), &ran);
        let keys: Vec<&str> = found.prices.iter().map(|price| &*price.key).collect();
        assert_eq!(keys, ["word.own", "work.fault"]);
        // Changing either price changes the ratio of the two designs by the factor 2. But only a
        // change of the second price changes the verdict too.
        let tied = [
            (ran[0].0, [run([8.0, 4.0]), run([8.0, 2.0])]),
            (ran[1].0, [run([8.0, 4.0]), run([8.0, 8.0])]),
        ];
        let found_tied = headline(&("linux", "ours", "waits"), &run([8.0, 4.0]), &tied);
        assert_eq!(found_tied.prices[0].key, "word.own");
        assert_eq!(found.effect(&found.prices[0]), 4.0);
        let deciding: Vec<&str> = found.deciding().map(|price| &*price.key).collect();
        assert_eq!(
            deciding,
            ["word.own"],
            "the ratio of the other moves by half only"
        );
    }
}
