//! The options of an experiment: which seeds, how much to measure, and whether to run all twice.

use std::num::NonZeroUsize;
use std::thread;

use plimsoll_sim::profile::Card;

/// The user's options for an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seeds to run, each on every design.
    pub seeds: Vec<u64>,
    /// The number of cases that run at once.
    pub jobs: NonZeroUsize,
    /// One card of costs, or `None` for every card that the experiment reports.
    pub card: Option<Card>,
    /// The amount to measure.
    pub effort: Effort,
    /// Whether every case runs twice.
    pub determinism: Determinism,
}

impl Options {
    /// Seeds 1 to `seeds` on all CPUs of the host, with full effort, each case once.
    #[must_use]
    pub fn of_seeds(seeds: u64) -> Self {
        Self {
            seeds: (1..=seeds).collect(),
            jobs: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            card: None,
            effort: Effort::Full,
            determinism: Determinism::Trust,
        }
    }
}

/// The amount that an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Everything its report needs.
    Full,
    /// Enough to see that it works: shorter runs, fewer machines.
    Quick,
}

/// Whether to check that a run is a function of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// Each case runs once.
    Trust,
    /// Each case runs twice, and a difference is an error.
    Check,
}
