//! The measured values, in the form in which they are kept at the end of `docs/misses.md`.
//!
//! The page is made from the declared figures and from these values. So a test can make the page
//! again without running an experiment. The test fails if the committed page differs from the page
//! that the test makes.

use serde::{Deserialize, Serialize};

use super::{Beside, Ours};
use crate::error::Error;
use crate::measure::stats::Estimate;
use crate::report::Report;
use crate::sensitivity::kept::hash_of_prices;

/// The values that one report measured for its published figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// The experiment.
    pub experiment: String,
    /// The simulated machine.
    pub machine: String,
    /// The number of seeds.
    pub seeds: usize,
    /// The report's hash, as 16 hexadecimal digits.
    pub hash: String,
    /// The hash of the machine's prices ([`hash_of_prices`]). Empty if the machine has no prices.
    #[serde(default)]
    pub prices: String,
    /// The values of each figure, in the order of the declaration.
    pub figures: Vec<StoredFigure>,
}

/// The measured values of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredFigure {
    what: String,
    metric: String,
    designs: Vec<String>,
    values: Vec<f64>,
    /// The median, the low end and the high end of the ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ratio: Option<[f64; 3]>,
}

const BEGIN: &str = "<!-- measured";
const END: &str = "-->";

impl Stored {
    /// Collects all values that `report` measured for its figures.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let figure = |figure: &Beside| {
            let (place, ours) = figure.place.as_ref().zip(figure.ours.as_ref())?;
            Some(StoredFigure {
                what: figure.what.to_string(),
                metric: place.metric.clone(),
                designs: place.designs.iter().map(ToString::to_string).collect(),
                values: ours.values.clone(),
                ratio: ours
                    .ratio
                    .map(|ratio| [ratio.median, ratio.low, ratio.high]),
            })
        };
        Self {
            experiment: report.experiment.clone(),
            machine: report.machine.clone(),
            seeds: report.seeds.len(),
            hash: format!("{:016x}", report.hash),
            prices: hash_of_prices(&report.machine).unwrap_or_default(),
            figures: report.figures.iter().filter_map(figure).collect(),
        }
    }

    /// Returns whether the prices of the machine (the times of simulated steps) are still the same
    /// as when the report was made.
    #[must_use]
    pub fn has_prices_of_now(&self) -> bool {
        hash_of_prices(&self.machine).unwrap_or_default() == self.prices
    }

    /// The values of `metric` with Linux and with the patch, if one of the figures has both.
    #[cfg(test)]
    pub(crate) fn linux_and_patch(&self, metric: &str) -> Option<[f64; 2]> {
        let of_metric = self.figures.iter().filter(|figure| figure.metric == metric);
        let mut pairs = of_metric.filter_map(|figure| figure.values[..].try_into().ok());
        pairs.next()
    }

    /// Returns these values, rounded to 12 significant digits. A rounded value does not change when
    /// it is written, read, and written again.
    fn rounded(&self) -> Self {
        let mut rounded = self.clone();
        for figure in &mut rounded.figures {
            let ratio = figure.ratio.iter_mut().flatten();
            for value in figure.values.iter_mut().chain(ratio) {
                let text = format!("{value:.11e}");
                *value = text.parse().expect("a number that was just written");
            }
        }
        rounded
    }

    /// Reads the values that are stored at the end of `page`.
    ///
    /// # Errors
    /// If the page has no stored values, or they cannot be read.
    pub fn read(page: &str) -> Result<Vec<Self>, Error> {
        let kept = page.rsplit_once(BEGIN).map(|(_, kept)| kept);
        let kept = kept
            .and_then(|kept| kept.split_once(END))
            .map(|(kept, _)| kept);
        let kept = kept.ok_or_else(|| {
            Error::Invalid(format!(
                "the page does not end with `{BEGIN} … {END}`: {AGAIN}"
            ))
        })?;
        let lines = kept.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = |line| serde_json::from_str(line);
        lines.map(line).collect::<Result<_, _>>().map_err(|error| {
            Error::Invalid(format!(
                "what the page keeps cannot be read ({error}): {AGAIN}"
            ))
        })
    }
}

/// The text that stores the values of `stored` at the end of a page.
///
/// # Panics
/// Never: numbers and text can always be written as JSON.
#[must_use]
pub fn text(stored: &[Stored]) -> String {
    let line = |figure: &Stored| {
        let figure = figure.rounded();
        serde_json::to_string(&figure).expect("text and numbers always serialise")
    };
    let lines: Vec<String> = stored.iter().map(line).collect();
    format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"))
}

/// The part of error messages that says how to make the page `docs/misses.md` again.
pub const AGAIN: &str = "write it again with `plimsoll reproduce --misses docs/misses.md`";

/// Removes the stored values of figures that are no longer declared.
#[must_use]
pub fn still_declared(mut stored: Vec<Stored>, declared: &[Beside]) -> Vec<Stored> {
    for of in &mut stored {
        let whole = of.clone();
        let is_declared = |figure: &StoredFigure| {
            declared
                .iter()
                .any(|declaration| is_of(declaration, &whole, figure))
        };
        of.figures.retain(is_declared);
    }
    stored
}

/// Fills in our values in `declared`, from the stored values.
///
/// # Errors
/// If a stored figure is not declared, or is declared with other designs.
pub fn fill(declared: &mut [Beside], stored: &[Stored]) -> Result<(), Error> {
    for of in stored {
        for figure in &of.figures {
            let found = declared
                .iter_mut()
                .find(|declaration| is_of(declaration, of, figure));
            let found = found.ok_or_else(|| {
                Error::Invalid(format!(
                    "the page has a figure that is not declared, {:?} of {} on {}: {AGAIN}",
                    figure.what, of.experiment, of.machine
                ))
            })?;
            found.ours = Some(Ours {
                values: figure.values.clone(),
                ratio: figure
                    .ratio
                    .map(|[median, low, high]| Estimate { median, low, high }),
            });
        }
    }
    Ok(())
}

fn is_of(declared: &Beside, of: &Stored, figure: &StoredFigure) -> bool {
    declared.what == figure.what
        && declared.place.as_ref().is_some_and(|place| {
            place.experiment == of.experiment
                && place.machine == of.machine
                && place.metric == figure.metric
                && place.designs == figure.designs
        })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::Card;

    fn report() -> Report {
        let mut report = Report::new("drain", "bergamo-176", Card::Mid, &[1, 2], 7);
        report.figures = sample();
        report
    }

    #[test]
    fn what_is_kept_comes_back_and_stays_the_same_text() {
        let kept = text(&[Stored::of(&report())]);
        let stored = Stored::read(&format!("# Misses\n\n{kept}")).unwrap();
        assert_eq!(text(&stored), kept);
        let mut declared = sample();
        declared.iter_mut().for_each(|figure| figure.ours = None);
        fill(&mut declared, &stored).unwrap();
        for (filled, whole) in declared.iter().zip(sample()) {
            let ratio = |of: &Beside| of.our_ratio().map(|ratio| format!("{ratio:.9}"));
            assert_eq!(ratio(filled), ratio(&whole), "{}", whole.what);
            assert_eq!(filled.agreement(), whole.agreement(), "{}", whole.what);
        }
    }

    /// Declares one figure on two machines, and with two pairs of designs. Each declaration gets
    /// the values that were measured on its machine with its designs.
    #[test]
    fn figures_that_differ_only_by_machine_or_designs_keep_their_own_values() {
        let two = sample().remove(1);
        let of = |machine: &'static str, designs: &[&'static str], median: f64| {
            let mut figure = two.clone();
            let place = figure.place.as_mut().expect("it is measured");
            place.machine = machine.into();
            place.designs = designs.iter().map(|design| (*design).into()).collect();
            let ours = figure.ours.as_mut().expect("it was measured");
            ours.ratio = Some(Estimate {
                median,
                low: median / 2.0,
                high: median * 2.0,
            });
            figure
        };
        let figures = [
            of("bergamo-176", &["linux", "patch"], 0.25),
            of("bergamo-176", &["linux", "ours"], 0.5),
            of("turin-316", &["linux", "patch"], 2.0),
            of("turin-316", &["linux", "ours"], 4.0),
        ];
        let stored: Vec<Stored> = ["turin-316", "bergamo-176"]
            .map(|machine| {
                let mut report = Report::new("drain", machine, Card::Mid, &[1], 7);
                let here = |figure: &&Beside| {
                    figure
                        .place
                        .as_ref()
                        .is_some_and(|at| at.machine == machine)
                };
                report.figures = figures.iter().filter(here).rev().cloned().collect();
                Stored::of(&report)
            })
            .into();
        let mut declared = figures.to_vec();
        declared.iter_mut().for_each(|figure| figure.ours = None);
        fill(&mut declared, &Stored::read(&text(&stored)).unwrap()).unwrap();
        for (filled, figure) in declared.iter().zip(&figures) {
            assert_eq!(filled.ours, figure.ours, "{:?}", figure.place);
        }
    }

    #[test]
    fn what_is_not_declared_is_refused() {
        let stored = vec![Stored::of(&report())];
        let mut declared = sample();
        declared.remove(1);
        let left = still_declared(stored.clone(), &declared);
        assert_eq!(left[0].figures.len() + 1, stored[0].figures.len());
        fill(&mut declared, &left).unwrap();
        let error = fill(&mut declared, &stored).unwrap_err().to_string();
        assert!(error.contains("not declared, \"two\" of drain"), "{error}");
        for page in ["# Misses\n", "<!-- measured\n{\n-->"] {
            let error = Stored::read(page).unwrap_err();
            assert!(error.to_string().contains("--misses"), "{error}");
        }
    }
}
