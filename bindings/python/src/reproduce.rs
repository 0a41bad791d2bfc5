//! The built-in experiments, and replays of recordings.

use std::num::{NonZeroU32, NonZeroUsize};

use plimsoll_lab::experiment::{self, CATALOG};
use plimsoll_lab::replay::{self as lab_replay, ReplayOptions};
use plimsoll_lab::run::options::{Effort, Options};
use plimsoll_lab::store::head::Machine;
use plimsoll_lab::store::inputs;
use plimsoll_lab::{Card, Error};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::BadInput;
use crate::call::{How, new_run};
use crate::raised;

/// The built-in experiments: name and question.
#[pyfunction]
pub(crate) fn experiments() -> Vec<(&'static str, &'static str)> {
    let of = CATALOG.iter();
    of.map(|of| (of.name(), of.question())).collect()
}

/// Runs a built-in experiment. Returns the samples as Parquet.
#[pyfunction]
#[pyo3(signature = (name, quick, seeds, jobs, progress))]
pub(crate) fn reproduce<'py>(
    py: Python<'py>,
    name: &str,
    quick: bool,
    seeds: Option<u64>,
    jobs: Option<NonZeroUsize>,
    progress: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let experiment = experiment::find(name).map_err(|error| raised(&error))?;
    let call = How::new(jobs, progress);
    let (effort, usual) = if quick {
        (Effort::Quick, 2)
    } else {
        (Effort::Full, 6)
    };
    let options = Options {
        jobs: call.jobs.clone(),
        effort,
        ..Options::of_seeds(seeds.unwrap_or(usual))
    };
    let (machines, inputs) = inputs::of_experiments(&[experiment], &options);
    let mut words = vec!["reproduce".to_owned(), name.to_owned()];
    words.extend(quick.then(|| "--quick".to_owned()));
    if let Some(seeds) = seeds {
        words.extend(["--seeds".to_owned(), seeds.to_string()]);
    }
    let new = new_run(words, machines, inputs);
    call.table(py, name, new, move |progress| {
        experiment.run(&options, progress).map(drop)
    })
}

/// The options of `plimsoll.replay`, read from the attributes of a Python object.
#[derive(FromPyObject)]
pub(crate) struct Replay {
    recording: String,
    machine: String,
    scale: u32,
    a: Option<String>,
    b: Option<String>,
    seeds: u64,
    card: String,
}

impl Replay {
    fn options(self, call: &How) -> Result<ReplayOptions, Error> {
        let scale = NonZeroU32::new(self.scale);
        let card: Result<Card, _> = self.card.parse();
        Ok(ReplayOptions {
            file: self.recording,
            machine: self.machine,
            scale: scale.ok_or_else(|| Error::Invalid("scale is 1 or more".to_owned()))?,
            a: self.a,
            b: self.b,
            seeds: (1..=self.seeds).collect(),
            jobs: call.jobs.clone(),
            card: card.map_err(|why| Error::Invalid(format!("{why}")))?,
            record: None,
            watch: None,
            trace: None,
        })
    }
}

/// Replays a recording on a simulated machine. Returns the samples as Parquet.
#[pyfunction]
#[pyo3(signature = (options, jobs, progress))]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    options: Replay,
    jobs: Option<NonZeroUsize>,
    progress: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    if options.recording == "-" {
        let refused = "a replay from Python reads no standard input: name a file";
        return Err(BadInput::new_err(refused));
    }
    let call = How::new(jobs, progress);
    let options = options.options(&call).map_err(|error| raised(&error))?;
    let machine = Machine::load(&options.machine, options.card);
    let machine = machine.map_err(|error| raised(&error))?;
    let mut words = vec!["replay".to_owned(), options.file.clone()];
    words.extend(["--machine".to_owned(), options.machine.clone()]);
    words.extend(["--scale".to_owned(), options.scale.to_string()]);
    for (option, design) in [("--a", &options.a), ("--b", &options.b)] {
        words.extend(design.iter().flat_map(|of| [option.to_owned(), of.clone()]));
    }
    words.extend(["--seeds".to_owned(), options.seeds.len().to_string()]);
    words.extend(["--card".to_owned(), options.card.to_string()]);
    let new = new_run(words, vec![machine], inputs::of_replay(&options));
    call.table(py, "replay", new, move |progress| {
        lab_replay::run(&options, progress).map(drop)
    })
}
