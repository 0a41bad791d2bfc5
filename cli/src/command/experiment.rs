//! The commands of experiment files: `plimsoll run`, `new`, `list`, `check` and `schema`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use plimsoll_lab::plan::data::Plan;
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::{
    FromFile, command, outline, prepare, schema, sweep, sweep_report, template,
};
use plimsoll_lab::report::table;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;

use crate::args::{ListExperiments, NewExperiment, Run};
use crate::output::{self, BadInput, Sink};

pub(crate) fn run(args: Run) -> anyhow::Result<()> {
    let mut from_file = FromFile::load(&args.file)?;
    let settings: Vec<&str> = args.set.iter().map(String::as_str).collect();
    command::set(&mut from_file.plan, &settings)?;
    if let Some(seeds) = args.runs.seeds {
        from_file.plan.seeds = seeds;
    }
    let how = How {
        jobs: Jobs::new(args.runs.jobs()),
        record: None,
    };
    let mut sink = Sink::open(args.output)?;
    let progress = Progress::new();
    let ran = match &from_file.plan.sweep {
        None => run_machines(&from_file, &how, &progress, &mut sink),
        Some(axes) => run_sweep(&from_file, axes, &how, &progress, &mut sink),
    };
    progress.finish();
    ran
}

fn run_machines(
    from_file: &FromFile,
    how: &How,
    progress: &Progress,
    sink: &mut Sink,
) -> anyhow::Result<()> {
    let prepared = prepare::prepare(&from_file.plan);
    let prepared = prepared.map_err(|problems| from_file.locate(&problems))?;
    for scene in &prepared.scenes {
        let (report, _) = drive::run(&prepared, scene, how, progress)?;
        progress.finish();
        sink.write(&report)?;
    }
    Ok(())
}

fn run_sweep(
    from_file: &FromFile,
    axes: &plimsoll_lab::plan::data::Sweep,
    how: &How,
    progress: &Progress,
    sink: &mut Sink,
) -> anyhow::Result<()> {
    let plan: &Plan = &from_file.plan;
    let points = sweep::points(plan, axes);
    let points = points.map_err(|problems| from_file.locate(&problems))?;
    let report = sweep_report::run(plan, axes, &points, how, progress)?;
    progress.finish();
    sink.write(&report)
}

/// Writes the template of an experiment to a new file.
pub(crate) fn new(args: &NewExperiment) -> anyhow::Result<()> {
    let name = args.name.strip_suffix(".toml").unwrap_or(&args.name);
    let path = format!("{name}.toml");
    let stem = Path::new(name).file_name();
    let stem = stem.map(|stem| stem.to_string_lossy()).unwrap_or_default();
    if stem.trim().is_empty() {
        let refused = format!(
            "{:?} is no name for an experiment: write one such as mine",
            args.name
        );
        return Err(BadInput(refused).into());
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BadInput(format!(
            "{path} exists already, and is not replaced: name another file"
        )),
        kind => BadInput(format!("cannot write to {path}: {kind}; name another file")),
    })?;
    file.write_all(template::text(&stem).as_bytes())
        .with_context(|| format!("cannot write {path}"))?;
    output::print(&format!(
        "wrote {path}; run it with `plimsoll run {path}`\n"
    ))
}

/// Lists the experiments of the catalog, and those of a folder.
pub(crate) fn list(args: &ListExperiments) -> anyhow::Result<()> {
    let tables = outline::list(args.folder.as_deref())?;
    output::print(&table::render_tables(&tables, output::width()))
}

/// Checks an experiment file and says what it would run.
pub(crate) fn check(file: &Path) -> anyhow::Result<()> {
    let from_file = FromFile::load(file)?;
    let would_run = outline::outline(&from_file.plan);
    let would_run = would_run.map_err(|problems| from_file.locate(&problems))?;
    output::print(&table::render_tables(&[would_run], output::width()))
}

/// Prints the JSON Schema of experiment files.
pub(crate) fn schema() -> anyhow::Result<()> {
    output::print(&schema::text())
}
