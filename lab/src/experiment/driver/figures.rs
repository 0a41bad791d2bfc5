//! The published figures of an experiment, with the values that our runs measured beside them.

use crate::experiment::driver::results::Results;
use crate::measure::metric::{Metric, Unit};
use crate::report::misses::{Basis, Beside, Ours, Place, Thread, Values};

/// Figures that a mailing-list thread published for one machine.
pub(in crate::experiment) struct Published {
    /// The name, in the file, of the simulated machine that stands for the measured machine.
    pub(in crate::experiment) machine: String,
    pub(super) thread: Thread,
    /// Where in the mailing-list thread the figures are, the quantity that they measure, and the
    /// machine on which it was measured.
    pub(super) source: String,
    pub(in crate::experiment) figures: Vec<Figure>,
}

/// One published figure, and the row of our report to which it belongs.
pub(in crate::experiment) struct Figure {
    /// The quantity that was published, in a few words.
    pub(in crate::experiment) what: String,
    /// The metric in the row of our report.
    pub(in crate::experiment) metric: String,
    /// The designs to which the values belong. If there are two designs, Linux's is first.
    pub(in crate::experiment) designs: Vec<String>,
    /// Either one value for each design, in the unit of the metric, or the change in percent from
    /// Linux's design to the patch's design.
    pub(in crate::experiment) values: Values,
    pub(in crate::experiment) basis: Basis,
    /// The cause of the difference between the published figure and ours: a part that the model
    /// lacks, or another explanation.
    pub(super) why: String,
}

impl Figure {
    /// The value that was published for `design`.
    pub(in crate::experiment) fn level(&self, design: &str) -> Option<f64> {
        let nth = self.designs.iter().position(|of| of == design)?;
        match &self.values {
            Values::Levels(levels) => levels.get(nth).copied(),
            Values::ChangePercent(_) => None,
        }
    }

    /// The published change in percent, if only a change was published.
    pub(in crate::experiment) const fn percent(&self) -> Option<f64> {
        match self.values {
            Values::ChangePercent(percent) => Some(percent),
            Values::Levels(_) => None,
        }
    }
}

/// The published value of `metric` with `design` on `machine`.
pub(in crate::experiment) fn level(
    published: &[Published],
    machine: &str,
    design: &str,
    metric: &str,
) -> Option<f64> {
    let of_machine = published.iter().filter(|of| of.machine == machine);
    let figures = of_machine.flat_map(|of| &of.figures);
    let mut of_metric = figures.filter(|figure| figure.metric == metric);
    of_metric.find_map(|figure| figure.level(design))
}

/// The figures that were published for `machine`. If `results` is given, our value stands beside
/// each figure whose metric the runs have measured.
pub(super) fn on_machine(
    published: &[Published],
    experiment: &str,
    machine: &str,
    metrics: &[Metric],
    results: Option<&Results>,
) -> Vec<Beside> {
    let of_machine = published.iter().filter(|of| of.machine == machine);
    let figures = of_machine.flat_map(|of| of.figures.iter().map(move |figure| (of, figure)));
    let beside = |(of, figure): (&Published, &Figure)| {
        let metric = metrics.iter().find(|other| other.name == figure.metric);
        Beside {
            thread: of.thread,
            source: of.source.clone().into(),
            what: figure.what.clone().into(),
            unit: metric.map_or(Unit::Count, |metric| metric.unit),
            published: figure.values.clone(),
            basis: figure.basis,
            ours: results
                .zip(metric)
                .and_then(|(design, metric)| ours(design, &figure.designs, metric)),
            place: Some(Place {
                experiment: experiment.to_owned().into(),
                machine: machine.to_owned().into(),
                metric: figure.metric.clone(),
                designs: figure.designs.iter().cloned().map(Into::into).collect(),
            }),
            why: figure.why.clone().into(),
        }
    };
    figures.map(beside).collect()
}

fn ours(results: &Results, designs: &[String], metric: &Metric) -> Option<Ours> {
    results.has(metric).then(|| Ours {
        values: designs
            .iter()
            .map(|design| results.median(design, metric))
            .collect(),
        ratio: match designs {
            [linux, patch] => Some(results.compare((linux, patch), metric).ratio),
            _ => None,
        },
    })
}
