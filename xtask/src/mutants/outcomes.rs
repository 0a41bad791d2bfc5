//! The file that says, for each mutant of the last run, whether a test noticed it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::groups::Group;
use super::judge::Fate;
use super::sample::Mutant;

/// The name of the file with the outcomes. The file is in the folder `build::FOLDER`.
const FILE: &str = "outcomes.txt";

/// The first word of the outcome of a mutant that survived.
const SURVIVED: &str = "survived";

/// Writes one line for each tried mutant: the mutant's number, its name, and its outcome: caught by
/// a test, survived, or unable to compile.
pub(super) fn write(
    folder: &Path,
    all: &[(&Group, Mutant)],
    fates: &BTreeMap<usize, Fate>,
) -> Result<(), String> {
    let mut text = String::new();
    for (at, fate) in fates {
        let fate = match fate {
            Fate::Caught(test) => format!("caught by {test}"),
            Fate::TimedOut(test) => format!("caught by the time of {test}"),
            Fate::Survived { tests } => format!("{SURVIVED} {tests} tests"),
            Fate::Unviable => "does not compile".to_owned(),
        };
        writeln!(text, "{at}\t{}\t{fate}", all[*at].1.name).expect("a text can be added to");
    }
    let path = folder.join(FILE);
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Returns the names of the mutants that survived.
pub(super) fn survivors(folder: &Path) -> Result<BTreeSet<String>, String> {
    let path = folder.join(FILE);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("there was no run before: {}: {error}", path.display()))?;
    let survivor = |line: &str| {
        let mut parts = line.split('\t').skip(1);
        let (name, fate) = (parts.next()?, parts.next()?);
        fate.starts_with(SURVIVED).then(|| name.to_owned())
    };
    Ok(text.lines().filter_map(survivor).collect())
}

#[cfg(test)]
mod tests {
    use super::super::sample::named;
    use super::*;

    #[test]
    fn survivors_are_read_as_they_were_written() {
        let group = Group {
            name: "page".to_owned(),
            files: Vec::new(),
            suites: Vec::new(),
        };
        let names = ["a.rs:1:1: one", "a.rs:2:1: two", "a.rs:3:1: three"];
        let mutants = named(&names);
        let all: Vec<(&Group, Mutant)> =
            mutants.into_iter().map(|mutant| (&group, mutant)).collect();
        let fates = BTreeMap::from([
            (0, Fate::Survived { tests: 3 }),
            (1, Fate::Caught("sim survived::it".to_owned())),
            (2, Fate::Survived { tests: 0 }),
        ]);
        let folder = tempfile::tempdir().expect("a folder");
        survivors(folder.path()).expect_err("there was no run");
        write(folder.path(), &all, &fates).expect("a file");
        let survivors = survivors(folder.path()).expect("a run");
        assert_eq!(survivors, [names[0].to_owned(), names[2].to_owned()].into());
    }
}
