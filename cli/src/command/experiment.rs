//! The commands of experiment files: `plimsoll run`, `new`, `list`, `check` and `schema`.

use std::path::Path;

use plimsoll_lab::Error;
use plimsoll_lab::catalog::machines;
use plimsoll_lab::experiment;
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::prepare::Prepared;
use plimsoll_lab::plan::{
    FromFile, Plan, command, outline, prepare, schema, sweep, sweep_report, template,
};
use plimsoll_lab::report::{Report, table};
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::{hash_of, inputs};

use crate::args::{ListExperiments, NewExperiment, Run};
use crate::command::{ending, reproduce};
use crate::html::HtmlFile;
use crate::output::{self, BadInput, Sink};
use crate::store::Keeping;
use crate::trace::TraceFile;

/// Returns whether the file that the command line names is the file of a built-in experiment.
pub(crate) fn is_built_in(args: &Run) -> anyhow::Result<bool> {
    Ok(experiment::of_file(&args.file)?.is_some())
}

/// Reads the experiment file that the command line names, and applies the other arguments to its
/// plan.
pub(crate) fn load(args: &Run) -> anyhow::Result<FromFile> {
    let mut from_file = FromFile::load(&args.file)?;
    let settings: Vec<&str> = args.set.iter().map(String::as_str).collect();
    command::set(&mut from_file.plan, &settings)?;
    if let Some(seeds) = args.runs.seeds {
        from_file.plan.seeds = seeds;
    }
    Ok(from_file)
}

/// Refuses options that the experiment of a user's file cannot have.
fn check_options(args: &Run, plan: &Plan) -> Result<(), BadInput> {
    let refused = if args.quick {
        "--quick has no effect with the workload of this file: leave it out, and shorten length_ms \
         or use fewer --seeds"
    } else if args.trace.is_wanted() && plan.sweep.is_some() {
        "a sweep cannot be traced: remove --trace, or the table [sweep] of the file"
    } else {
        return Ok(());
    };
    Err(BadInput(refused.to_owned()))
}

pub(crate) fn run(args: Run) -> anyhow::Result<()> {
    if let Some(experiment) = experiment::of_file(&args.file)? {
        if args.trace.is_wanted() {
            let refused = "a built-in experiment cannot be traced: remove --trace, or trace a \
                           comparison with `plimsoll compare`";
            return Err(BadInput(refused.to_owned()).into());
        }
        return reproduce::run_file(args, experiment);
    }
    let from_file = load(&args)?;
    let plan = &from_file.plan;
    check_options(&args, plan)?;
    let settings: Vec<&str> = args.set.iter().map(String::as_str).collect();
    let trace = TraceFile::open(args.trace)?;
    let folder = &plan.folder;
    let machines_of_page = plan.machines.iter();
    let machines_of_page = machines_of_page.map(|name| machines::machine_at(folder, name));
    let mut page = HtmlFile::open(args.html, machines_of_page.collect())?;
    let how = How {
        jobs: Jobs::new(args.runs.jobs()),
        record: None,
        watch: page.watch(),
        trace: trace.traces(),
    };
    let points = match &plan.sweep {
        None => Vec::new(),
        Some(axes) => {
            let points = sweep::points(plan, axes);
            points.map_err(|problems| from_file.locate(&problems))?
        }
    };
    let prepared = match &plan.sweep {
        None => {
            let prepared = prepare::prepare(plan);
            Some(prepared.map_err(|problems| from_file.locate(&problems))?)
        }
        Some(_) => None,
    };
    let too_short = prepared.as_ref().and_then(Prepared::too_short);
    output::warn(too_short.or_else(|| outline::too_short(&points)).as_slice());
    let mut sink = Sink::open(args.output, args.extent)?;
    let file = args.file.display().to_string();
    let inputs = inputs::of_file(&file, hash_of(&args.file)?, plan, &settings);
    let machines = inputs::machines_of(plan, &points)?;
    let mut keeping = Keeping::begin(&args.store, machines, inputs)?;
    let progress = keeping.journal(Progress::new(), "run");
    let mut reports = Vec::new();
    let mut write = |run: Result<Report, Error>, keeping: &mut Keeping| {
        progress.finish();
        let report = keeping.of_begun(run)?;
        sink.write(&report)?;
        keeping.report(&report)?;
        reports.push(report);
        page.write(&reports, None, keeping)?;
        anyhow::Ok(())
    };
    if let Some(prepared) = &prepared {
        for planned in &prepared.machines {
            let run = drive::run(prepared, planned, &how, &progress);
            write(run.map(|(report, _)| report), &mut keeping)?;
        }
    }
    if let Some(axes) = &plan.sweep {
        let run = sweep_report::run(plan, axes, &points, &how, &progress);
        write(run, &mut keeping)?;
    }
    keeping.finish()?;
    trace.write()?;
    sink.check_metrics(&reports)?;
    Ok(ending::check_differs(&reports)?)
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
    output::write_new(Path::new(&path), &template::text(&stem))?;
    output::print(&format!(
        "wrote {path}; run it with `plimsoll run {path}`\n"
    ))
}

/// Lists the built-in experiments, and the experiment files of a folder.
pub(crate) fn list(args: &ListExperiments) -> anyhow::Result<()> {
    let tables = outline::list(args.folder.as_deref())?;
    output::print(&table::render_tables(&tables, output::width()))
}

/// Checks an experiment file and says what it would run.
pub(crate) fn check(file: &Path) -> anyhow::Result<()> {
    if let Some(experiment) = experiment::of_file(file)? {
        let would_run = experiment.outline();
        return output::print(&table::render_tables(&[would_run], output::width()));
    }
    let from_file = FromFile::load(file)?;
    let would_run = outline::outline(&from_file.plan);
    let (would_run, too_short) = would_run.map_err(|problems| from_file.locate(&problems))?;
    output::print(&table::render_tables(&[would_run], output::width()))?;
    output::warn(too_short.as_slice());
    Ok(())
}

/// Prints the JSON Schema of experiment files.
pub(crate) fn schema() -> anyhow::Result<()> {
    output::print(&schema::text())
}
