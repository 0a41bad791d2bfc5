//! All runs of an experiment on one machine, as the parts of its report see them.

use plimsoll_sim::profile::{Card, Profile};

use super::data::Tried;
use super::numbers::Numbers;
use super::{Filed, Setting, figures};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::experiment::driver::results::Results;
use crate::measure::metric::Metric;
use crate::measure::stats::SEEDS_MIN;
use crate::report::misses::Beside;
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// All runs of an experiment on one machine.
pub(in crate::experiment) struct Run<'a, S: 'static, K: 'static = ()> {
    pub(super) filed: &'a Filed<S, K>,
    /// The name of the machine, as in the experiment file.
    pub(in crate::experiment) machine: &'a str,
    pub(in crate::experiment) card: Card,
    pub(in crate::experiment) options: &'a Options,
    pub(in crate::experiment) progress: &'a Progress,
    /// The workload on this machine.
    pub(in crate::experiment) setup: S,
    pub(in crate::experiment) designs: &'a [Tried],
    /// The samples of every design on every seed.
    pub(in crate::experiment) results: Results,
    /// For each design, the data that the workload kept from the design's run with the first seed.
    /// The data do not include the values of the metrics.
    pub(in crate::experiment) kept: Vec<K>,
}

impl<'a, S: Sync, K: Send> Run<'a, S, K> {
    /// Each design, with the data that the workload kept from the design's run with the first seed.
    pub(in crate::experiment) fn each(&self) -> impl Iterator<Item = (&Tried, &K)> {
        self.designs.iter().zip(&self.kept)
    }

    /// The names of the experiment's machines in the file.
    pub(in crate::experiment) fn machines(&self) -> &'a [String] {
        &self.filed.data.machines
    }

    /// The numbers that the experiment's file gives for the workload.
    pub(in crate::experiment) fn numbers(&self) -> &'a Numbers {
        self.filed.numbers(self.machine, self.options.effort)
    }

    /// The value that the workload's number `name` has in a full run.
    pub(in crate::experiment) fn full_number(&self, name: &str) -> u64 {
        self.filed.numbers(self.machine, Effort::Full).get(name)
    }

    /// Loads the machine `machine`, with interrupts and other disturbances only if the options ask
    /// for them.
    pub(in crate::experiment) fn load(&self, machine: &str, card: Card) -> Result<Profile, Error> {
        let machine = self.filed.loaded_name(machine, self.options);
        Setting {
            machine: &machine,
            card,
            numbers: self.numbers(),
            memory: None,
        }
        .profile()
    }

    /// The published value for a design and a metric on this machine.
    pub(in crate::experiment) fn published(&self, design: &str, metric: &Metric) -> Option<f64> {
        figures::level(
            &self.filed.data.published,
            self.machine,
            design,
            &metric.name,
        )
    }

    /// The published figures of the experiment.
    pub(in crate::experiment) fn figures(&self) -> &'a [figures::Published] {
        &self.filed.data.published
    }

    /// The published figures of the experiment, with the units of their metrics.
    pub(in crate::experiment) fn figures_beside(&self) -> Result<Vec<Beside>, Error> {
        self.filed.figures()
    }

    /// Restarts the progress bar for runs on `machine`. The bar calls these runs `about`.
    pub(in crate::experiment) fn start(&self, machine: &str, about: &str) {
        self.progress
            .start_on(&self.filed.data.name, machine, about);
    }

    /// The designs with these names, in the order of the file.
    pub(in crate::experiment) fn named(&self, names: &[&str]) -> Vec<Tried> {
        let designs = self.designs.iter();
        let wanted = designs.filter(|design| names.contains(&design.name.as_str()));
        wanted.cloned().collect()
    }

    /// Runs `designs` on another workload, for a table in addition to the main table. Uses no more
    /// seeds than a verdict needs. The progress bar calls this workload `about`. Returns the
    /// results, and the data that the workload kept from each design's run with the first seed.
    pub(in crate::experiment) fn further(
        &self,
        about: &str,
        setup: &S,
        designs: &[Tried],
    ) -> Result<(Results, Vec<K>), Error> {
        self.further_on_few(about, setup, designs, SEEDS_MIN)
    }

    /// As [`Run::further`], but with only the first `seeds` seeds. With fewer seeds than a verdict
    /// needs, the table can show only medians.
    pub(in crate::experiment) fn further_on_few(
        &self,
        about: &str,
        setup: &S,
        designs: &[Tried],
        seeds: usize,
    ) -> Result<(Results, Vec<K>), Error> {
        let mut options = self.options.clone();
        options.seeds.truncate(seeds);
        self.start(self.machine, about);
        self.filed.compare(setup, designs, &options, self.progress)
    }

    /// Builds the workload on `machine`. The prices are those of `card` (low, middle or high), and
    /// the numbers are those of a run with `effort`.
    pub(in crate::experiment) fn setup_on(
        &self,
        machine: &str,
        card: Card,
        effort: Effort,
    ) -> Result<S, Error> {
        self.filed.setup(machine, card, effort, self.options)
    }

    /// Runs `designs` with the prices (low, middle or high) of `card`. Returns the workload, the
    /// results, and the data that the workload kept from each design's run with the first seed.
    pub(in crate::experiment) fn at(
        &self,
        card: Card,
        effort: Effort,
        designs: &[Tried],
    ) -> Result<(S, Results, Vec<K>), Error> {
        let setup = self.setup_on(self.machine, card, effort)?;
        let about = format!("card {}", card.name());
        let (results, kept) = self.further(&about, &setup, designs)?;
        Ok((setup, results, kept))
    }

    /// Returns whether the report also shows verdicts with low and with high prices. It shows them
    /// if the run is full and the user has not chosen a card (low, middle or high prices).
    pub(in crate::experiment) fn has_cards(&self) -> bool {
        self.options.effort == Effort::Full && self.options.card.is_none()
    }
}
