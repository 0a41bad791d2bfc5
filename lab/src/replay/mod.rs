//! Replays a recording on a simulated machine of any size.
//!
//! Each recorded CPU becomes a task on a simulated CPU, which allocates and frees the recorded
//! blocks at the recorded times. A scaled replay runs several copies of the recording side by side.
//! Each copy has its own CPUs and starts at a slightly different time. `plan` determines the
//! operations of each CPU, and `perform` performs these operations.
//!
//! If the recording shows the contents of the per-CPU page lists, the replay starts with these
//! lists and with the recorded amount of free memory. In this case, `warm` derives the operations
//! and `start` sets this state. Both use code of [`crate::exact`]. Otherwise, the replay starts
//! with empty lists and all memory free.

mod perform;
mod plan;
mod start;
mod warm;

use std::num::NonZeroU32;

use plimsoll_sim::profile::{Card, Profile};

use self::perform::{Performed, ReplaySetup};
use self::plan::Plan;
use self::start::{Start, Why};
use crate::catalog::designs::{self, Named};
use crate::catalog::machines;
use crate::error::Error;
use crate::exact::pages::History;
use crate::measure::comparison::Comparison;
use crate::measure::holds;
use crate::measure::locks;
use crate::measure::metric::Unit;
use crate::plan::difference::why_replays_are_identical;
use crate::report::answer::Identical;
use crate::report::value::human;
use crate::report::{Report, Table, answer};
use crate::run::as_recording::{self, Recordings};
use crate::run::jobs::Jobs;
use crate::run::options::{Determinism, Effort, Jitter, Options};
use crate::run::progress::Progress;
use crate::slices::Traces;
use crate::trace::Recording;
use crate::watch::Courses;

/// The user's options for a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The recording, or `-` for standard input.
    pub file: String,
    /// The name of a built-in machine, or the path of a profile file.
    pub machine: String,
    /// The number of copies of the recording that run side by side, each on its own CPUs.
    pub scale: NonZeroU32,
    /// The design to compare with. `None` stands for `linux`.
    pub a: Option<String>,
    /// The design to evaluate. With `None`, only design A runs.
    pub b: Option<String>,
    /// The seeds. Each design runs on each seed.
    pub seeds: Vec<u64>,
    /// How many cases (a seed with a design) run in parallel.
    pub jobs: Jobs,
    /// The price card. It takes every price (the time of a simulated step) from the low end, the
    /// middle or the high end of its range.
    pub card: Card,
    /// The maximum number of events to record of the run with the first seed. `None` records
    /// nothing.
    pub record: Option<usize>,
    /// Where to keep the course of each design's run with the first seed: what happened in the run,
    /// over virtual time. `None` if no run is watched.
    pub watch: Option<Courses>,
    /// Where to keep the slices (what each CPU and task did, and when) of each design's run with
    /// the first seed. `None` traces nothing.
    pub trace: Option<Traces>,
}

/// Replays a recording and reports tables of its locks and page lists.
///
/// # Errors
/// If the machine or design is unknown, the profile or the recording is bad, or the machine has too
/// few CPUs for all copies of the recording.
pub fn run(options: &ReplayOptions, progress: &Progress) -> Result<(Report, Recordings), Error> {
    // Names are checked before the recording is read, so that a misspelt name fails at once.
    let profile = Profile {
        // The recorded times already contain disturbances, such as interrupts, so the simulator
        // adds none.
        jitter: None,
        ..machines::load(&options.machine, options.card)?
    };
    let a = options.a.as_deref().unwrap_or("linux");
    let names = [Some(a), options.b.as_deref()].into_iter().flatten();
    let designs = designs::find_different(&names.collect::<Vec<_>>())?;
    let contents = plimsoll_recording::Recording::read(&options.file)?;
    let history = History::of(&contents.recording);
    let warm = history
        .as_ref()
        .map(|history| warm::plan(history, &contents.recording.events));
    let why = if contents.recording.header.text("zoneinfo before").is_some() {
        Why::NoRefills
    } else {
        Why::NoZoneinfo
    };
    let recording = Recording::of(contents)?;
    let plan = warm.unwrap_or_else(|| Plan::of(&recording));
    let start = match &history {
        Some(history) => Start::Recorded(&history.state),
        None => Start::Cold(why),
    };
    check_scale(&plan, options.scale, &profile)?;

    let place = |name: &str| {
        designs
            .iter()
            .position(|of| of.name == name)
            .unwrap_or_default()
    };
    progress.start_on("replay", &profile.name, "");
    let (runs, performed) =
        Comparison::run_keeping(&designs, &of_replay(options), progress, |case| {
            let is_first = case.seed == options.seeds[0];
            let record = options.record.filter(|_| is_first);
            let trace = options.trace.as_ref().filter(|_| is_first);
            let setup = ReplaySetup {
                profile: &profile,
                scale: options.scale.get(),
                file: &options.file,
                start,
                record,
                trace: trace.map(|traces| (traces, place(&case.design.name))),
            };
            perform::run(&plan, &setup, case)
        })?;
    let mut performed: Vec<(&str, Performed)> = designs
        .iter()
        .map(|design| design.name.as_str())
        .zip(performed)
        .collect();

    let mut report = compared(options, &profile.name, &designs, &runs);
    report.tables = recording.summary.tables();
    for (name, performed) in &performed {
        report.tables.extend(locks::tables(name, &performed.stats));
    }
    report
        .tables
        .push(lists(&recording, options, start, &performed));
    report.finding = finding(&plan, options, start, &performed);
    report.warnings = recording.warnings.iter().map(ToString::to_string).collect();
    let taken = performed
        .iter_mut()
        .filter_map(|(name, performed)| Some(((*name).to_owned(), performed.recording.take()?)));
    let recordings: Recordings = taken.collect();
    let shorter = "replay fewer copies or a shorter recording";
    report
        .warnings
        .extend(as_recording::warnings(&recordings, shorter));
    Ok((report, recordings))
}

/// Makes the report of `runs` on `machine`: the answer, the rows and the verdicts. `designs` are
/// the designs of the runs.
fn compared(
    options: &ReplayOptions,
    machine: &str,
    designs: &[Named],
    runs: &Comparison,
) -> Report {
    let identical = (1..designs.len()).filter(|&nth| runs.are_identical(0, nth));
    let identical = identical.map(|nth| Identical {
        a: designs[0].name.clone(),
        b: designs[nth].name.clone(),
        why: why_replays_are_identical(designs[0].design, designs[nth].design),
    });
    let (seeds, hash) = (runs.seeds(), runs.hash());
    let mut report = Report::new("replay", machine, options.card, seeds, hash);
    report.rows = runs.rows(|_, _| None);
    report.verdicts = runs.verdicts(0);
    report.answer = answer::of_designs(
        question(options, runs.designs(), machine),
        runs.designs(),
        &HEADLINES,
        (&report.rows, &report.verdicts),
        identical.collect(),
    );
    report
}

/// The metrics with which a report begins: how often and how long CPUs wait for the zone locks.
const HEADLINES: [&str; 3] = ["contentions", "total_wait_ns", "wait_max_ns"];

fn question(options: &ReplayOptions, designs: &[String], machine: &str) -> String {
    let copies = match options.scale.get() {
        1 => "the recording runs".to_owned(),
        copies => format!("{copies} copies of the recording run"),
    };
    match designs {
        [only] => format!("How long do CPUs wait if {copies} under `{only}` on {machine}?"),
        _ => format!(
            "What changes if {copies} on {machine} with {}?",
            answer::instead_of(designs)
        ),
    }
}

fn of_replay(options: &ReplayOptions) -> Options {
    Options {
        seeds: options.seeds.clone(),
        jobs: options.jobs.clone(),
        card: Some(options.card),
        memory: None,
        effort: Effort::Full,
        determinism: Determinism::Trust,
        jitter: Jitter::Off,
        watch: options.watch.clone(),
    }
}

fn check_scale(plan: &Plan, scale: NonZeroU32, profile: &Profile) -> Result<(), Error> {
    let (recorded, there) = (plan.cpus(), profile.topology.cpus());
    if recorded.saturating_mul(scale.get()) <= there {
        return Ok(());
    }
    let advice = match there / recorded {
        0 => "name a larger machine".to_owned(),
        most => format!("scale it by at most {most}"),
    };
    Err(Error::Invalid(format!(
        "{} has {there} CPUs, but {scale} times the recording's {recorded} are needed; {advice}",
        profile.name
    )))
}

/// Makes a table of the pages that moved between page lists and zones, beside the number of
/// `mm_page_pcpu_drain` events in the recording.
fn lists(
    recording: &Recording,
    options: &ReplayOptions,
    start: Start<'_>,
    performed: &[(&str, Performed)],
) -> Table {
    let mut rows: Vec<Vec<String>> = performed
        .iter()
        .flat_map(|(name, performed)| performed.holds.rows(name))
        .collect();
    let drains = recording.summary.drains * u64::from(options.scale.get());
    if drains > 0 {
        let recorded = ["recorded", "mm_page_pcpu_drain"].map(str::to_owned);
        let mut row = recorded.to_vec();
        row.extend([String::new(), human(drains as f64, Unit::Count)]);
        row.resize(holds::COLUMNS.len(), String::new());
        rows.push(row);
    }
    Table {
        title: "Pages between lists and zones, first seed".to_owned(),
        note: match start {
            Start::Cold(_) => {
                "The recorded machine had its own list sizes and a history; here all memory is free \
                 and lists are empty at the start."
            }
            Start::Recorded(_) => {
                "Lists begin with the sizes and pages that the recorded machine's had."
            }
        }
        .to_owned(),
        columns: holds::COLUMNS.map(str::to_owned).to_vec(),
        rows,
    }
}

fn finding(
    plan: &Plan,
    options: &ReplayOptions,
    start: Start<'_>,
    performed: &[(&str, Performed)],
) -> String {
    let number = |count: u64| human(count as f64, Unit::Count);
    let older = match start {
        Start::Cold(_) => "were left out",
        Start::Recorded(_) => "free memory that was in use at the start",
    };
    let mut text = format!(
        "{} allocations and {} frees of {} CPUs, {} times side by side; {} frees of pages that \
         were not allocated in the recording {older}. {}",
        number(plan.allocs),
        number(plan.frees),
        plan.cpus(),
        options.scale,
        number(plan.unmatched),
        beginning(options, start, performed),
    );
    for (name, performed) in performed {
        text.push_str(&format!(
            " Under {name} {} allocations failed, {} frees came before their allocation and were \
             dropped, and the slowest CPU ended {} behind the recording.",
            performed.failed,
            performed.dropped,
            human(performed.lag.0 as f64, Unit::Nanos),
        ));
    }
    text
}

/// A sentence that describes the state in which the replay started.
fn beginning(options: &ReplayOptions, start: Start<'_>, performed: &[(&str, Performed)]) -> String {
    let state = match start {
        Start::Cold(why) => {
            return format!(
                "It begins with empty lists and all memory free, because {}.",
                why.text()
            );
        }
        Start::Recorded(state) => state,
    };
    if let Some(refused) = performed.iter().find_map(|(_, run)| run.refused.as_ref()) {
        return format!(
            "It begins with empty lists: the recorded state could not be set, {refused}."
        );
    }
    let free: u64 = state.zones.iter().map(|zone| zone.free).sum();
    let listed = performed.first().map_or(0, |(_, run)| run.listed);
    let number = |count: u64| human(count as f64, Unit::Count);
    format!(
        "It begins as the recorded machine was when /proc/zoneinfo was read: {} pages on the lists of \
         its CPUs, {} free, with its watermarks and sizes of lists.",
        number(listed),
        number(free * u64::from(options.scale.get())),
    )
}
