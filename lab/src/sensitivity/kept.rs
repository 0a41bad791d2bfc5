//! The sensitivity table that is part of the repository, `lab/data/sensitivity.json`. It says how
//! each price of a machine (the time of one kind of simulated step) affects the headline results.

use plimsoll_sim::profile::{Card, CostKey, Profile, Provenance};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::measure::comparison::fold_hashes;

/// The text of the committed file, which is built into the program.
const FILE: &str = include_str!("../../data/sensitivity.json");

/// A price (the time of a simulated step) is changed to half and to twice its value. It moves a
/// ratio of two designs if the ratio then differs from the ratio at the unchanged price by more
/// than this factor, up or down.
pub const MOVES: f64 = 2.0;

/// The results of sensitivity runs, by experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The experiments, in the order in which they ran.
    pub experiments: Vec<Varied>,
}

/// The results of one experiment on one machine, whose prices were varied one at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Varied {
    /// The experiment.
    pub experiment: String,
    /// The simulated machine whose prices (the times of its steps) were varied.
    pub machine: String,
    /// The version of Plimsoll that ran.
    pub version: String,
    /// The hash of the machine's prices, [`hash_of_prices`].
    pub prices: String,
    /// The hash of everything that happened in the runs with unchanged prices.
    pub hash: String,
    /// The number of seeds.
    pub seeds: usize,
    /// The prices that cannot change a result, because the steps that have these prices occur in no
    /// run of the headline comparisons.
    pub uncharged: Vec<String>,
    /// The headlines.
    pub headlines: Vec<Headline>,
}

/// One headline comparison (a comparison that people quote from an experiment), and how each price
/// affects it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// The name of design A.
    pub a: String,
    /// The name of design B.
    pub b: String,
    /// The name of the metric.
    pub metric: String,
    /// The ratio B / A of the metric, with unchanged prices.
    pub plain: Compared,
    /// The effect of each price that was varied with all seeds. The price with the largest effect
    /// is first.
    pub prices: Vec<Price>,
}

/// How a headline comparison changes if one price (the time of a simulated step) is halved or
/// doubled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// The key of the price, such as `work.fault`.
    pub key: String,
    /// The metric with design B divided by the metric with design A, at half of the price.
    pub half: Compared,
    /// The metric with design B divided by the metric with design A, at twice the price.
    pub twice: Compared,
}

/// A ratio with its 95 % interval, and the verdict. The ratio, or an end of the interval, is `None`
/// if it is not finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The median of the ratios.
    pub ratio: Option<f64>,
    /// The low end of the 95 % interval of `ratio`.
    pub low: Option<f64>,
    /// The high end of the 95 % interval of `ratio`.
    pub high: Option<f64>,
    /// The verdict, in words.
    pub verdict: String,
}

impl Kept {
    /// Reads the sensitivity table of the repository, as it was when Plimsoll was built.
    ///
    /// # Errors
    /// If the file cannot be read, which a test prevents.
    pub fn committed() -> Result<Self, Error> {
        let broken = |error| {
            Error::Invalid(format!(
                "lab/data/sensitivity.json cannot be read ({error}); write it again with \
                 `plimsoll sensitivity --save lab/data/sensitivity.json`"
            ))
        };
        serde_json::from_str(FILE).map_err(broken)
    }

    /// Reads a file that `plimsoll sensitivity --save` wrote.
    ///
    /// # Errors
    /// If `text` is not the content of such a file.
    pub fn read(text: &str) -> Result<Self, Error> {
        let broken = |error| {
            Error::Invalid(format!(
                "no result of `plimsoll sensitivity` ({error}); name a new file"
            ))
        };
        serde_json::from_str(text).map_err(broken)
    }

    /// Replaces the results of every experiment that `other` has, and keeps the results of all
    /// other experiments. The experiments are then in the order of
    /// [`headlines::ALL`](super::headlines::ALL).
    #[must_use]
    pub fn replaced_by(mut self, other: Self) -> Self {
        for varied in other.experiments {
            let mut known = self.experiments.iter_mut();
            match known.find(|known| known.experiment == varied.experiment) {
                Some(known) => *known = varied,
                None => self.experiments.push(varied),
            }
        }
        let place = |varied: &Varied| {
            let place = super::headlines::ALL
                .iter()
                .position(|other| other.experiment == varied.experiment);
            place.unwrap_or(usize::MAX)
        };
        self.experiments.sort_by_key(place);
        self
    }

    /// The text of a file with these results.
    ///
    /// # Panics
    /// Never: text and finite numbers can always be written as JSON.
    #[must_use]
    pub fn text(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("text and finite numbers always serialise") + "\n"
    }
}

impl Price {
    /// Returns whether `is` returns true for the results at half of the price, at twice the price,
    /// or both.
    pub fn any(&self, is: impl Fn(&Compared) -> bool) -> bool {
        is(&self.half) || is(&self.twice)
    }
}

impl Headline {
    /// The prices of steps that decide the headline comparison: at half or at twice such a price,
    /// the headline [changes] by more than the random differences between seeds.
    ///
    /// [changes]: Headline::changes
    pub fn deciding(&self) -> impl Iterator<Item = &Price> {
        let decides = |at: &Compared| self.changes(at) && self.is_beyond_noise(at);
        self.prices.iter().filter(move |price| price.any(decides))
    }

    /// The number of prices that [change](Headline::changes) the headline, but by no more than the
    /// random differences between seeds.
    #[must_use]
    pub fn within_noise(&self) -> usize {
        let changes = |price: &&Price| price.any(|at| self.changes(at));
        self.prices.iter().filter(changes).count() - self.deciding().count()
    }

    /// Returns whether the verdict of `at` differs from the verdict with unchanged prices, or
    /// whether the ratios differ by more than the factor [`MOVES`].
    #[must_use]
    pub fn changes(&self, at: &Compared) -> bool {
        self.flips(at) || self.moves(at) > MOVES
    }

    /// Returns whether the interval of `at` and the interval with unchanged prices do not overlap.
    /// If an end of an interval is not finite, it counts as infinity.
    #[must_use]
    pub fn is_beyond_noise(&self, at: &Compared) -> bool {
        let end = |end: Option<f64>| end.unwrap_or(f64::INFINITY);
        end(at.low) > end(self.plain.high) || end(at.high) < end(self.plain.low)
    }

    /// Returns whether the verdict of `at` differs from the verdict with unchanged prices.
    #[must_use]
    pub fn flips(&self, at: &Compared) -> bool {
        at.verdict != self.plain.verdict
    }

    /// The factor, at least 1, by which the ratio of `at` and the ratio with unchanged prices
    /// differ.
    #[must_use]
    pub fn moves(&self, at: &Compared) -> f64 {
        factor(self.plain.ratio, at.ratio)
    }

    /// The headline's ratio changes by one factor at half of `price`, and by another factor at
    /// twice `price`. The result is the larger of the two factors.
    #[must_use]
    pub fn effect(&self, price: &Price) -> f64 {
        self.moves(&price.half).max(self.moves(&price.twice))
    }
}

/// The factor between two ratios, at least 1. It is infinite if only one of the ratios is 0 or not
/// finite.
#[must_use]
pub(super) fn factor(one: Option<f64>, other: Option<f64>) -> f64 {
    match (one, other) {
        (Some(one), Some(other)) if one == other => 1.0,
        (Some(one), Some(other)) if one > 0.0 && other > 0.0 => (one / other).max(other / one),
        (None, None) => 1.0,
        _ => f64::INFINITY,
    }
}

/// A hash of everything that a run takes from the profile of `machine` if every price is the middle
/// of its range, as 16 hexadecimal digits. It is stored with a table, to show whether the table was
/// made with other prices.
///
/// # Errors
/// If the machine is unknown.
pub fn hash_of_prices(machine: &str) -> Result<String, Error> {
    let profile = Profile::load(machine, Card::Mid)?;
    let bytes = format!("{profile:?}").into_bytes();
    Ok(format!(
        "{:016x}",
        fold_hashes(bytes.into_iter().map(u64::from))
    ))
}

/// Returns whether the price was fitted to a published figure: its source begins with `fitted:`.
///
/// # Errors
/// If the machine or the key is unknown.
pub fn is_fitted(machine: &str, key: &str) -> Result<bool, Error> {
    let unknown = |error| Error::Invalid(format!("lab/data/sensitivity.json: {error}"));
    let key: CostKey = key.parse().map_err(unknown)?;
    let text = Profile::describe(machine)?;
    let cost = text.cost(key);
    Ok(cost.is_some_and(|cost| cost.provenance() == Some(Provenance::Fitted)))
}

#[cfg(test)]
mod tests {
    use super::super::headlines;
    use super::*;
    use crate::experiment;

    /// `lab/data/sensitivity.json` names only experiments, machines and prices that exist. So no
    /// report quotes a price that has been removed.
    #[test]
    fn the_committed_file_names_only_known_experiments_machines_and_prices() {
        for varied in Kept::committed().unwrap().experiments {
            let experiment = experiment::find(&varied.experiment).expect("an experiment");
            let machines = experiment.machines();
            assert!(machines.contains(&&*varied.machine), "{}", varied.machine);
            let prices = varied
                .headlines
                .iter()
                .flat_map(|headline| &headline.prices);
            for key in prices.map(|price| &price.key).chain(&varied.uncharged) {
                is_fitted(&varied.machine, key).unwrap_or_else(|error| panic!("{error}"));
            }
            let declared = headlines::ALL.iter();
            let mut declared = declared.filter(|headline| headline.experiment == varied.experiment);
            let declared = declared.next().expect("an experiment with headlines");
            let of = |headline: &Headline| {
                (
                    headline.a.clone(),
                    headline.b.clone(),
                    headline.metric.clone(),
                )
            };
            let kept: Vec<_> = varied.headlines.iter().map(of).collect();
            let text = |(a, b, metric): &headlines::Headline| {
                (a.to_string(), b.to_string(), metric.to_string())
            };
            let wanted: Vec<_> = declared.of.iter().map(text).collect();
            assert_eq!(kept, wanted, "measure {} again", varied.experiment);
        }
    }

    #[test]
    fn the_committed_file_has_each_experiment_once() {
        let kept = Kept::committed().unwrap().experiments;
        let kept: Vec<&str> = kept.iter().map(|other| &*other.experiment).collect();
        let known = headlines::ALL.iter().map(|headline| headline.experiment);
        let wanted: Vec<&str> = known.filter(|name| kept.contains(name)).collect();
        assert_eq!(kept, wanted);
        assert!(!kept.is_empty());
    }

    #[test]
    fn a_price_decides_if_the_headline_changes_beyond_the_noise() {
        let lower = "B is lower";
        let at = |ratio: f64, verdict: &str| Compared {
            ratio: Some(ratio),
            low: Some(ratio * 0.8),
            high: Some(ratio * 1.25),
            verdict: verdict.to_owned(),
        };
        let price = |key: &str, half, twice| Price {
            key: key.to_owned(),
            half,
            twice,
        };
        let mut headline = Headline {
            a: "linux".to_owned(),
            b: "ours".to_owned(),
            metric: "waits".to_owned(),
            plain: at(0.4, lower),
            prices: vec![
                price("work.fault", at(0.15, lower), at(0.5, lower)),
                price("word.own", at(0.4, lower), at(0.9, "no difference seen")),
                price("lock.own", at(0.3, lower), at(0.6, lower)),
            ],
        };
        let deciding = |headline: &Headline| -> Vec<String> {
            headline.deciding().map(|price| price.key.clone()).collect()
        };
        assert_eq!(deciding(&headline), ["work.fault", "word.own"]);
        assert_eq!(headline.within_noise(), 0);
        headline.plain.high = Some(0.8);
        assert_eq!(
            deciding(&headline),
            ["work.fault"],
            "0.72 to 1.125 touches 0.8"
        );
        assert_eq!(headline.within_noise(), 1);
        assert_eq!(factor(Some(0.0), Some(0.2)), f64::INFINITY);
        assert_eq!(factor(Some(0.0), Some(0.0)), 1.0);
    }

    /// At half of the price, the verdict differs, but the difference may be noise. At twice the
    /// price, the ratio differs by more than the noise, but by less than the factor [`MOVES`]. So
    /// neither change shows that the price decides the headline.
    #[test]
    fn a_change_and_its_certainty_have_to_be_at_the_same_price() {
        let at = |ratio: f64, low: f64, high: f64, verdict: &str| Compared {
            ratio: Some(ratio),
            low: Some(low),
            high: Some(high),
            verdict: verdict.to_owned(),
        };
        let headline = Headline {
            a: "linux".to_owned(),
            b: "ours".to_owned(),
            metric: "waits".to_owned(),
            plain: at(0.4, 0.35, 0.45, "B is lower"),
            prices: vec![Price {
                key: "work.fault".to_owned(),
                half: at(0.5, 0.2, 1.1, "no difference seen"),
                twice: at(0.6, 0.55, 0.65, "B is lower"),
            }],
        };
        assert_eq!(headline.deciding().count(), 0);
        assert_eq!(headline.within_noise(), 1);
    }

    #[test]
    fn an_experiment_that_was_measured_again_replaces_what_was_kept() {
        let kept = Kept::committed().unwrap();
        let mut again = kept.experiments[1].clone();
        again.seeds += 1;
        let other = Varied {
            experiment: "selftest".to_owned(),
            ..again.clone()
        };
        let both = vec![other.clone(), again.clone()];
        let replaced = kept.clone().replaced_by(Kept { experiments: both });
        let mut expected = kept.experiments;
        expected[1] = again;
        expected.push(other);
        assert_eq!(replaced.experiments, expected);
    }

    #[test]
    fn another_price_gives_another_hash() {
        let hash = |machine| hash_of_prices(machine).unwrap();
        assert_eq!(hash("grace-72"), hash("grace-72"));
        assert_ne!(hash("grace-72"), hash("grace-72@word.own=200"));
        is_fitted("grace-72", "work.nothing").unwrap_err();
        assert!(is_fitted("epyc-9654-2s", "work.fault").unwrap());
        assert!(!is_fitted("grace-72+kasan", "work.fault").unwrap());
    }
}
