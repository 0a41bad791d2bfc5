//! `cargo xtask mutants`: changes the code of `mm` and checks that the tests of `mm` notice the
//! changes. A changed version of the code is a mutant.
//!
//! Building a mutant takes longer than testing it. So all mutants are built together, each behind a
//! switch (`rewrite`, `build`), and then the tests run on one mutant after the other (`judge`).

mod build;
mod change;
mod groups;
mod judge;
mod options;
mod outcomes;
mod rewrite;
mod sample;
mod score;
mod survivors;
mod tool;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use build::{Build, How};
use groups::Group;
use judge::{Fate, Judge};
use options::Options;
use rewrite::Numbered;
use sample::Mutant;
use score::Score;

pub(crate) use survivors::{FILE as SURVIVORS, parse as parse_survivors};

/// Tries the mutants that `args` select. Returns an error if one of these mutants survives and is
/// not in the list of accepted survivors.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let groups = groups::read(root, &options.groups)?;
    let accepted = survivors::read(root)?;
    let listed = sample::with_keys(tool::list(root, &groups, &options)?);
    let mut all: Vec<(&Group, Mutant)> = Vec::new();
    for mutant in listed {
        let group = groups.iter().find(|group| group.has(&mutant.change.file));
        let group = group.ok_or_else(|| format!("{} is in no group", mutant.name))?;
        all.push((group, mutant));
    }
    if options.again {
        let survivors = outcomes::survivors(&root.join(build::FOLDER))?;
        all.retain(|(_, mutant)| survivors.contains(&mutant.name));
    }
    if options.list {
        let chosen = shard(first_choice(&all, &options), options.shard);
        let names: Vec<&str> = chosen.iter().map(|at| &*all[*at].1.name).collect();
        return print(&(names.join("\n") + "\n"));
    }
    let mut build = Build::new(root)?;
    let chosen = shard(choose(&all, &options, &mut build)?, options.shard);
    if chosen.is_empty() {
        return Err("no mutant to try: the chosen groups and options select none".to_owned());
    }
    let fates = judge_all(root, &all, &chosen, &mut build, &options)?;
    outcomes::write(&root.join(build::FOLDER), &all, &fates)?;
    let mut score = Score::default();
    for group in &groups {
        let of_group = fates.iter().filter(|(at, _)| all[**at].0 == group);
        let of_group: Vec<_> = of_group.map(|(at, fate)| (&all[*at].1, fate)).collect();
        if !of_group.is_empty() {
            score.add(&group.name, &of_group, &accepted);
        }
    }
    print(&score.to_string())?;
    score.verdict()
}

/// Returns the positions of all mutants in the order in which `seed` draws them.
fn draw(all: &[(&Group, Mutant)], seed: u64) -> Vec<usize> {
    let mutants: Vec<&Mutant> = all.iter().map(|(_, mutant)| mutant).collect();
    sample::drawn(&mutants, seed)
}

/// Returns the positions of all mutants. If the options request a sample, returns only the
/// positions of as many drawn mutants as the sample has.
fn first_choice(all: &[(&Group, Mutant)], options: &Options) -> Vec<usize> {
    let Some(count) = options.sample else {
        return (0..all.len()).collect();
    };
    let mut drawn = draw(all, options.seed);
    drawn.truncate(count);
    drawn.sort_unstable();
    drawn
}

/// Returns the positions of the mutants to try. If the options request a sample, draws mutants
/// until enough of them compile. The result then also has the drawn mutants that do not compile.
fn choose(
    all: &[(&Group, Mutant)],
    options: &Options,
    build: &mut Build,
) -> Result<Vec<usize>, String> {
    let Some(count) = options.sample else {
        let every: Vec<usize> = (0..all.len()).collect();
        build.settle(&numbered(all, &every))?;
        return Ok(every);
    };
    let drawn = draw(all, options.seed);
    // About one in four mutants does not compile, so this code draws a third more mutants than the
    // sample needs.
    let mut taken = count + count / 3;
    loop {
        taken = taken.min(drawn.len());
        build.settle(&numbered(all, &drawn[..taken]))?;
        let mut viable = 0;
        let is_needed = |at: &&usize| {
            let is_needed = viable < count;
            viable += usize::from(build.how(**at) != How::Unviable);
            is_needed
        };
        let mut chosen: Vec<usize> = drawn[..taken]
            .iter()
            .take_while(is_needed)
            .copied()
            .collect();
        if viable >= count || taken == drawn.len() {
            chosen.sort_unstable();
            return Ok(chosen);
        }
        taken += 2 * (count - viable);
    }
}

/// Divides the mutants into `of` parts, and returns the part with index `part`: every `of`-th
/// mutant, from the one at index `part` on.
fn shard(mutants: Vec<usize>, (part, of): (usize, usize)) -> Vec<usize> {
    mutants.into_iter().skip(part).step_by(of).collect()
}

/// Returns the changes of the mutants at `positions`, each with the mutant's number, which is its
/// position in `all`.
fn numbered<'m>(all: &'m [(&Group, Mutant)], positions: &[usize]) -> Vec<Numbered<'m>> {
    let numbered = positions.iter().map(|at| (*at, &all[*at].1.change));
    numbered.collect()
}

/// Builds the chosen mutants and runs the tests on each.
fn judge_all(
    root: &Path,
    all: &[(&Group, Mutant)],
    chosen: &[usize],
    build: &mut Build,
    options: &Options,
) -> Result<BTreeMap<usize, Fate>, String> {
    eprintln!("mutants: building {} of {}", chosen.len(), all.len());
    let programs = build.switched(&numbered(all, chosen))?;
    let mut groups: Vec<&Group> = chosen.iter().map(|at| all[*at].0).collect();
    groups.sort_by_key(|group| &group.name);
    groups.dedup();
    let folder = root.join(build::FOLDER);
    let judge = Judge::new(programs, &groups, options.jobs, &folder)?;
    let (tests, cpu) = judge.cost();
    let built: &Build = build;
    let with = |how| {
        chosen
            .iter()
            .copied()
            .filter(move |at| built.how(*at) == how)
    };
    eprintln!(
        "mutants: {tests} tests take {:.0} s of CPU time; {} mutants have a switch, {} a build of \
         their own",
        cpu.as_secs_f64(),
        with(How::Switched).count(),
        with(How::Alone).count(),
    );
    let switched: Vec<_> = with(How::Switched).map(|at| (at, all[at].0)).collect();
    let mut fates = judge.switched(&switched)?;
    outcomes::write(&folder, all, &fates)?;
    for at in with(How::Alone) {
        fates.insert(at, judge_alone(built, &judge, all[at].0, (at, &all[at].1))?);
    }
    fates.extend(with(How::Unviable).map(|at| (at, Fate::Unviable)));
    Ok(fates)
}

/// Builds one mutant and runs the tests on it. The unit tests come first, because they notice most
/// mutants and take less time to build than the other tests.
fn judge_alone(
    build: &Build,
    judge: &Judge,
    group: &Group,
    (number, mutant): (usize, &Mutant),
) -> Result<Fate, String> {
    let Some(programs) = build.unit_tests(&mutant.change)? else {
        return Ok(Fate::Unviable);
    };
    let fate = judge.alone(programs, group, number)?;
    let Fate::Survived { tests: before } = fate else {
        return Ok(fate);
    };
    let Some(programs) = build.machines(&mutant.change)? else {
        return Ok(Fate::Unviable);
    };
    Ok(match judge.alone(programs, group, number)? {
        Fate::Survived { tests } => Fate::Survived {
            tests: before + tests,
        },
        fate => fate,
    })
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
