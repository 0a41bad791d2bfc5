//! Makes the inputs that a store keeps with a run: everything that determines the results of the
//! run.

use std::fmt::Debug;
use std::path::Path;

use plimsoll_sim::profile::Card;

use super::hash_of;
use super::head::{Inputs, Machine};
use crate::catalog::machines::machine_at;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::plan::Plan;
use crate::plan::sweep::Point;
use crate::replay::ReplayOptions;
use crate::run::aging::Memory;
use crate::run::options::{Effort, Options};

/// The machines and the inputs of `experiments` that run with `options`.
#[must_use]
pub fn of_experiments(
    experiments: &[&dyn Experiment],
    options: &Options,
) -> (Vec<Machine>, Inputs) {
    let mut machines: Vec<Machine> = Vec::new();
    for experiment in experiments {
        let all = experiment.machines();
        let used = match options.effort {
            Effort::Full => &all[..],
            Effort::Quick => &all[..1],
        };
        for name in used {
            let machine = machine(*experiment, name, options);
            if !machines.contains(&machine) {
                machines.push(machine);
            }
        }
    }
    let names: Vec<&str> = experiments
        .iter()
        .map(|experiment| experiment.name())
        .collect();
    let card = options
        .card
        .map_or("each experiment's".to_owned(), |count| count.to_string());
    let memory = options.memory.map_or("each experiment's", Memory::name);
    let inputs = inputs([
        ("experiments", names.join(" ")),
        ("seeds", seeds(&options.seeds)),
        ("card", card),
        ("memory", memory.to_owned()),
        ("effort", word(&options.effort)),
        ("jitter", word(&options.jitter)),
    ]);
    (machines, inputs)
}

/// The machines on which a plan and all `points` (combinations of values) of its sweep run, each
/// machine once.
///
/// # Errors
/// If a machine is unknown or its profile is bad.
pub fn machines_of(plan: &Plan, points: &[Point]) -> Result<Vec<Machine>, Error> {
    let of_points = points.iter().flat_map(|point| &point.plan.machines);
    let mut names: Vec<&String> = Vec::new();
    for name in plan.machines.iter().chain(of_points) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let load = |name: &String| Machine::load(&machine_at(&plan.folder, name), plan.card);
    names.into_iter().map(load).collect()
}

/// The inputs of an experiment file that is called `file` and has the hash `hash`. `settings` are
/// the knobs that were set outside this file, each as `KNOB=VALUE`.
#[must_use]
pub fn of_file(file: &str, hash: String, plan: &Plan, settings: &[&str]) -> Inputs {
    inputs([
        ("experiment", file.to_owned()),
        ("hash of the file", hash),
        ("knobs", settings.join(" ")),
        ("seeds", format!("1 to {}", plan.seeds)),
    ])
}

/// The inputs of a replay: everything that determines its results.
#[must_use]
pub fn of_replay(options: &ReplayOptions) -> Inputs {
    let hash = hash_of(Path::new(&options.file)).unwrap_or_else(|_| "unknown".to_owned());
    let default = |of: &Option<String>| of.clone().unwrap_or_else(|| "default".to_owned());
    inputs([
        ("recording", options.file.clone()),
        ("hash of the recording", hash),
        ("machine", options.machine.clone()),
        ("scale", options.scale.to_string()),
        ("design A", default(&options.a)),
        ("design B", default(&options.b)),
        ("seeds", seeds(&options.seeds)),
        ("card", options.card.to_string()),
    ])
}

/// The machine that `experiment` declares under the name `name`.
fn machine(experiment: &dyn Experiment, name: &str, options: &Options) -> Machine {
    let name = options.on(name);
    let load = || Machine::load(&name, options.card.unwrap_or(Card::Mid)).ok();
    // The machine of the self-test has only a name, so it cannot be loaded.
    let loaded = experiment.is_simulated().then(load).flatten();
    loaded.unwrap_or_else(|| Machine::unpriced(&name))
}

/// Converts an array of names and their values to [`Inputs`].
#[must_use]
pub fn inputs<const N: usize>(pairs: [(&str, String); N]) -> Inputs {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The seeds as text: consecutive seeds as `1 to 6`, and other seeds as `3 9`.
#[must_use]
pub fn seeds(seeds: &[u64]) -> String {
    match seeds {
        [first, .., last] if seeds.windows(2).all(|pair| pair[0] + 1 == pair[1]) => {
            format!("{first} to {last}")
        }
        _ => seeds
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// The name of an enum's variant in lower case, as the value of an input.
#[must_use]
pub fn word(choice: &impl Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    #[test]
    fn the_inputs_of_experiments_are_what_decides_their_results() {
        let names = ["selftest", "oom-storm"];
        let experiments = names.map(|name| experiment::find(name).unwrap());
        let mut options = Options::of_seeds(6);
        options.effort = Effort::Quick;
        let (machines, inputs) = of_experiments(&experiments, &options);
        assert_eq!(inputs["experiments"], "selftest oom-storm");
        assert_eq!((&*inputs["seeds"], &*inputs["effort"]), ("1 to 6", "quick"));
        assert_eq!(machines[0], Machine::unpriced("no machine"));
        assert_eq!(machines.len(), 2);
        assert_eq!(machines[1].profile.len(), 16);
        options.card = Some(Card::High);
        let (others, of_high) = of_experiments(&experiments, &options);
        assert_ne!(others[1].profile, machines[1].profile);
        assert_eq!(of_high["card"], "high");
    }

    #[test]
    fn seeds_are_a_range_where_they_are_one() {
        assert_eq!(
            [seeds(&[1, 2, 3]), seeds(&[7]), seeds(&[3, 9])],
            ["1 to 3", "7", "3 9"]
        );
    }
}
