//! Describes the runs that a plan would make, without making them, and lists all experiments.

use std::fs;
use std::path::Path;

use super::data::{DesignOf, Plan};
use super::prepare::{Prepared, prepare};
use super::read::Problem;
use super::sweep::Point;
use super::write::label_of;
use super::{FromFile, command, metrics, sweep, timeline};
use crate::error::Error;
use crate::experiment::{self, CATALOG};
use crate::measure::metric::Unit;
use crate::report::value::human;
use crate::report::{Table, answer, tabulate};

/// Checks `plan` and its sweep. Returns a table of the runs that the plan would make. Also returns
/// a warning if the runs are too short to show the difference between two designs.
///
/// # Errors
/// Everything that is wrong with the plan.
pub fn outline(plan: &Plan) -> Result<(Table, Option<String>), Vec<Problem>> {
    let base = Plan {
        sweep: None,
        ..plan.clone()
    };
    let prepared = prepare(&base)?;
    let points = match &plan.sweep {
        Some(axes) => sweep::points(plan, axes)?,
        None => Vec::new(),
    };
    let (comparisons, total_ns) = if points.is_empty() {
        (
            prepared.machines.len(),
            prepared.machines.len() as f64 * prepared.length.0 as f64,
        )
    } else {
        let of_points = points.iter().map(|point| {
            let point = prepare(&point.plan)?;
            Ok((
                point.machines.len(),
                point.machines.len() as f64 * point.length.0 as f64,
            ))
        });
        let of_points = of_points.collect::<Result<Vec<_>, Vec<Problem>>>()?;
        let sum = |(count, ns): (usize, f64), (more, of): &(usize, f64)| (count + more, ns + of);
        of_points.iter().fold((0, 0.0), sum)
    };
    let cases = comparisons as u64 * plan.designs.len() as u64 * plan.seeds;
    let each = plan.designs.len() as f64 * plan.seeds as f64;
    let table = Table::facts(
        plan.name.as_str(),
        plan.question.as_str(),
        &facts(plan, &prepared, points.len(), cases, total_ns * each),
    );
    let too_short = prepared.too_short().or_else(|| too_short(&points));
    Ok((table, too_short))
}

/// Returns a warning if some runs of a sweep are too short to show the difference between two
/// designs. `points` are the sweep's combinations of values.
#[must_use]
pub fn too_short(points: &[Point]) -> Option<String> {
    let of_point = |point: &Point| prepare(&point.plan).ok()?.too_short();
    points.iter().find_map(of_point)
}

fn facts(
    plan: &Plan,
    prepared: &Prepared<'_>,
    points: usize,
    cases: u64,
    total_ns: f64,
) -> Vec<(&'static str, String)> {
    let machines = prepared.machines.iter().map(|planned| {
        format!(
            "{} ({} CPUs)",
            planned.machine,
            planned.profile.topology.cpus()
        )
    });
    let parameters = prepared
        .workload
        .parameters
        .iter()
        .map(|of| format!("{} {}", of.name, prepared.machines[0].values.get(of.name)));
    let parameters: Vec<String> = parameters.collect();
    let mut facts = vec![
        ("machines", machines.collect::<Vec<_>>().join(", ")),
        (
            "workload",
            format!("{}: {}", plan.workload, parameters.join(", ")),
        ),
    ];
    facts.extend(designs(plan));
    facts.extend([
        ("seeds", plan.seeds.to_string()),
        ("length", human(prepared.length.0 as f64, Unit::Nanos)),
    ]);
    if let Some(sweep) = &plan.sweep {
        let axes = sweep
            .axes
            .iter()
            .map(|axis| format!("{} ({} values)", axis.target.key(), axis.values.len()));
        facts.push((
            "points",
            format!("{points}: {}", axes.collect::<Vec<_>>().join(" x ")),
        ));
    }
    let moments: Vec<String> = plan.timeline.iter().map(timeline::about).collect();
    if !moments.is_empty() {
        facts.push(("timeline", moments.join("; ")));
    }
    if !plan.metrics.is_empty() || plan.sweep.is_some() {
        let shown = if plan.metrics.is_empty() {
            metrics::OF_SWEEP.join(", ")
        } else {
            plan.metrics.join(", ")
        };
        facts.push(("metrics", shown));
    }
    facts.push((
        "cases",
        format!(
            "{cases}, with {} of virtual time",
            human(total_ns, Unit::Nanos)
        ),
    ));
    facts
}

/// Makes a line for each design. The designs do not share a line, because a label can contain a
/// comma. A line begins with the head that reports use for the design, such as A. If the user chose
/// the label, a description of the design follows.
fn designs(plan: &Plan) -> Vec<(&'static str, String)> {
    let heads = answer::letters(plan.designs.len());
    let line = |((nth, of), head): ((usize, &DesignOf), String)| {
        let DesignOf {
            label,
            design,
            knobs,
        } = of;
        let what = if nth == 0 { "designs" } else { "" };
        let described = label_of(design, knobs);
        let is = if *label == described {
            format!("{head}: {label}")
        } else {
            format!("{head}: {label} ({described})")
        };
        (what, is)
    };
    plan.designs
        .iter()
        .enumerate()
        .zip(heads)
        .map(line)
        .collect()
}

/// Makes tables of the experiments of the catalog and, if `folder` is given, of the experiment
/// files in `folder`.
///
/// # Errors
/// [`Error::Invalid`] if the folder cannot be read.
pub fn list(folder: Option<&Path>) -> Result<Vec<Table>, Error> {
    let mut tables = vec![tabulate!(
        "Built-in experiments",
        "`plimsoll reproduce NAME` runs one.",
        &CATALOG[..],
        |experiment| {
            "name" => experiment.name(),
            "question" => experiment.question(),
        }
    )];
    if let Some(folder) = folder {
        tables.push(files(folder)?);
    }
    Ok(tables)
}

fn files(folder: &Path) -> Result<Table, Error> {
    let shown = folder.display();
    let unreadable =
        |why: std::io::Error| Error::Invalid(format!("{shown}: cannot be read: {why}"));
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|of| of == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let rows = paths.iter().map(|path| {
        let question = question(path)
            .unwrap_or_else(|_| "not an experiment: `plimsoll check` says why".to_owned());
        vec![path.display().to_string(), question]
    });
    Ok(Table {
        title: format!("Experiment files in {shown}"),
        note: "`plimsoll run FILE` runs one.".to_owned(),
        columns: ["file", "question"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    })
}

/// The question of the experiment file at `path`.
fn question(path: &Path) -> Result<String, Error> {
    if let Some(experiment) = experiment::of_file(path)? {
        return Ok(experiment.question().to_owned());
    }
    Ok(check_form(FromFile::load(path)?)?.question)
}

fn check_form(from_file: FromFile) -> Result<Plan, Error> {
    prepare(&from_file.plan).map(drop).map_err(command::first)?;
    Ok(from_file.plan)
}
