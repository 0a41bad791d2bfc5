//! Builds many mutants at once, and finds out which of them compile.

mod blame;
mod compile;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use self::compile::Outcome;
use self::tree::Tree;
use super::change::Change;
use super::rewrite::{FnName, Numbered, Region, rewrite, switch};

pub(crate) use self::compile::Program;
pub(crate) use self::tree::FOLDER;

/// The file of the crate `mm` that declares its modules.
const LIBRARY: &str = "mm/src/lib.rs";

/// The way in which a mutant can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The mutant can be built together with other mutants. A switch, which is set at run time,
    /// turns this mutant on.
    Switched,
    /// The mutant needs a separate build, because the compiler evaluates the changed code, or
    /// because the mutant does not compile together with other mutants.
    Alone,
    /// The mutant does not compile.
    Unviable,
}

/// The copy of the repository, with everything that is known about the mutants built in it.
#[derive(Debug)]
pub(crate) struct Build {
    tree: Tree,
    /// The sources of `mm` without a change, by their paths.
    sources: BTreeMap<String, String>,
    /// For each mutant that has been tried, by its number, the way in which it can be built.
    how: BTreeMap<usize, How>,
    /// The functions that must stay `const`, because the compiler evaluates calls of them. The
    /// mutants in these functions cannot be turned on at run time.
    constants: BTreeSet<FnName>,
}

impl Build {
    /// Copies the repository, and reads the sources of `mm`. No mutant has been tried yet.
    pub(crate) fn new(root: &Path) -> Result<Self, String> {
        let tree = Tree::copy(root)?;
        let mut sources = BTreeMap::new();
        read(root, "mm/src", &mut sources)?;
        Ok(Self {
            tree,
            sources,
            how: BTreeMap::new(),
            constants: BTreeSet::new(),
        })
    }

    /// Finds out which of `mutants` compile, and the way in which each can be built.
    pub(crate) fn settle(
        &mut self,
        mutants: &[Numbered<'_>],
    ) -> Result<&BTreeMap<usize, How>, String> {
        let fresh = |number: &usize| !self.how.contains_key(number);
        let fresh: Vec<usize> = mutants.iter().map(|one| one.0).filter(fresh).collect();
        self.how
            .extend(fresh.iter().map(|number| (*number, How::Switched)));
        self.attempt(mutants, compile::check)?;
        for number in fresh {
            if self.how[&number] != How::Alone {
                continue;
            }
            let change = mutants.iter().find(|one| one.0 == number);
            let change = change.expect("it is one of them").1;
            self.write_one(change)?;
            if !compile::check(&self.tree)?.errors.is_empty() {
                self.how.insert(number, How::Unviable);
            }
        }
        Ok(&self.how)
    }

    /// Builds the test programs with all of `mutants` that a switch can turn on at run time.
    pub(crate) fn switched(&mut self, mutants: &[Numbered<'_>]) -> Result<Vec<Program>, String> {
        // A constant of a test program may call a function, which must then stay `const`. `cargo
        // check` finds such functions in less time than a build.
        self.attempt(mutants, compile::check_machines)?;
        Ok(self.attempt(mutants, compile::all)?.programs)
    }

    /// Builds the unit tests of `mm` with only this change; `None` if the changed code does not
    /// compile.
    pub(crate) fn unit_tests(&self, change: &Change) -> Result<Option<Vec<Program>>, String> {
        self.write_one(change)?;
        compile::unit_tests(&self.tree).map(Outcome::built)
    }

    /// Builds the programs that test `mm` on real threads and in the simulator, with only this
    /// change; `None` if the changed code does not compile.
    pub(crate) fn machines(&self, change: &Change) -> Result<Option<Vec<Program>>, String> {
        self.write_one(change)?;
        compile::machines(&self.tree).map(Outcome::built)
    }

    /// Returns the way in which a mutant can be built. [`Build::settle`] must have tried the
    /// mutant.
    pub(crate) fn how(&self, mutant: usize) -> How {
        self.how[&mutant]
    }

    /// Compiles `mutants` repeatedly, each time without the mutants that caused an error before,
    /// until there is no error.
    fn attempt(
        &mut self,
        mutants: &[Numbered<'_>],
        compile: impl Fn(&Tree) -> Result<Outcome, String>,
    ) -> Result<Outcome, String> {
        loop {
            let regions = self.write_switched(mutants)?;
            let outcome = compile(&self.tree)?;
            if outcome.errors.is_empty() {
                return Ok(outcome);
            }
            let blame = blame::blame(&outcome.errors, &regions)?;
            let known = self.constants.len();
            self.constants.extend(blame.constants);
            let mut is_new = self.constants.len() > known;
            let alone = blame.alone.iter().map(|number| (*number, How::Alone));
            let unviable = blame.unviable.iter().map(|number| (*number, How::Unviable));
            for (number, how) in alone.chain(unviable) {
                is_new |= self.how.insert(number, how) != Some(how);
            }
            if !is_new {
                return Err(format!(
                    "the compiler reports what was settled before:\n{}",
                    outcome.errors[0].rendered
                ));
            }
        }
    }

    /// Writes the sources of `mm` into the copy of the repository, with all of `mutants` that a
    /// switch can turn on at run time.
    fn write_switched(
        &mut self,
        mutants: &[Numbered<'_>],
    ) -> Result<BTreeMap<String, Vec<Region>>, String> {
        let mut of_files: BTreeMap<&str, Vec<Numbered<'_>>> = BTreeMap::new();
        for (number, change) in mutants {
            if self.how[number] == How::Switched {
                let of_file = of_files.entry(&change.file).or_default();
                of_file.push((*number, change));
            }
        }
        let mut regions = BTreeMap::new();
        for (path, text) in &self.sources {
            let of_file = of_files.remove(path.as_str()).unwrap_or_default();
            let rewritten = rewrite(text, &of_file, &self.constants)
                .map_err(|error| format!("{path}: {error}"))?;
            let mut text = rewritten.text;
            if path == LIBRARY {
                text.push_str(switch::DECLARATION);
            }
            self.tree.write(path, text.as_bytes())?;
            regions.insert(path.clone(), rewritten.regions);
            let constant = rewritten.constant.into_iter();
            self.how.extend(constant.map(|number| (number, How::Alone)));
            let forbidden = rewritten.forbidden.into_iter();
            self.how
                .extend(forbidden.map(|number| (number, How::Unviable)));
        }
        let count = mutants.iter().map(|one| one.0 + 1).max();
        let module = switch::module(count.unwrap_or(0));
        self.tree.write(&switch_file(), module.as_bytes())?;
        Ok(regions)
    }

    /// Writes the sources of `mm`, with only this change and no switch to turn it on, into the copy
    /// of the repository.
    fn write_one(&self, change: &Change) -> Result<(), String> {
        for (path, text) in &self.sources {
            if *path == change.file {
                self.tree.write(path, change.apply(text).as_bytes())?;
            } else {
                self.tree.write(path, text.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn switch_file() -> String {
    LIBRARY.replace("lib.rs", switch::FILE)
}

/// Reads the Rust files in a folder into a map, by their paths from the root.
fn read(root: &Path, folder: &str, into: &mut BTreeMap<String, String>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot read {folder}: {error}");
    for entry in fs::read_dir(root.join(folder)).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(root, &path, into)?;
        } else if path.ends_with(".rs") {
            let text = fs::read_to_string(entry.path());
            into.insert(path, text.map_err(cannot)?);
        }
    }
    Ok(())
}
