//! The experiments that files describe, and the driver that runs all of them.
//!
//! The file of an experiment has its question, machines, designs, comparisons, published figures
//! and the sentences of its answer. The file also names a workload. The Rust code of a workload is
//! a [`Code`]: it sets up a machine, measures a run, and makes the tables that need more than the
//! values of metrics. The reader looks up every name in the file before the first run.
//!
//! The submodule `read` reads a file into [`data`]. `numbers` has the numbers that a file gives for
//! the workload and the designs. `text` has the sentences with their fields, and `figures` has the
//! published figures. Workloads implement the interface in `code`, and the parts of a report use
//! the interface in `run`. `cards` makes the table of verdicts at each cost card (low, middle or
//! high prices). `results` looks up samples by design and metric, `finding` has the conclusion, and
//! `targets` makes the table of the targets for our designs.

pub(super) mod cards;
pub(super) mod code;
pub(super) mod data;
pub(super) mod figures;
mod finding;
pub(super) mod numbers;
pub(super) mod read;
mod results;
mod run;
mod targets;
#[cfg(test)]
mod tests;
pub(super) mod text;

use std::collections::BTreeMap;

use plimsoll_sim::profile::Card;

pub(super) use self::code::{Code, Part, Runs};
use self::data::{Data, OfMachine};
pub(super) use self::data::{Made, Tried, variants};
use self::finding::Finding;
pub(super) use self::numbers::{Number, Numbers};
pub(super) use self::results::Results;
pub(super) use self::run::Run;
pub(super) use self::targets::{Target, targets};
use super::Experiment;
use crate::catalog::machines::machine_at;
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::report::answer::{Answer, AnswerCell, AnswerRow, published_ratio};
use crate::report::misses::Beside;
use crate::report::{Report, Table};
use crate::run::aging::Memory;
use crate::run::cases::Case;
use crate::run::options::{Determinism, Effort, Options};
use crate::run::progress::Progress;
use crate::sensitivity::decided;

/// A metric, and the function that reads its value from a run.
pub(super) type Reading<T> = (Metric, fn(&T) -> f64);

/// Makes a list of [`Reading`]s from `readings!(|run| { metric => value })`, where `value` is an
/// expression that can use `run`.
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

/// The metrics of `readings`, each with the value that it has in `run`.
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

/// The machine and the numbers that determine the workload of a run.
pub(super) struct Setting<'a> {
    /// The name with which the machine is loaded. It includes the folder of a machine file, and the
    /// variants of the machine that the options choose.
    pub(super) machine: &'a str,
    pub(super) card: Card,
    /// The numbers that the experiment's file gives for the workload.
    pub(super) numbers: &'a Numbers,
    /// The state of memory when a run begins.
    pub(super) memory: Option<Memory>,
}

/// An experiment that a file describes.
pub(super) struct Filed<S: 'static, K: 'static = ()> {
    code: &'static Code<S, K>,
    data: Data,
}

impl<S: Sync, K: Send> Experiment for Filed<S, K> {
    fn name(&self) -> &str {
        &self.data.name
    }

    fn question(&self) -> &str {
        &self.data.question
    }

    fn takes_memory(&self) -> bool {
        self.code.takes_memory
    }

    fn outline(&self) -> Table {
        let data = &self.data;
        let designs: Vec<&str> = data.designs.iter().map(|of| of.name.as_str()).collect();
        let OfMachine { full, quick } = &data.numbers[0];
        let workload = format!("{}: {full}", self.code.workload);
        let cases = |effort, seeds: usize| {
            (self.machines_of(effort).len() * designs.len() * seeds).to_string()
        };
        let figures: usize = data.published.iter().map(|of| of.figures.len()).sum();
        Table::facts(
            &*data.name,
            capital(&data.question),
            &[
                ("machines", data.machines.join(", ")),
                ("workload", workload.trim_end_matches([':', ' ']).to_owned()),
                ("quick run", quick.beside(full)),
                ("designs", designs.join(", ")),
                ("tables", data.tables.join(", ")),
                ("published figures", figures.to_string()),
                (
                    "cases of the main comparisons",
                    format!(
                        "{} with 6 seeds; {} of a quick run with 2",
                        cases(Effort::Full, 6),
                        cases(Effort::Quick, 2)
                    ),
                ),
            ],
        )
    }

    fn run(&self, options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
        let machines = self.machines_of(options.effort).iter();
        machines
            .map(|machine| self.report(machine, options, progress))
            .collect()
    }

    fn figures(&self) -> Result<Vec<Beside>, Error> {
        let mut figures = Vec::new();
        for machine in &self.data.machines {
            if self.data.published.iter().any(|of| of.machine == *machine) {
                let setup = self.setup_of(machine, Effort::Full)?;
                figures.extend(self.figures_on(machine, &(self.code.metrics)(&setup), None));
            }
        }
        Ok(figures)
    }

    fn machines(&self) -> Vec<&str> {
        self.data.machines.iter().map(String::as_str).collect()
    }

    fn is_simulated(&self) -> bool {
        self.code.clock == Clock::Virtual
    }

    fn design_names(&self) -> Vec<String> {
        let designs = self.data.designs.iter();
        designs.map(|design| design.name.clone()).collect()
    }

    fn quick_metrics(&self, machine: &str) -> Result<Vec<String>, Error> {
        let metrics = (self.code.metrics)(&self.setup_of(machine, Effort::Quick)?).into_iter();
        Ok(metrics.map(|metric| metric.name.into_owned()).collect())
    }

    fn reported_metrics(&self, effort: Effort) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        for machine in self.machines_of(effort) {
            let metrics = (self.code.metrics)(&self.setup_of(machine, effort)?);
            let numbers = self.numbers(machine, effort);
            let shown = filled(self.data.shown.as_ref(), numbers);
            let compared = filled(self.data.compared.as_ref(), numbers);
            let is_shown =
                |metric: &&Metric| is_named(&shown, metric) || is_named(&compared, metric);
            for metric in metrics.iter().filter(is_shown) {
                if !names.iter().any(|name| *name == metric.name) {
                    names.push(metric.name.to_string());
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
        let setting = Setting {
            machine,
            card,
            numbers: self.numbers(machine, options.effort),
            memory: self.memory(options),
        };
        let setup = (self.code.setup)(&setting)?;
        let mut chosen = self.data.designs.clone();
        chosen.retain(|design| designs.contains(&design.name.as_str()));
        let (results, _) = self.compare(&setup, &chosen, options, &Progress::hidden())?;
        Ok(results.comparison().clone())
    }
}

impl<S, K> Filed<S, K> {
    /// The machines that a run measures: all machines of the experiment, or only the first machine
    /// if `effort` is quick.
    fn machines_of(&self, effort: Effort) -> &[String] {
        match effort {
            Effort::Full => &self.data.machines,
            Effort::Quick => &self.data.machines[..1],
        }
    }

    /// The numbers that the experiment's file gives for the workload in a run with `effort` on
    /// `machine`. `machine` can be a variant of a machine, for example with scaled prices. If the
    /// experiment does not have this machine, the numbers for its first machine are used.
    fn numbers(&self, machine: &str, effort: Effort) -> &Numbers {
        let plain = machine.split(['@']).next().unwrap_or(machine);
        let nth = self.data.machines.iter().position(|of| of == plain);
        let OfMachine { full, quick } = &self.data.numbers[nth.unwrap_or(0)];
        match effort {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }

    /// The state of memory when a run begins: the user's choice, or else the choice of the
    /// experiment's file.
    fn memory(&self, options: &Options) -> Option<Memory> {
        options.memory.or(self.data.memory)
    }

    /// The name with which `machine` is loaded.
    fn loaded_name(&self, machine: &str, options: &Options) -> String {
        options.on(&machine_at(&self.data.folder, machine))
    }

    fn setup(
        &self,
        machine: &str,
        card: Card,
        effort: Effort,
        options: &Options,
    ) -> Result<S, Error> {
        (self.code.setup)(&Setting {
            machine: &self.loaded_name(machine, options),
            card,
            numbers: self.numbers(machine, effort),
            memory: self.memory(options),
        })
    }

    /// The workload on `machine`, with every price in the middle of its range. Any prices would do,
    /// because callers of this function need only the names of the metrics.
    fn setup_of(&self, machine: &str, effort: Effort) -> Result<S, Error> {
        self.setup(machine, Card::Mid, effort, &Options::of_seeds(1))
    }

    fn figures_on(
        &self,
        machine: &str,
        metrics: &[Metric],
        results: Option<&Results>,
    ) -> Vec<Beside> {
        let Data {
            name, published, ..
        } = &self.data;
        figures::on_machine(published, name, machine, metrics, results)
    }
}

impl<S: Sync, K: Send> Filed<S, K> {
    fn report(
        &self,
        machine: &str,
        options: &Options,
        progress: &Progress,
    ) -> Result<Report, Error> {
        let data = &self.data;
        let card = options.card.unwrap_or(Card::Mid);
        let setup = self.setup(machine, card, options.effort, options)?;
        progress.start_on(&data.name, machine, "");
        let (results, kept) = self.compare(&setup, &data.designs, options, progress)?;
        let metrics = (self.code.metrics)(&setup);
        results.assert_measured(&metrics);
        let run = Run {
            filed: self,
            machine,
            card,
            options,
            progress,
            setup,
            designs: &data.designs,
            results,
            kept,
        };
        let runs = run.results.comparison();
        let of = options.on(machine);
        let mut report = Report::new(&data.name, &of, card, runs.seeds(), runs.hash());
        report.rows = runs.rows(|design, metric| run.published(design, metric));
        let shown = filled(data.shown.as_ref(), run.numbers());
        report.rows.retain(|row| is_named(&shown, &row.metric));
        let compared = filled(data.compared.as_ref(), run.numbers());
        for pair in &data.pairs {
            let pair = (pair.a.as_str(), pair.b.as_deref());
            let verdicts = run
                .results
                .verdicts_of(pair, |metric| is_named(&compared, metric));
            report.verdicts.extend(verdicts);
        }
        let mut facts = BTreeMap::new();
        for name in self.tables_on(machine) {
            let made = self.part(&run, name)?;
            report.tables.extend(made.tables);
            facts.extend(made.facts);
        }
        let finding = self.finding(&run, &metrics, &facts);
        report.finding = finding.to_string();
        report.figures = self.figures_on(machine, &metrics, Some(&run.results));
        let sentence = finding.answer().to_owned();
        report.answer = self.answered(sentence, &metrics, &run.results, &report.figures);
        report.is_simulated = self.is_simulated();
        report.decided = decided::of(&data.name, machine)?;
        Ok(report)
    }

    /// The names of the tables of the report on `machine`.
    fn tables_on(&self, machine: &str) -> &[String] {
        if machine == self.data.machines[0] {
            &self.data.tables
        } else {
            &self.data.tables_elsewhere
        }
    }

    fn part(&self, run: &Run<'_, S, K>, name: &str) -> Result<Made, Error> {
        if name == CARDS {
            let tables: Vec<_> = run.cards()?.into_iter().collect();
            return Ok(tables.into());
        }
        let mut parts = self.code.parts.iter();
        let part = parts.find(|part| part.name == name);
        (part
            .expect("the reader knows the parts of the workload")
            .make)(run)
    }

    /// Makes the conclusion of the report from the sentences in the experiment's file.
    fn finding(
        &self,
        run: &Run<'_, S, K>,
        metrics: &[Metric],
        facts: &BTreeMap<&str, String>,
    ) -> Finding {
        let texts = &self.data.finding;
        let measured = text::Measured {
            results: &run.results,
            metrics,
            facts,
            numbers: run.numbers(),
        };
        let fill = |text: &text::Text| text.fill(&measured);
        let numbers = texts.numbers.iter();
        let numbers = numbers.map(|(label, text)| (label.as_str(), fill(text)));
        let finding = Finding::of(fill(&texts.sentence), numbers.collect());
        match &texts.further {
            None => finding,
            Some(further) => finding.further(fill(further).trim()),
        }
    }

    /// The answer of a report: `sentence`, and those headlines (the metrics with which a report
    /// begins) that the runs have measured.
    fn answered(
        &self,
        sentence: String,
        metrics: &[Metric],
        results: &Results,
        figures: &[Beside],
    ) -> Answer {
        let row = |headline: &data::Headline| {
            let metric = metrics.iter().find(|other| other.name == headline.metric)?;
            let base = headline.designs.first()?;
            let cell = |(nth, design): (usize, &String)| {
                let values = results.values(design, metric);
                Some(AnswerCell {
                    design: design.clone(),
                    estimate: results.estimate(design, metric),
                    seeds: values.len(),
                    is_zero: values.iter().all(|value| *value == 0.0),
                    compared: (nth > 0).then(|| results.compare((base, design), metric)),
                    pairs: values.len(),
                })
            };
            let patch = headline.designs.get(1);
            Some(AnswerRow {
                what: headline.what.clone(),
                metric: metric.clone(),
                cells: headline.designs.iter().enumerate().map(cell).collect(),
                published_ratio: patch
                    .and_then(|patch| published_ratio(figures, &headline.metric, base, patch)),
            })
        };
        let headlines = &self.data.answer;
        Answer {
            question: capital(&self.data.question),
            sentence,
            sides: headlines.sides.clone(),
            rows: headlines.rows.iter().filter_map(row).collect(),
            ..Answer::default()
        }
    }

    fn compare(
        &self,
        setup: &S,
        designs: &[Tried],
        options: &Options,
        progress: &Progress,
    ) -> Result<(Results, Vec<K>), Error> {
        let timed;
        let options = match self.code.clock {
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
        let run = |case: &Case<Tried>| (self.code.measure)(setup, case);
        let (comparison, kept) = Comparison::run_keeping(designs, options, progress, run)?;
        Ok((Results::new(comparison), kept))
    }
}

/// The names of metrics in the file, with each `(name)` replaced by the value of the number `name`.
fn filled(names: Option<&Vec<String>>, numbers: &Numbers) -> Option<Vec<String>> {
    names.map(|names| names.iter().map(|name| numbers.fill(name)).collect())
}

/// Returns whether `names` has the name of `metric`. `None` stands for all metrics.
fn is_named(names: &Option<Vec<String>>, metric: &Metric) -> bool {
    let names = names.as_ref();
    names.is_none_or(|names| names.iter().any(|name| *name == metric.name))
}

/// The name of the table that every workload has: verdicts at each cost card (low, middle or high
/// prices).
const CARDS: &str = "cards";

/// Returns `text` with a capital letter at its beginning.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
