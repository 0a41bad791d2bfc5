//! The published figures of a declaration, and their rows beside what the runs measured.

use std::fmt::{Debug, Display};

use plimsoll_sim::profile::Card;

use super::{Declaration, Results};
use crate::error::Error;
use crate::measure::metric::{Metric, Unit};
use crate::report::misses::{Basis, Beside, Ours, Place, Thread, Values};
use crate::run::options::Effort;

/// Figures that a mailing-list thread published for one machine.
pub(in crate::experiment) struct Published {
    /// The simulated machine that stands for the machine on which the figures were measured.
    pub(in crate::experiment) machine: &'static str,
    pub(in crate::experiment) thread: Thread,
    /// Where in the thread the figures were published, and what was measured on which machine.
    pub(in crate::experiment) source: &'static str,
    pub(in crate::experiment) figures: &'static [Figure],
}

/// One published figure, and the row of our report to which it belongs.
pub(in crate::experiment) struct Figure {
    /// The quantity that was published, in a few words.
    pub(in crate::experiment) what: &'static str,
    /// The metric of the row.
    pub(in crate::experiment) metric: &'static str,
    pub(in crate::experiment) values: Reported,
    pub(in crate::experiment) basis: Basis,
    /// The cause of the difference between this figure and ours: what the model lacks, or another
    /// explanation.
    pub(in crate::experiment) why: &'static str,
}

/// The values of a figure. They are in the metric's unit, but a change is in percent.
#[derive(Clone, Copy)]
pub(in crate::experiment) enum Reported {
    /// The value with one design.
    One(&'static str, f64),
    /// The values with Linux's design and with the patch's.
    Pair([(&'static str, f64); 2]),
    /// The change from Linux's design to the patch's, in percent.
    ChangePercent([&'static str; 2], f64),
}

impl Reported {
    /// The designs to which the values belong. If there are two designs, Linux's is first.
    pub(super) fn designs(&self) -> Vec<&'static str> {
        match self {
            Self::One(design, _) => vec![*design],
            Self::Pair(pair) => pair.iter().map(|(design, _)| *design).collect(),
            Self::ChangePercent(designs, _) => designs.to_vec(),
        }
    }

    /// The value that was published for `design`.
    pub(in crate::experiment) fn level(&self, design: &str) -> Option<f64> {
        let of = |pairs: &[(&str, f64)]| {
            let mut found = pairs.iter().filter(|(of, _)| *of == design);
            found.next().map(|(_, value)| *value)
        };
        match self {
            Self::One(of_design, value) => of(&[(of_design, *value)]),
            Self::Pair(pair) => of(pair),
            Self::ChangePercent(..) => None,
        }
    }

    /// The published change, if only a change was published.
    pub(in crate::experiment) const fn percent(&self) -> Option<f64> {
        match self {
            Self::ChangePercent(_, percent) => Some(*percent),
            Self::One(..) | Self::Pair(_) => None,
        }
    }

    fn values(&self) -> Values {
        match self {
            Self::One(_, value) => Values::Levels(vec![*value]),
            Self::Pair(pair) => Values::Levels(pair.iter().map(|(_, value)| *value).collect()),
            Self::ChangePercent(_, percent) => Values::ChangePercent(*percent),
        }
    }
}

/// A published figure that no experiment measures.
pub(in crate::experiment) struct Unmeasured {
    pub(in crate::experiment) thread: Thread,
    /// As in [`Published`].
    pub(in crate::experiment) source: &'static str,
    pub(in crate::experiment) what: &'static str,
    pub(in crate::experiment) unit: Unit,
    /// One value, or two: the first with Linux, the second with the patch.
    pub(in crate::experiment) values: &'static [f64],
    /// The reason why nothing is measured.
    pub(in crate::experiment) why: &'static str,
}

impl Unmeasured {
    pub(in crate::experiment) fn beside(&self) -> Beside {
        Beside {
            thread: self.thread,
            source: self.source.into(),
            what: self.what.into(),
            unit: self.unit,
            published: Values::Levels(self.values.to_vec()),
            basis: Basis::Independent,
            place: None,
            why: self.why.into(),
            ours: None,
        }
    }
}

impl<S, K, D> Declaration<S, K, D>
where
    D: Debug + Display,
{
    /// The published figures, machine by machine, without the values that our runs measured.
    pub(super) fn declared_figures(&self) -> Result<Vec<Beside>, Error> {
        let mut figures = Vec::new();
        for machine in self.machines {
            if self.published.iter().all(|of| of.machine != *machine) {
                continue;
            }
            let scene = (self.setup)(machine, Card::Mid, Effort::Full)?;
            figures.extend(self.figures_on(machine, &(self.metrics)(&scene), None));
        }
        Ok(figures)
    }

    /// The figures that were published for `machine`. If `results` is given, each figure whose
    /// metric the runs have measured has our value beside it.
    pub(super) fn figures_on(
        &self,
        machine: &'static str,
        metrics: &[Metric],
        results: Option<&Results>,
    ) -> Vec<Beside> {
        let of_machine = self.published.iter().filter(|of| of.machine == machine);
        let figures = of_machine.flat_map(|of| of.figures.iter().map(move |it| (of, it)));
        let beside = |(of, figure): (&Published, &'static Figure)| {
            let metric = metrics.iter().find(|it| it.name == figure.metric);
            let designs = figure.values.designs();
            Beside {
                thread: of.thread,
                source: of.source.into(),
                what: figure.what.into(),
                unit: metric.map_or(Unit::Count, |metric| metric.unit),
                published: figure.values.values(),
                basis: figure.basis,
                ours: results
                    .zip(metric)
                    .and_then(|(it, metric)| ours(it, &designs, metric)),
                place: Some(Place {
                    experiment: self.name.into(),
                    machine: machine.into(),
                    metric: figure.metric.to_owned(),
                    designs: designs.into_iter().map(Into::into).collect(),
                }),
                why: figure.why.into(),
            }
        };
        figures.map(beside).collect()
    }
}

fn ours(results: &Results, designs: &[&str], metric: &Metric) -> Option<Ours> {
    results.has(metric).then(|| Ours {
        values: designs
            .iter()
            .map(|it| results.median(it, metric))
            .collect(),
        ratio: match designs {
            [linux, patch] => Some(results.compare((linux, patch), metric).ratio),
            _ => None,
        },
    })
}
