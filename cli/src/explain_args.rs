//! The arguments of `plimsoll explain`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::ValueEnum;

/// Says which CPUs waited longest in a run whose results were kept, for what lock, and why
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The id of the run, its beginning, or `last`; a run of `compare`, `run` or `replay`
    pub(crate) run: String,
    /// The folder of the store [default: the folder that the environment variable PLIMSOLL_STORE
    /// names, or .plimsoll]
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// The number of cases that run at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// The format; json is one object per line, one line per design
    #[arg(long, default_value = "text")]
    pub(crate) format: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Text,
    Json,
}
