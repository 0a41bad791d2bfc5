//! `plimsoll linux build`: builds a kernel that can be booted and recorded.

use std::env;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_linux::build::{self, BuildEvent, Error, Rate, Recipe, SemanticPatch, Tools};
use plimsoll_linux::package::cache;

use crate::output::{self, BadInput};

/// The folder of the repository that has the semantic patches.
const PATCHES: &str = "kernel";
/// The interval at which a spinner moves while a step reports no progress.
const TICK: Duration = Duration::from_millis(200);

/// Builds a kernel to boot: Debian's packaged source, configured for recordings
///
/// The source is fetched with `apt-get download` and not installed: 150 MB, 2 GB unpacked. A first
/// build takes about ten minutes on two CPUs, a build with another patch one minute. An interrupted
/// build resumes.
#[derive(Debug, clap::Args)]
pub(crate) struct LinuxBuild {
    /// The series of kernels
    #[arg(long, value_name = "X.Y", default_value = "6.12")]
    series: String,
    /// Timer interrupts a second
    #[arg(long, value_name = "HZ", default_value = "1000")]
    hz: Hz,
    /// Applies a semantic patch by this name: phased, bounded; may be given more than once
    #[arg(long, value_name = "NAME")]
    patch: Vec<String>,
    /// The folder of semantic patches [default: kernel/ of the checkout]
    #[arg(long, value_name = "DIR")]
    patches: Option<PathBuf>,
    /// Lets the kernel check its locks, lists, timers and memory management while it runs (lockdep,
    /// DEBUG_VM): warnings in its log show what a patch breaks. Such a kernel is several times
    /// slower
    #[arg(long)]
    debug: bool,
    /// Runs this many compilers at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// The folder for sources, objects and kernels [default: plimsoll in the user's cache]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Hz {
    #[value(name = "250")]
    Hz250,
    #[value(name = "1000")]
    Hz1000,
}

pub(crate) fn run(args: &LinuxBuild) -> anyhow::Result<()> {
    let rate = match args.hz {
        Hz::Hz250 => Rate::Hz250,
        Hz::Hz1000 => Rate::Hz1000,
    };
    let recipe = Recipe::new(&args.series, rate, patches(args)?).map_err(told)?;
    let recipe = if args.debug { recipe.checked() } else { recipe };
    let cache = cache_folder(args.cache.clone())?;
    let cpus = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = args.jobs.unwrap_or_else(cpus);
    // indicatif hides the bar if standard error is not a terminal.
    let bar = ProgressBar::no_length();
    let built = build::build(
        &Tools::of_environment(),
        &recipe,
        &cache,
        jobs,
        &mut |step| {
            show(&bar, step);
        },
    );
    bar.finish_and_clear();
    let built = built.map_err(told)?;
    output::print(&format!(
        "{}\nLinux {}, from {}\nto boot it: `plimsoll linux --kernel` with this file\n",
        built.image.display(),
        built.release,
        built.package
    ))
}

fn patches(args: &LinuxBuild) -> anyhow::Result<Vec<SemanticPatch>> {
    if args.patch.is_empty() {
        return Ok(Vec::new());
    }
    let folder = args
        .patches
        .clone()
        .or_else(|| checkout()?.join(PATCHES).into());
    let folder = folder.ok_or_else(|| {
        BadInput(
            "the semantic patches are in kernel/ of the repository: name it with --patches"
                .to_owned(),
        )
    })?;
    let read = |name: &String| SemanticPatch::read(name, &folder).map_err(told);
    args.patch.iter().map(read).collect()
}

/// Returns the checkout of the repository that contains the current folder or this program.
fn checkout() -> Option<PathBuf> {
    let is_checkout = |folder: &&Path| !build::names(&folder.join(PATCHES)).is_empty();
    let starts = [env::current_dir().ok(), env::current_exe().ok()];
    let mut starts = starts.iter().flatten();
    starts.find_map(|start| start.ancestors().find(is_checkout).map(Path::to_owned))
}

fn cache_folder(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let found = named.map_or_else(cache::folder, Ok)?;
    // The path must be absolute, because `make` runs in other folders.
    std::path::absolute(&found).with_context(|| format!("cannot find {}", found.display()))
}

/// Turns an error that the user can correct into [`BadInput`], for which the program exits with 2.
fn told(error: Error) -> anyhow::Error {
    if error.is_bad_input() {
        BadInput(error.to_string()).into()
    } else {
        error.into()
    }
}

fn show(bar: &ProgressBar, step: BuildEvent<'_>) {
    match step {
        BuildEvent::Begins(what) => {
            bar.set_style(style("{spinner} {msg}, {elapsed}"));
            bar.set_message(what.to_owned());
            bar.reset();
            bar.enable_steady_tick(TICK);
        }
        BuildEvent::Compiled { done: 0, left } => {
            if let Some(left) = left {
                bar.set_length(left);
                bar.set_style(style(
                    "{msg} [{bar:24}] {pos} of about {len} objects, {elapsed}",
                ));
            } else {
                bar.set_style(style("{spinner} {msg}, {pos} objects, {elapsed}"));
            }
        }
        BuildEvent::Compiled { done, .. } => bar.set_position(done),
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("a constant that a test renders");
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_can_be_shown() {
        let bar = ProgressBar::hidden();
        show(&bar, BuildEvent::Begins("compiling"));
        show(
            &bar,
            BuildEvent::Compiled {
                done: 0,
                left: Some(9),
            },
        );
        show(
            &bar,
            BuildEvent::Compiled {
                done: 4,
                left: Some(9),
            },
        );
        assert_eq!((bar.position(), bar.length()), (4, Some(9)));
        show(&bar, BuildEvent::Begins("compiling again"));
        show(
            &bar,
            BuildEvent::Compiled {
                done: 0,
                left: None,
            },
        );
        show(
            &bar,
            BuildEvent::Compiled {
                done: 2,
                left: None,
            },
        );
        assert_eq!(
            (bar.position(), bar.message()),
            (2, "compiling again".to_owned())
        );
    }

    #[test]
    fn the_checkout_is_found_from_a_folder_inside() {
        // Cargo runs tests in the folder of their crate, which is inside the checkout.
        let found = checkout().expect("this is a checkout");
        assert!(found.join(PATCHES).join("phased.cocci").is_file());
    }
}
