//! The declaration of an experiment, and the one driver that runs all declarations.
//!
//! A declaration is data where possible: names, pairs, published values. Functions appear only for
//! the workload, the metrics, the tables and the finding. The driver checks every name before the
//! first run; a wrong name is an error that offers the nearest names.
//!
//! The submodule `results` looks up samples by design and metric. `cards` makes the table of
//! verdicts at each cost card, `finding` the conclusion, `headline` the metrics with which a report
//! begins, and `targets` the table of the targets for
//! our designs. `published` has the published figures, and `check` checks the names in a
//! declaration.

pub(super) mod cards;
mod check;
mod finding;
mod headline;
mod published;
mod results;
mod targets;

use std::fmt::{Debug, Display};

use plimsoll_sim::profile::{Card, Profile};

pub(super) use self::cards::Cards;
pub(super) use self::finding::{Finding, effect, level};
pub(super) use self::headline::{Headline, Headlines, LINUX_PATCH_OURS};
pub(super) use self::published::{Figure, Published, Reported, Unmeasured};
pub(super) use self::results::Results;
pub(super) use self::targets::{Target, targets};
use super::Experiment;
use crate::catalog::designs::{self, Named};
use crate::error::Error;
use crate::measure::comparison::{Comparison, Sample};
use crate::measure::metric::Metric;
use crate::measure::stats::SEEDS_MIN;
use crate::report::misses::Beside;
use crate::report::{Report, Table};
use crate::run::cases::Case;
use crate::run::options::{Determinism, Effort, Options};
use crate::run::progress::Progress;
use crate::sensitivity::decided;

/// Two designs that are compared: A and B.
pub(super) type Pair = (&'static str, &'static str);

/// As B in a [`Pair`], this stands for every design except A.
pub(super) const OTHERS: &str = "*";

/// The declaration of an experiment. `S` is the type of its workload on one machine, `K` that of
/// the data that are kept of a run in addition to the run's sample, and `D` that of its designs.
pub(super) struct Declaration<S: 'static, K: 'static = (), D: 'static = Named> {
    /// The name that `plimsoll reproduce` accepts.
    pub(super) name: &'static str,
    /// The question in one line.
    pub(super) question: &'static str,
    /// The metrics with which a report begins.
    pub(super) answer: Headlines,
    /// The machines to run on. A quick run uses only the first.
    pub(super) machines: &'static [&'static str],
    /// The clock that measures all times.
    pub(super) clock: Clock,
    /// Makes the designs. All other fields use the names of these designs.
    pub(super) designs: fn() -> Result<Vec<D>, Error>,
    /// The pairs of designs that get verdicts.
    pub(super) verdicts: &'static [Pair],
    /// The published figures.
    pub(super) published: &'static [Published],
    /// Builds the workload for a machine.
    pub(super) setup: fn(&str, Card, Effort) -> Result<S, Error>,
    /// Every metric that a run measures.
    pub(super) metrics: Metrics<S>,
    /// The metrics that have rows in the report; all metrics if `None`.
    pub(super) shown: Option<Metrics<S>>,
    /// The metrics that get verdicts; all metrics if `None`.
    pub(super) compared: Option<Metrics<S>>,
    /// Runs one design on one seed.
    pub(super) measure: fn(&S, &Case<D>) -> (Sample, K),
    /// The table of verdicts at each cost card. `None` if the report has no such table, or if
    /// `conclude` makes it.
    pub(super) cards: Option<&'static Cards<S, K>>,
    /// Builds the tables and the finding from all runs on one machine.
    pub(super) conclude: Conclude<S, K, D>,
}

type Metrics<S> = fn(&S) -> Vec<Metric>;
type Conclude<S, K, D> = fn(&Run<'_, S, K, D>) -> Result<(Vec<Table>, Finding), Error>;

/// A metric, and the function that reads its value from a run.
pub(super) type Reading<T> = (Metric, fn(&T) -> f64);

/// Makes a list of [`Reading`]s from `readings!(|run| { metric => value })`, where `value` is an
/// expression that may use `run`.
macro_rules! readings {
    (|$run:ident| { $($metric:expr => $value:expr),+ $(,)? }) => {
        &[$(($metric, |$run| $value)),+]
    };
}
pub(super) use readings;

/// The metrics of `readings`.
pub(super) fn metrics_of<T>(readings: &[Reading<T>]) -> Vec<Metric> {
    readings.iter().map(|(metric, _)| metric.clone()).collect()
}

/// The metrics of `readings`, each with its value in `run`.
pub(super) fn read<T>(readings: &[Reading<T>], run: &T) -> Vec<(Metric, f64)> {
    let value = |(metric, value): &Reading<T>| (metric.clone(), value(run));
    readings.iter().map(value).collect()
}

/// The clock that measures an experiment's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The clock of the simulated machine. Two runs of one case are identical.
    Virtual,
    /// The clock of this computer. Cases run one at a time, because two cases at once would slow
    /// each other down. Two runs of one case never give equal times.
    Real,
}

/// All runs of an experiment on one machine.
pub(super) struct Run<'a, S: 'static, K: 'static = (), D: 'static = Named> {
    declared: &'a Declaration<S, K, D>,
    pub(super) machine: &'static str,
    pub(super) card: Card,
    pub(super) options: &'a Options,
    pub(super) progress: &'a Progress,
    /// The workload on this machine.
    pub(super) scene: S,
    pub(super) designs: Vec<D>,
    /// The samples of every design on every seed.
    pub(super) results: Results,
    /// For each design, what was kept of its run with the first seed in addition to the run's
    /// sample.
    pub(super) kept: Vec<K>,
}

/// Makes a design for each of `names`, which are variants joined by `+`. The design has these
/// variants, and the variants of `base` for all other mechanisms. Its name is the element of
/// `names`, without `base`.
pub(super) fn variants_of<N: Into<String>>(
    base: &str,
    names: impl IntoIterator<Item = N>,
) -> Result<Vec<Named>, Error> {
    let named = |name: N| {
        let name = name.into();
        let design = designs::find(&format!("{base}+{name}"))?.design;
        Ok(Named { name, design })
    };
    names.into_iter().map(named).collect()
}

impl<S, K, D> Experiment for Declaration<S, K, D>
where
    S: Sync,
    K: Send,
    D: Clone + Debug + Display + Sync,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn question(&self) -> &'static str {
        self.question
    }

    fn run(&self, options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
        let machines = self.machines_of(options.effort).iter();
        machines
            .map(|machine| self.report(machine, options, progress))
            .collect()
    }

    fn check(&self) -> Result<(), Error> {
        self.check_names()
    }

    fn figures(&self) -> Result<Vec<Beside>, Error> {
        self.declared_figures()
    }

    fn machines(&self) -> &'static [&'static str] {
        self.machines
    }

    fn is_simulated(&self) -> bool {
        self.clock == Clock::Virtual
    }

    fn design_names(&self) -> Result<Vec<String>, Error> {
        Ok((self.designs)()?.iter().map(D::to_string).collect())
    }

    fn quick_metrics(&self, machine: &str) -> Result<Vec<String>, Error> {
        let scene = (self.setup)(machine, Card::Mid, Effort::Quick)?;
        let metrics = (self.metrics)(&scene).into_iter();
        Ok(metrics.map(|metric| metric.name.into_owned()).collect())
    }

    fn reported_metrics(&self, effort: Effort) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        for machine in self.machines_of(effort) {
            let scene = (self.setup)(machine, Card::Mid, effort)?;
            let shown = self.shown.unwrap_or(self.metrics)(&scene);
            let compared = self.compared.unwrap_or(self.metrics)(&scene);
            for metric in shown.into_iter().chain(compared) {
                let name = metric.name.into_owned();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    fn compare_some(
        &self,
        machine: &str,
        designs: &[&str],
        options: &Options,
    ) -> Result<Comparison, Error> {
        let card = options.card.unwrap_or(Card::Mid);
        let scene = (self.setup)(machine, card, options.effort)?;
        let mut chosen = (self.designs)()?;
        chosen.retain(|design| designs.contains(&&*design.to_string()));
        let (results, _) = self.compare(&scene, &chosen, options, &Progress::hidden())?;
        Ok(results.comparison().clone())
    }
}

impl<S, K, D> Declaration<S, K, D>
where
    S: Sync,
    K: Send,
    D: Clone + Debug + Display + Sync,
{
    /// The machines of a run with `effort`.
    fn machines_of(&self, effort: Effort) -> &'static [&'static str] {
        match effort {
            Effort::Full => self.machines,
            Effort::Quick => &self.machines[..1],
        }
    }

    fn report(
        &self,
        machine: &'static str,
        options: &Options,
        progress: &Progress,
    ) -> Result<Report, Error> {
        self.check_names()?;
        let card = options.card.unwrap_or(Card::Mid);
        let (scene, designs) = (
            (self.setup)(&options.on(machine), card, options.effort)?,
            (self.designs)()?,
        );
        progress.start_on(self.name, machine, "");
        let (results, kept) = self.compare(&scene, &designs, options, progress)?;
        results.assert_measured(&(self.metrics)(&scene));
        let run = Run {
            declared: self,
            machine,
            card,
            options,
            progress,
            scene,
            designs,
            results,
            kept,
        };
        let runs = run.results.comparison();
        let of = options.on(machine);
        let mut report = Report::new(self.name, &of, card, runs.seeds(), runs.hash());
        let shown = self.shown.unwrap_or(self.metrics)(&run.scene);
        report.rows = runs.rows(|design, metric| self.published(machine, design, metric));
        report.rows.retain(|row| shown.contains(&row.metric));
        let compared = self.compared.unwrap_or(self.metrics)(&run.scene);
        let pairs = self.verdicts.iter();
        let verdicts = pairs.flat_map(|pair| run.results.verdicts(*pair, &compared));
        report.verdicts = verdicts.collect();
        let (tables, finding) = (self.conclude)(&run)?;
        report.tables = tables;
        report.finding = finding.to_string();
        let metrics = (self.metrics)(&run.scene);
        report.figures = self.figures_on(machine, &metrics, Some(&run.results));
        let sentence = finding.answer().to_owned();
        report.answer = self.answered(sentence, &metrics, &run.results, &report.figures);
        report.is_simulated = self.clock == Clock::Virtual;
        report.decided = decided::of(self.name, machine)?;
        Ok(report)
    }

    fn compare(
        &self,
        scene: &S,
        designs: &[D],
        options: &Options,
        progress: &Progress,
    ) -> Result<(Results, Vec<K>), Error> {
        let timed;
        let options = match self.clock {
            Clock::Virtual => options,
            Clock::Real => {
                timed = Options {
                    jobs: options.jobs.alone(),
                    determinism: Determinism::Trust,
                    ..options.clone()
                };
                &timed
            }
        };
        let run = |case: &Case<D>| (self.measure)(scene, case);
        let (comparison, kept) = Comparison::run_keeping(designs, options, progress, run)?;
        Ok((Results::new(comparison), kept))
    }

    fn published(&self, machine: &str, design: &str, metric: &Metric) -> Option<f64> {
        let of_machine = self.published.iter().filter(|of| of.machine == machine);
        let figures = of_machine.flat_map(|of| of.figures);
        let mut of_metric = figures.filter(|figure| figure.metric == metric.name);
        of_metric.find_map(|figure| figure.values.level(design))
    }
}

impl<S, K, D> Run<'_, S, K, D>
where
    S: Sync,
    K: Send,
    D: Clone + Debug + Display + Sync,
{
    /// Each design, with what was kept of its run with the first seed.
    pub(super) fn each(&self) -> impl Iterator<Item = (&D, &K)> {
        self.designs.iter().zip(&self.kept)
    }

    /// Loads the built-in machine `machine`, with disturbances only if the options ask for them.
    pub(super) fn load(&self, machine: &str, card: Card) -> Result<Profile, Error> {
        Ok(Profile::load(&self.options.on(machine), card)?)
    }

    /// The published value for a design and a metric on this machine.
    pub(super) fn published(&self, design: &str, metric: &Metric) -> Option<f64> {
        self.declared.published(self.machine, design, metric)
    }

    /// The designs with these names, in the order of their declaration.
    pub(super) fn named(&self, names: &[&str]) -> Vec<D> {
        let designs = self.designs.iter();
        let wanted = designs.filter(|design| names.contains(&&*design.to_string()));
        wanted.cloned().collect()
    }

    /// Runs `designs` on another workload, for a table beside the main one. Runs at most as many of
    /// the seeds as a verdict needs. The progress bar calls this workload `about`. Returns the
    /// results, and for each design what was kept of its run with the first seed.
    pub(super) fn further(
        &self,
        about: &str,
        scene: &S,
        designs: &[D],
    ) -> Result<(Results, Vec<K>), Error> {
        self.further_on_few(about, scene, designs, SEEDS_MIN)
    }

    /// As [`Run::further`], but with only the first `seeds` of the seeds. With fewer seeds than a
    /// verdict needs, the table can show only medians.
    pub(super) fn further_on_few(
        &self,
        about: &str,
        scene: &S,
        designs: &[D],
        seeds: usize,
    ) -> Result<(Results, Vec<K>), Error> {
        let mut options = self.options.clone();
        options.seeds.truncate(seeds);
        let (name, machine) = (self.declared.name, self.machine);
        self.progress.start_on(name, machine, about);
        self.declared
            .compare(scene, designs, &options, self.progress)
    }

    /// Returns whether the report also shows verdicts at other cost cards. A full report does,
    /// unless the user has chosen a card.
    pub(super) fn has_cards(&self) -> bool {
        self.options.effort == Effort::Full && self.options.card.is_none()
    }
}

#[cfg(test)]
mod tests;
