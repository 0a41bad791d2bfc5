//! Runs an experiment file, or one point of its sweep: one combination of the values that the file
//! lists for its settings.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use plimsoll_lab::Error;
use plimsoll_lab::plan::drive;
use plimsoll_lab::plan::part::Part;
use plimsoll_lab::plan::sweep::Point;
use plimsoll_lab::plan::{FromFile, command, outline, prepare, sweep, sweep_summary};
use plimsoll_lab::store::head::New;
use plimsoll_lab::store::{hash_of_bytes, inputs};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::{How, detached, new_run};
use crate::{BadInput, raised};

/// The attributes of `plimsoll.Experiment`.
#[derive(FromPyObject)]
pub(crate) struct Source {
    text: String,
    file: String,
    folder: PathBuf,
    seeds: Option<u64>,
    settings: Vec<String>,
}

impl Source {
    fn settings(&self) -> Vec<&str> {
        self.settings.iter().map(String::as_str).collect()
    }

    fn load(&self) -> Result<FromFile, Error> {
        let mut from_file = FromFile::parse(&self.file, &self.text)?;
        from_file.plan.folder.clone_from(&self.folder);
        command::set(&mut from_file.plan, &self.settings())?;
        from_file.plan.seeds = self.seeds.unwrap_or(from_file.plan.seeds);
        Ok(from_file)
    }

    /// Returns the description of a run of the whole experiment file. If `part` is given, describes
    /// a run of only this part of the sweep.
    fn new_run(
        &self,
        from_file: &FromFile,
        points: &[Point],
        part: Option<Part>,
    ) -> Result<New, Error> {
        let plan = &from_file.plan;
        let hash = hash_of_bytes(self.text.as_bytes()).unwrap_or_default();
        let mut inputs = inputs::of_file(&self.file, hash, plan, &self.settings());
        let name = if part.is_some() { "sweep" } else { "run" };
        let mut words = vec![name.to_owned(), self.file.clone()];
        for setting in &self.settings {
            words.extend(["--set".to_owned(), setting.clone()]);
        }
        if let Some(seeds) = self.seeds {
            words.extend(["--seeds".to_owned(), seeds.to_string()]);
        }
        if let Some(part) = part {
            words.extend(["--part".to_owned(), part.to_string()]);
            inputs.insert("part".to_owned(), part.to_string());
        }
        Ok(new_run(words, inputs::machines_of(plan, points)?, inputs))
    }
}

/// Runs an experiment, or only one point of its sweep if `point` is given. A point is one
/// combination of the values of the settings that vary. Returns the samples as Parquet.
#[pyfunction]
#[pyo3(signature = (source, point, jobs, progress))]
pub(crate) fn run<'py>(
    py: Python<'py>,
    source: Source,
    point: Option<usize>,
    jobs: Option<NonZeroUsize>,
    progress: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let from_file = source.load().map_err(|error| raised(&error))?;
    if let Some(nth) = point {
        return run_point(py, &source, from_file, nth, How::new(jobs, progress));
    }
    let call = How::new(jobs, progress);
    let how = drive::How {
        jobs: call.jobs.clone(),
        record: None,
        watch: None,
        trace: None,
    };
    let new = source.new_run(&from_file, &[], None);
    let new = new.map_err(|error| raised(&error))?;
    call.table(py, "run", new, move |progress| {
        let plan = &from_file.plan;
        if let Some(axes) = &plan.sweep {
            let points = sweep::points(plan, axes);
            let points = points.map_err(|problems| from_file.locate(&problems))?;
            return sweep_summary::run(plan, axes, &points, &how, progress).map(drop);
        }
        let prepared = prepare::prepare(plan);
        let prepared = prepared.map_err(|problems| from_file.locate(&problems))?;
        for planned in &prepared.machines {
            drive::run(&prepared, planned, &how, progress)?;
        }
        Ok(())
    })
}

fn run_point<'py>(
    py: Python<'py>,
    source: &Source,
    from_file: FromFile,
    nth: usize,
    call: How,
) -> PyResult<Bound<'py, PyBytes>> {
    let Some(axes) = from_file.plan.sweep.clone() else {
        let refused = format!("{} has no sweep: run it without a point", source.file);
        return Err(BadInput::new_err(refused));
    };
    let point = sweep::one(&from_file.plan, &axes, nth);
    let point = point.map_err(|problems| raised(&from_file.locate(&problems)))?;
    let how = drive::How {
        jobs: call.jobs.clone(),
        record: None,
        watch: None,
        trace: None,
    };
    let count = usize::try_from(sweep::count(&axes)).unwrap_or(usize::MAX);
    let points = [point];
    let new = source.new_run(&from_file, &points, Part::of_point(nth, count));
    let new = new.map_err(|error| raised(&error))?;
    call.table(py, "run", new, move |progress| {
        sweep_summary::run(&from_file.plan, &axes, &points, &how, progress).map(drop)
    })
}

/// Describes the runs that an experiment would make, as pairs of a name and a text. If the runs are
/// too short to show the difference between two designs, the last pair is a `warning`.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, source: Source) -> PyResult<Vec<(String, String)>> {
    let jobs = How::new(None, false).jobs;
    let (table, too_short) = detached(py, &jobs, move || {
        let from_file = source.load()?;
        let would_run = outline::outline(&from_file.plan);
        would_run.map_err(|problems| from_file.locate(&problems))
    })?;
    let mut pairs: Vec<(String, String)> = Vec::new();
    for row in table.rows {
        let mut cells = row.into_iter();
        let what = cells.next().unwrap_or_default();
        let is = cells.next().unwrap_or_default();
        match pairs.last_mut() {
            // A row without a name continues the row above it.
            Some((_, list)) if what.is_empty() => *list = format!("{list}; {is}"),
            _ => pairs.push((what, is)),
        }
    }
    pairs.extend(too_short.map(|why| ("warning".to_owned(), why)));
    Ok(pairs)
}

/// Returns the axes of an experiment's sweep, which are the settings that the experiment varies.
/// Returns also, for each point of the sweep, the value of each setting.
#[pyfunction]
pub(crate) fn points(py: Python<'_>, source: Source) -> PyResult<(Vec<String>, Vec<Vec<String>>)> {
    let jobs = How::new(None, false).jobs;
    detached(py, &jobs, move || {
        let from_file = source.load()?;
        let Some(axes) = &from_file.plan.sweep else {
            let why = format!(
                "{} has no sweep: add [sweep] to it, or run it whole",
                source.file
            );
            return Err(Error::Invalid(why));
        };
        let points = sweep::points(&from_file.plan, axes);
        let points = points.map_err(|problems| from_file.locate(&problems))?;
        let names = axes.axes.iter().map(|axis| axis.target.key()).collect();
        Ok((
            names,
            points.into_iter().map(|point| point.values).collect(),
        ))
    })
}
