//! `plimsoll explain`: says which CPUs waited longest in a run whose results were kept, and why.
//!
//! The store of results does not record what each CPU did during a run. So this command runs the
//! first seed of each design again; the same inputs give the same run. The hashes of the kept run
//! show whether the repeated run is really the same.

use clap::Parser;
use plimsoll_lab::explain::{self, Explanation};
use plimsoll_lab::plan::command::first;
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::prepare;
use plimsoll_lab::replay::{self, ReplayOptions};
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::slices::{Slices, Traces};
use plimsoll_lab::store::{Kept, Store};

use crate::args::{Args, Command};
use crate::command::{compare, experiment, replay as replay_command};
use crate::explain_args::{Explain, Form};
use crate::output::{self, BadInput};
use crate::runs::jobs_or_cpus;
use crate::store::{folder, warn};

pub(crate) fn run(args: Explain) -> anyhow::Result<()> {
    let store = Store::open(&folder(args.store))?;
    let kept = store.find(&args.run)?;
    let again = Again::of(&kept, Jobs::new(jobs_or_cpus(args.jobs)))?;
    let longest = again.run(&explain::first_pass())?;
    check(&kept, &longest)?;
    let slices = again.run(&explain::second_pass(&longest))?;
    let explanations: Vec<Explanation> = slices.iter().map(explain::explain).collect();
    let mut texts = Vec::new();
    for explanation in &explanations {
        texts.push(match args.format {
            Form::Text => explain::text(explanation, output::width()),
            Form::Json => explanation.json() + "\n",
        });
    }
    let between = match args.format {
        Form::Text => "\n",
        Form::Json => "",
    };
    output::print(&texts.join(between))
}

/// A command whose results were kept, to be run again.
struct Again {
    command: Command,
    jobs: Jobs,
}

impl Again {
    fn of(kept: &Kept, jobs: Jobs) -> anyhow::Result<Self> {
        let id = &kept.head.id;
        let refused = |why: String| BadInput(format!("{id} cannot be explained: {why}"));
        let words = std::iter::once("plimsoll").chain(kept.head.command.iter().map(String::as_str));
        let args = Args::try_parse_from(words).map_err(|_| {
            let line = kept.head.command_line();
            refused(format!("this version does not know the command `{line}`"))
        })?;
        match &args.command {
            Command::Run(of) if experiment::is_built_in(of)? => {
                let why = "it ran a built-in experiment, which has several workloads; explain a run of \
                           `compare`";
                return Err(refused(why.to_owned()).into());
            }
            Command::Compare(_) | Command::Run(_) => {}
            Command::Replay(of) if !replay_command::reads_stdin(of) => {}
            Command::Replay(_) => {
                let why = "it replayed standard input, which was not kept; replay a file instead";
                return Err(refused(why.to_owned()).into());
            }
            _ => {
                let why = "only runs of `compare`, `run` and `replay` can be; `plimsoll results` \
                           lists the runs";
                return Err(refused(why.to_owned()).into());
            }
        }
        Ok(Self {
            command: args.command,
            jobs,
        })
    }

    /// Runs the first seed of each design again, and returns the slices that `traces` keeps: what
    /// each CPU did, and when.
    fn run(&self, traces: &Traces) -> anyhow::Result<Vec<Slices>> {
        let progress = Progress::new();
        let how = How {
            jobs: self.jobs.clone(),
            record: None,
            watch: None,
            trace: Some(traces.clone()),
        };
        match &self.command {
            Command::Compare(args) => {
                let mut plan = compare::plan(args)?;
                plan.seeds = 1;
                let prepared = prepare::prepare(&plan).map_err(first)?;
                drive::trace(&prepared, &how, &progress)?;
            }
            Command::Run(args) => {
                let mut from_file = experiment::load(args)?;
                from_file.plan.seeds = 1;
                if from_file.plan.sweep.is_some() {
                    let why = "a sweep cannot be explained: remove the table [sweep] of the file, run it, and \
                               explain that run";
                    return Err(BadInput(why.to_owned()).into());
                }
                let prepared = prepare::prepare(&from_file.plan);
                let prepared = prepared.map_err(|problems| from_file.locate(&problems))?;
                drive::trace(&prepared, &how, &progress)?;
            }
            Command::Replay(args) => {
                let mut options = ReplayOptions {
                    jobs: self.jobs.clone(),
                    trace: Some(traces.clone()),
                    ..replay_command::options(args)
                };
                options.seeds.truncate(1);
                replay::run(&options, &progress)?;
            }
            _ => unreachable!("other commands were refused"),
        }
        progress.finish();
        Ok(traces.take())
    }
}

/// Warns if a repeated run, in `again`, differs from the run whose results were kept.
fn check(kept: &Kept, again: &[Slices]) -> anyhow::Result<()> {
    let cases = kept.cases()?;
    for run in again {
        let of_run = cases.iter().find(|case| {
            case.design == run.design
                && case.seed == run.seed
                && case.comparison.title.machine == run.machine
        });
        let hash = format!("{:016x}", run.hash);
        if of_run.is_some_and(|case| case.hash != hash) {
            let program = &kept.head.program;
            warn(&format_args!(
                "the run of {} differs from the one in {}, which version {} of commit {} made; \
                 this explains the run of this version, with the files as they are now",
                run.design, kept.head.id, program.version, program.commit
            ));
        }
    }
    Ok(())
}
