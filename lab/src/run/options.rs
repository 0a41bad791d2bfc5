//! The options of an experiment: its seeds, how much to measure, and whether to run each case
//! twice.

use plimsoll_sim::profile::{Card, NO_JITTER};

use super::aging::Memory;
use super::jobs::Jobs;
use crate::watch::Courses;

/// The user's options for an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seeds. Every design runs with every seed.
    pub seeds: Vec<u64>,
    /// How many cases (a design with a seed) can run in parallel.
    pub jobs: Jobs,
    /// The card of all runs: whether each price is at the low end, in the middle or at the high end
    /// of its range. `None` means the middle card. If a report compares cards, it also has runs
    /// with the low and the high card.
    pub card: Option<Card>,
    /// The state of memory at the start of runs. `None` leaves the choice to each experiment.
    pub memory: Option<Memory>,
    /// How much each experiment measures.
    pub effort: Effort,
    /// Says whether to run every case twice and compare the two runs.
    pub determinism: Determinism,
    /// Says whether interrupts, softirqs and steals disturb simulated CPUs.
    pub jitter: Jitter,
    /// Where to keep the course (what happened, over time) of each design's run with the first
    /// seed. `None` if no run is watched. Watching a run does not change its results.
    pub watch: Option<Courses>,
}

impl Options {
    /// Options for seeds 1 to `seeds` on all CPUs of the host, with full effort and each case run
    /// once.
    #[must_use]
    pub fn of_seeds(seeds: u64) -> Self {
        Self {
            seeds: (1..=seeds).collect(),
            jobs: Jobs::one_per_cpu(),
            card: None,
            memory: None,
            effort: Effort::Full,
            determinism: Determinism::Trust,
            jitter: Jitter::On,
            watch: None,
        }
    }

    /// The name of the built-in machine `machine`. If `jitter` is off, this is the name of the
    /// variant of the machine without disturbances.
    #[must_use]
    pub fn on(&self, machine: &str) -> String {
        match self.jitter {
            Jitter::On => machine.to_owned(),
            Jitter::Off => format!("{machine}+{NO_JITTER}"),
        }
    }
}

/// Says whether a machine has the disturbances (interrupts, softirqs and steals) that its profile
/// describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Interrupts, softirqs and steals disturb CPUs, as the profile describes.
    On,
    /// No interrupt, softirq or steal disturbs a CPU.
    Off,
}

/// How much an experiment measures: everything for its report, or little for a quick test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Measures everything that the experiment's report needs.
    Full,
    /// Measures just enough to show that the experiment works, with shorter runs and fewer
    /// machines.
    Quick,
}

/// Says whether to check that a run depends only on its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// Each case runs once.
    Trust,
    /// Each case runs twice, and a difference is an error.
    Check,
}
