//! `cargo xtask mutants`: changes the code of `mm` and checks that its tests notice. A changed
//! version is a mutant.

mod groups;
mod options;
mod sample;
mod score;
mod survivors;
mod tool;

use std::io::{self, Write};
use std::path::Path;

use options::Options;
use sample::Mutant;
use score::Score;

pub(crate) use survivors::{FILE as SURVIVORS, parse as parse_survivors};

/// Tries the mutants that `args` select. It is an error if one survives that is not accepted.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let groups = groups::read(root, &options.groups)?;
    let accepted = survivors::read(root)?;
    let mut mutants: Vec<(usize, Mutant)> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let names = tool::list(root, group, &options)?;
        let listed = sample::with_keys(&names);
        mutants.extend(listed.into_iter().map(|mutant| (at, mutant)));
    }
    let all = mutants.len();
    if let Some(count) = options.sample {
        mutants = sample::sample(&mutants, count, options.seed);
    }
    let (part, of) = options.shard;
    let mutants: Vec<_> = mutants.into_iter().skip(part).step_by(of).collect();
    if options.list {
        let names: Vec<&str> = mutants.iter().map(|(_, mutant)| &*mutant.name).collect();
        return print(&(names.join("\n") + "\n"));
    }
    if mutants.is_empty() {
        return Err("no mutant to try: nothing that was asked for has one".to_owned());
    }
    eprintln!("mutants: {} of {all} are tried", mutants.len());
    let mut score = Score::default();
    for (at, group) in groups.iter().enumerate() {
        let of_group = mutants.iter().filter(|(group, _)| *group == at);
        let of_group: Vec<&Mutant> = of_group.map(|(_, mutant)| mutant).collect();
        if of_group.is_empty() {
            continue;
        }
        let fates = tool::run(root, group, &of_group, &options)?;
        score.add(&group.name, &of_group, &fates, &accepted);
    }
    print(&score.to_string())?;
    score.verdict()
}

/// Prints the usage.
pub(crate) fn help() -> Result<(), String> {
    print(options::USAGE)
}

fn print(text: &str) -> Result<(), String> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| format!("cannot print: {error}"))
}
