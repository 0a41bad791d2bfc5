//! The parts of an experiment that are Rust code: its workload, metrics and special tables.
//! Experiment files refer to each part by a name.

use plimsoll_sim::profile::{Card, Profile};

use super::Clock;
use super::data::{Data, Made, Tried};
use super::numbers::{Number, Numbers};
use super::run::Run;
use super::{Filed, Setting};
use crate::catalog::machines;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::measure::comparison::Sample;
use crate::measure::metric::Metric;
use crate::run::cases::Case;

/// A workload with its metrics and the parts of its reports. `S` is the type of the workload on one
/// machine. `K` is the type of the data that are kept of a run in addition to the run's sample.
pub(in crate::experiment) struct Code<S: 'static, K: 'static = ()> {
    /// The name by which experiment files refer to the workload.
    pub(in crate::experiment) workload: &'static str,
    /// A description of the workload in one line.
    pub(in crate::experiment) about: &'static str,
    /// The numbers that a file must give in its table `[workload]`.
    pub(in crate::experiment) numbers: &'static [Number],
    /// The numbers that a file must give in each of its tables `[[design]]`.
    pub(in crate::experiment) of_designs: &'static [Number],
    /// True if an experiment file is allowed to choose the state that memory has when a run begins.
    pub(in crate::experiment) takes_memory: bool,
    /// The clock that measures all times.
    pub(in crate::experiment) clock: Clock,
    /// Builds the workload for a machine.
    pub(in crate::experiment) setup: fn(&Setting<'_>) -> Result<S, Error>,
    /// Every metric that a run measures.
    pub(in crate::experiment) metrics: fn(&S) -> Vec<Metric>,
    /// Runs one design on one seed.
    pub(in crate::experiment) measure: fn(&S, &Case<Tried>) -> (Sample, K),
    /// The parts that a report can have.
    pub(in crate::experiment) parts: &'static [Part<S, K>],
    /// This workload's own cells in the table of cost cards (low, middle and high prices). Each has
    /// a name, and a function that makes the cell from the data kept from a run.
    pub(in crate::experiment) cells: &'static [Cell<K>],
}

pub(super) type Cell<K> = (&'static str, fn(&K) -> String);

/// A part of a report: tables, and *facts*, which are texts that the sentences of the answer can
/// quote.
pub(in crate::experiment) struct Part<S: 'static, K: 'static = ()> {
    /// The name by which files refer to this part.
    pub(in crate::experiment) name: &'static str,
    /// The names of the part's facts, which are texts that the sentences of the answer can quote.
    pub(in crate::experiment) facts: &'static [&'static str],
    /// The labels of the designs that this part of a report names. An experiment file can have the
    /// part only if it has all of these designs.
    pub(in crate::experiment) designs: &'static [&'static str],
    pub(in crate::experiment) make: Make<S, K>,
}

type Make<S, K> = fn(&Run<'_, S, K>) -> Result<Made, Error>;

impl<S, K> Part<S, K> {
    /// Creates a report part that has no facts and names no designs.
    pub(in crate::experiment) const fn new(name: &'static str, make: Make<S, K>) -> Self {
        Self {
            name,
            facts: &[],
            designs: &[],
            make,
        }
    }

    /// Returns this part with `designs` as the labels of the designs that the part names.
    pub(in crate::experiment) const fn naming(self, designs: &'static [&'static str]) -> Self {
        Self { designs, ..self }
    }

    /// Returns this part, with `facts` as the names of the facts (texts for the answer) that the
    /// part gives.
    pub(in crate::experiment) const fn giving(self, facts: &'static [&'static str]) -> Self {
        Self { facts, ..self }
    }
}

/// The description of a `Part`, without the function that makes the part.
#[derive(Clone, Copy, Debug)]
pub struct PartInfo {
    /// The name by which experiment files refer to the part of a report.
    pub name: &'static str,
    /// The names of the facts that the part of the report gives. A fact is a text that the
    /// sentences of the answer can quote.
    pub facts: &'static [&'static str],
    /// The labels of the designs that the part of the report names. An experiment file that asks
    /// for this part must have all of these designs.
    pub designs: &'static [&'static str],
}

/// The interface of a `Code` that does not depend on the type parameters of the `Code`.
pub trait Subject: Sync {
    /// The name by which experiment files refer to the workload.
    fn workload(&self) -> &'static str;

    /// A description of the workload in one line.
    fn about(&self) -> &'static str;

    /// The numbers that a file must give in its table `[workload]`.
    fn numbers(&self) -> &'static [Number];

    /// The numbers that a file must give in each of its tables `[[design]]`.
    fn of_designs(&self) -> &'static [Number];

    /// Returns whether an experiment file is allowed to choose the state that memory has when a run
    /// begins.
    fn takes_memory(&self) -> bool;

    /// The parts that a report can have.
    fn parts(&self) -> Vec<PartInfo>;

    /// The names of this workload's own cells in the table of cost cards (low, middle and high
    /// prices).
    fn cells(&self) -> Vec<&'static str>;
}

/// A [`Subject`], with the functions for the code that reads experiment files and runs them.
pub(in crate::experiment) trait Runs: Subject {
    /// The metrics that a run in the given setting measures.
    ///
    /// # Errors
    /// If the machine is unknown, or if it does not allow the numbers that the setting gives for
    /// the workload.
    fn metrics(&self, setting: &Setting<'_>) -> Result<Vec<Metric>, Error>;

    /// Makes the experiment that a file describes. `data` has the contents of the file.
    fn experiment(&'static self, data: Data) -> Box<dyn Experiment + Send>;
}

impl<S: Sync, K: Send> Subject for Code<S, K> {
    fn workload(&self) -> &'static str {
        self.workload
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn numbers(&self) -> &'static [Number] {
        self.numbers
    }

    fn of_designs(&self) -> &'static [Number] {
        self.of_designs
    }

    fn takes_memory(&self) -> bool {
        self.takes_memory
    }

    fn parts(&self) -> Vec<PartInfo> {
        let info = |part: &Part<S, K>| PartInfo {
            name: part.name,
            facts: part.facts,
            designs: part.designs,
        };
        self.parts.iter().map(info).collect()
    }

    fn cells(&self) -> Vec<&'static str> {
        self.cells.iter().map(|(name, _)| *name).collect()
    }
}

impl<S: Sync, K: Send> Runs for Code<S, K> {
    fn metrics(&self, setting: &Setting<'_>) -> Result<Vec<Metric>, Error> {
        Ok((self.metrics)(&(self.setup)(setting)?))
    }

    fn experiment(&'static self, data: Data) -> Box<dyn Experiment + Send> {
        Box::new(Filed { code: self, data })
    }
}

impl Setting<'_> {
    /// The profile of the machine. The setting's card says whether each price is at the low end, in
    /// the middle or at the high end of its range.
    ///
    /// # Errors
    /// If the machine is unknown, or its profile is bad.
    pub(in crate::experiment) fn profile(&self) -> Result<Profile, Error> {
        machines::load(self.machine, self.card)
    }

    /// The value of the workload's parameter `name`.
    pub(in crate::experiment) fn get(&self, name: &str) -> u64 {
        self.numbers.get(name)
    }
}

/// The setting with which the reader of an experiment file asks for a workload's metrics. All
/// prices are in the middle of their ranges.
pub(super) const fn setting<'a>(
    machine: &'a str,
    numbers: &'a Numbers,
    memory: Option<crate::run::aging::Memory>,
) -> Setting<'a> {
    Setting {
        machine,
        card: Card::Mid,
        numbers,
        memory,
    }
}
