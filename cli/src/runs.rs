//! Arguments that commands share: seeds, and how many cases run at once.

use std::num::NonZeroUsize;
use std::thread;

/// Seeds and parallelism of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Runs {
    /// Runs every design with seeds 1 to N [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) seeds: Option<u64>,
    /// The number of cases that run at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
}

impl Runs {
    pub(crate) fn jobs(&self) -> NonZeroUsize {
        jobs_or_cpus(self.jobs)
    }
}

/// Returns `jobs` if it is given, and otherwise the number of CPUs of the computer.
pub(crate) fn jobs_or_cpus(jobs: Option<NonZeroUsize>) -> NonZeroUsize {
    let cpus = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    jobs.unwrap_or_else(cpus)
}
