//! Published figures beside ours: the types, and the rule that says whether two figures match.
//!
//! An experiment declares published figures, and its runs measure ours. [`page`] makes the page
//! `docs/misses.md` from both, [`stored`] keeps the measured values at the end of that page, and
//! [`table`](self::table()) is the short table at the end of `plimsoll reproduce`.

mod basis;
mod counts;
pub mod page;
pub mod stored;
mod thread;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use self::basis::Basis;
pub use self::counts::Counts;
pub use self::thread::Thread;
use super::value::{NOTHING, human, ratio_of};
use super::{Table, tabulate};
use crate::measure::metric::Unit;
use crate::measure::stats::Estimate;

/// Two values or ratios match if the larger is at most this many times the smaller.
pub const FACTOR: f64 = 2.0;
/// If a published ratio differs from 1 by less than this number, the patch counts as having no
/// effect. Even a bad simulation is likely to show no effect. So for such a figure the rule is
/// stricter than [`FACTOR`] (see [`Beside::agreement`]).
pub const NO_CHANGE: f64 = 0.05;
/// The largest change, in percent, that counts as no change. In the mailing-list thread on batched
/// frees, this is the largest variation between runs.
pub const EQUAL_PERCENT: f64 = 0.56;

/// The published values of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// One value of one design, or two values: before the patch and with the patch.
    Levels(Vec<f64>),
    /// Only the change that the patch makes was published, in percent.
    ChangePercent(f64),
}

/// The experiment, machine, metric and designs with which we measure our figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The experiment.
    pub experiment: Cow<'static, str>,
    /// The simulated machine.
    pub machine: Cow<'static, str>,
    /// The metric.
    pub metric: String,
    /// The designs that we measure. If values were published, these are the designs to which the
    /// values belong. If only a change was published, they are Linux's design and the patch's
    /// design.
    pub designs: Vec<Cow<'static, str>>,
}

/// The values that we measured for a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    /// The median with each design, in the order of [`Place::designs`].
    pub values: Vec<f64>,
    /// The ratio of the second design's value to the first design's value: the median over the
    /// seeds, with its interval. `None` if there is only one design.
    pub ratio: Option<Estimate>,
}

/// A published figure beside ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// The mailing-list thread in which the figure was published.
    pub thread: Thread,
    /// Where in the thread the figure was published, and on which machine it was measured.
    pub source: Cow<'static, str>,
    /// The quantity that was published, in a few words.
    pub what: Cow<'static, str>,
    /// The unit of the values.
    pub unit: Unit,
    /// The published values.
    pub published: Values,
    /// How our figure depends on the published figure. This decides whether an agreement of the two
    /// figures proves anything.
    pub basis: Basis,
    /// Where our figure is measured. `None` if no experiment measures it.
    pub place: Option<Place>,
    /// The cause of the difference between the published figure and ours, or the reason why we have
    /// no figure.
    pub why: Cow<'static, str>,
    /// Our figure. `None` if it was not measured.
    pub ours: Option<Ours>,
}

/// Says whether a published figure and ours agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The ratios, or the single values, match: the larger is at most [`FACTOR`] times the smaller.
    /// For published ratios near 1, the rule is stricter (see [`Beside::agreement`]).
    Match,
    /// The ratios, or the single values, differ too much to be an [`Agreement::Match`].
    Miss,
    /// The published change is below [`NO_CHANGE`]. The interval of our change is too wide to say
    /// whether the patch changes anything in our runs.
    Open,
    /// Our figure was not measured.
    NotMeasured,
}

impl Agreement {
    /// The word that a report shows for this value.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Miss => "miss",
            Self::Open => "open",
            Self::NotMeasured => "not measured",
        }
    }
}

impl Beside {
    /// The published ratio of the patch to Linux. `None` if only one value was published.
    #[must_use]
    pub fn published_ratio(&self) -> Option<f64> {
        match &self.published {
            Values::Levels(levels) => match levels[..] {
                [linux, patch] => Some(ratio(linux, patch)),
                _ => None,
            },
            Values::ChangePercent(percent) => Some(1.0 + percent / 100.0),
        }
    }

    /// Returns the median ratio, in our runs, of the value with the patch to the value of Linux
    /// without the patch.
    #[must_use]
    pub fn our_ratio(&self) -> Option<f64> {
        let ours = self.ours.as_ref()?;
        ours.ratio.map(|ratio| ratio.median)
    }

    /// For each published level, our value divided by the published value.
    #[must_use]
    pub fn levels_off(&self) -> Vec<f64> {
        let ours = self.ours.as_ref();
        ours.map_or_else(Vec::new, |ours| self.levels_off_by(ours))
    }

    fn levels_off_by(&self, ours: &Ours) -> Vec<f64> {
        match &self.published {
            Values::Levels(published) => {
                let pairs = published.iter().zip(&ours.values);
                pairs.map(|(theirs, ours)| ratio(*theirs, *ours)).collect()
            }
            Values::ChangePercent(_) => Vec::new(),
        }
    }

    /// Says whether the published figure and ours agree. The function compares the ratios of the
    /// patch to Linux. If only one value was published, it compares this value with ours.
    ///
    /// If the published change is below [`NO_CHANGE`], the figure is
    ///
    /// * a miss if one of our values is not within [`FACTOR`] of the published one, or if the whole
    ///   interval of our change is beyond [`NO_CHANGE`];
    /// * a match if that interval lies within ±[`EQUAL_PERCENT`];
    /// * open otherwise.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        let ours = self.ours.as_ref();
        ours.map_or(Agreement::NotMeasured, |ours| self.agreement_with(ours))
    }

    /// The agreement that there would be if our value for the patch were equal to our value for
    /// Linux, that is, if the patch had no effect in our runs. If even this would be a match, a
    /// match of our figure says nothing about the patch. `None` if our figure is not a ratio, or
    /// was not measured.
    #[must_use]
    pub fn agreement_without_effect(&self) -> Option<Agreement> {
        let ours = self.ours.as_ref().filter(|ours| ours.ratio.is_some())?;
        let unchanged = Ours {
            values: vec![ours.values[0]; ours.values.len()],
            ratio: Some(Estimate {
                median: 1.0,
                low: 1.0,
                high: 1.0,
            }),
        };
        Some(self.agreement_with(&unchanged))
    }

    fn agreement_with(&self, ours: &Ours) -> Agreement {
        let within = match (self.published_ratio(), ours.ratio, &self.published) {
            (Some(theirs), Some(ratio), _) if (theirs - 1.0).abs() < NO_CHANGE => {
                return self.agreement_on_no_change(ours, &ratio);
            }
            (Some(theirs), Some(ratio), _) => near(theirs, ratio.median),
            (_, _, Values::Levels(levels)) => near(levels[0], ours.values[0]),
            (_, _, Values::ChangePercent(_)) => return Agreement::NotMeasured,
        };
        if within {
            Agreement::Match
        } else {
            Agreement::Miss
        }
    }

    fn agreement_on_no_change(&self, ours: &Ours, ratio: &Estimate) -> Agreement {
        let (low, high) = (ratio.low - 1.0, ratio.high - 1.0);
        let equal = EQUAL_PERCENT / 100.0;
        let is_level_off = self.levels_off_by(ours).into_iter().any(is_off);
        if is_level_off || low > NO_CHANGE || high < -NO_CHANGE {
            Agreement::Miss
        } else if low >= -equal && high <= equal {
            Agreement::Match
        } else {
            Agreement::Open
        }
    }

    /// Returns whether one of our values is more than [`FACTOR`] times the published value, or less
    /// than the published value divided by [`FACTOR`].
    #[must_use]
    pub fn is_level_off(&self) -> bool {
        self.levels_off().into_iter().any(is_off)
    }
}

/// Returns `b` divided by `a`, or 1 if the two are equal.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { b / a }
}

/// Returns whether neither number is more than [`FACTOR`] times the other.
fn near(one: f64, other: f64) -> bool {
    let off = ratio(one, other);
    (1.0 / FACTOR..=FACTOR).contains(&off)
}

/// Returns whether `off`, the quotient of two values, is more than [`FACTOR`] or less than 1 /
/// [`FACTOR`].
fn is_off(off: f64) -> bool {
    !near(1.0, off)
}

/// The published values as text, such as `872 → 117`, or `-0.0011 %` for a change.
pub(super) fn published_text(figure: &Beside) -> String {
    match &figure.published {
        Values::Levels(levels) => levels_text(levels, figure.unit),
        Values::ChangePercent(percent) => format!("{percent:+} %"),
    }
}

/// Our values as text, in the same form as the published values in [`published_text`].
pub(super) fn our_text(figure: &Beside) -> String {
    match (&figure.ours, &figure.published) {
        (None, _) => NOTHING.to_owned(),
        (Some(ours), Values::Levels(_)) => levels_text(&ours.values, figure.unit),
        (Some(ours), Values::ChangePercent(_)) => ours.ratio.map_or_else(
            || NOTHING.to_owned(),
            |ratio| format!("{:+.2} %", 100.0 * (ratio.median - 1.0)),
        ),
    }
}

fn levels_text(levels: &[f64], unit: Unit) -> String {
    let texts: Vec<String> = levels.iter().map(|level| human(*level, unit)).collect();
    texts.join(" → ")
}

/// A ratio as text, or a dash.
pub(super) fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOTHING.to_owned(), |ratio| ratio_of(1.0, ratio))
}

/// Returns each mailing-list thread with its figures, in the order of `figures`.
pub(super) fn by_thread(figures: &[Beside]) -> impl Iterator<Item = (Thread, Vec<&Beside>)> {
    let of = |thread| figures.iter().filter(move |figure| figure.thread == thread);
    Thread::ALL
        .into_iter()
        .map(move |thread| (thread, of(thread).collect()))
}

/// Says in one word how well the published figure would agree with ours if the patch had no effect
/// in our runs. Returns a dash if there is no such word.
pub(super) fn without_effect_text(figure: &Beside) -> &'static str {
    let agreement = figure.agreement_without_effect();
    agreement.map_or(NOTHING, Agreement::word)
}

/// Makes the table at the end of a run of all experiments. Each figure has one line.
#[must_use]
pub fn table(figures: &[Beside]) -> Table {
    let rows: Vec<&Beside> = by_thread(figures).flat_map(|(_, of)| of).collect();
    let counts = Counts::of(&rows);
    tabulate!(
        "Published figures, and ours",
        format!(
            "{} figures: {} match, {} miss, {} open, {} not measured. A match is within a factor \
             of {FACTOR} in the ratio of the patch to Linux, or in the value if only one was \
             published. If the published change is below {} %, the interval of ours must lie \
             within ±{EQUAL_PERCENT} %, or the figure is open; the values must match too. `no \
             effect`: the verdict if the patch had no effect in our runs. {} of the matches remain \
             if we leave out those that a patch without effect would reach, too, and those that \
             are fitted or follow from how the patch is built. docs/misses.md has the causes.",
            counts.all,
            counts.matches,
            counts.misses,
            counts.open,
            counts.not_measured,
            100.0 * NO_CHANGE,
            counts.telling,
        ),
        &rows,
        |figure| {
            "thread" => figure.thread.name(),
            "what" => figure.what,
            "published" => published_text(figure),
            "ours" => our_text(figure),
            "ratio" => ratio_text(figure.published_ratio()),
            "ours " => ratio_text(figure.our_ratio()),
            "no effect" => without_effect_text(figure),
            "verdict" => figure.agreement().word(),
        }
    )
}

/// Figures for the tests in this folder: a match, a miss with two published values, a figure with a
/// single published value, a published change, and a figure that no experiment measures.
#[cfg(test)]
pub(crate) fn sample() -> Vec<Beside> {
    let place = |designs: &[&'static str]| {
        Some(Place {
            experiment: "drain".into(),
            machine: "bergamo-176".into(),
            metric: "waits".to_owned(),
            designs: designs.iter().map(|design| (*design).into()).collect(),
        })
    };
    let ours = |values: &[f64], ratio: Option<f64>| {
        Some(Ours {
            values: values.to_vec(),
            ratio: ratio.map(|median| Estimate {
                median,
                low: median * 0.9,
                high: median * 1.1,
            }),
        })
    };
    let levels = |levels: &[f64]| Values::Levels(levels.to_vec());
    let figure = |what: &'static str, thread, published, place, ours| Beside {
        thread,
        source: "the cover letter, 176 CPUs".into(),
        what: what.into(),
        unit: Unit::Count,
        published,
        basis: Basis::Independent,
        place,
        why: "The cause.".into(),
        ours,
    };
    let two = ["linux", "patch"];
    vec![
        figure(
            "one",
            Thread::Counters,
            levels(&[80.0]),
            place(&["tree"]),
            ours(&[170.0], None),
        ),
        figure(
            "two",
            Thread::Stagger,
            levels(&[872.0, 117.0]),
            place(&two),
            ours(&[2546.0, 338.0], Some(0.133)),
        ),
        figure(
            "three",
            Thread::Stagger,
            levels(&[200.0, 100.0]),
            place(&two),
            ours(&[50.0, 50.0], Some(1.01)),
        ),
        figure(
            "four",
            Thread::Batching,
            Values::ChangePercent(-0.0011),
            place(&two),
            ours(&[1e6, 9e5], Some(0.9)),
        ),
        figure("five", Thread::Batching, levels(&[12.0, 0.0]), None, None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_judged_by_their_ratio_and_single_values_by_their_level() {
        let figures = sample();
        let words: Vec<&str> = figures
            .iter()
            .map(|figure| figure.agreement().word())
            .collect();
        assert_eq!(words, ["miss", "match", "miss", "open", "not measured"]);
        assert!(figures[1].is_level_off(), "the match is of the ratio alone");
    }

    #[test]
    fn no_change_needs_a_narrow_interval_and_the_values() {
        let mut figure = sample().remove(3);
        let mut judge = |published: &Values, values: &[f64], [low, high]: [f64; 2]| {
            figure.published = published.clone();
            figure.ours = Some(Ours {
                values: values.to_vec(),
                ratio: Some(Estimate {
                    median: f64::midpoint(low, high),
                    low,
                    high,
                }),
            });
            figure.agreement().word()
        };
        let change = Values::ChangePercent(-0.0011);
        let levels = Values::Levels(vec![100.0, 101.0]);
        for (interval, expected) in [
            ([0.995, 1.005], "match"),
            ([0.97, 1.039], "open"),
            ([1.01, 1.02], "open"),
            ([0.8, 0.9], "miss"),
            ([1.06, 1.2], "miss"),
        ] {
            assert_eq!(judge(&change, &[100.0, 100.0], interval), expected);
            assert_eq!(judge(&levels, &[60.0, 60.0], interval), expected);
            assert_eq!(judge(&levels, &[40.0, 40.0], interval), "miss");
        }
    }

    #[test]
    fn a_patch_without_effect_matches_near_ratios_and_misses_far_ones() {
        let figures = sample();
        let words: Vec<&str> = figures.iter().map(without_effect_text).collect();
        // The second to the fourth figure have the published ratios 0.134, 0.5 and almost 1. The
        // first figure has no ratio, and the fifth is not measured.
        assert_eq!(words, [NOTHING, "miss", "match", "match", NOTHING]);
        let mut level_off = sample().remove(3);
        level_off.published = Values::Levels(vec![3e6, 3e6]);
        assert_eq!(without_effect_text(&level_off), "miss");
    }

    #[test]
    fn nothing_against_nothing_matches_and_something_against_nothing_does_not() {
        let mut figure = sample().remove(2);
        figure.published = Values::Levels(vec![57.6, 0.0]);
        for (ratio, expected) in [(0.0, Agreement::Match), (0.01, Agreement::Miss)] {
            let ours = figure.ours.as_mut().expect("measured");
            ours.ratio = ours.ratio.map(|measured| Estimate {
                median: ratio,
                ..measured
            });
            assert_eq!(figure.agreement(), expected);
        }
    }

    #[test]
    fn the_table_has_the_figures_thread_by_thread() {
        let table = table(&sample());
        let whats: Vec<&str> = table.rows.iter().map(|row| &*row[1]).collect();
        assert_eq!(whats, ["two", "three", "four", "five", "one"]);
        insta::assert_snapshot!(table.rows[2].join(" | "), @"batching | four | -0.0011 % | -10.00 % | 1.000 | 0.900 | match | open");
        assert!(
            table
                .note
                .starts_with("5 figures: 1 match, 2 miss, 1 open, 1 not measured.")
        );
        assert!(table.note.contains(" 1 of the matches remain "));
    }
}
