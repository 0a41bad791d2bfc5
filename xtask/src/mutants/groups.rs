//! The groups of `xtask/mutants.toml`: files, and the suites that judge their mutants.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// The programs with tests of `mm`, each called as the machine on which it runs them.
pub(crate) const PROGRAMS: [&str; 2] = ["host", "sim"];

/// Files of `mm`, and the suites that are to notice a change in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Glob patterns, from the root of the repository.
    pub(crate) files: Vec<String>,
    /// Modules of tests, in the unit tests of `mm` or in a program of [`PROGRAMS`].
    pub(crate) suites: Vec<String>,
}

/// The groups called `names`; all of them if none is named.
pub(crate) fn read(root: &Path, names: &[String]) -> Result<Vec<Group>, String> {
    let path = root.join("xtask/mutants.toml");
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let groups = parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    for name in names {
        if groups.iter().all(|group| group.name != *name) {
            let known: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            return Err(format!(
                "no group is called `{name}`; xtask/mutants.toml has {}",
                known.join(", ")
            ));
        }
    }
    Ok(groups
        .into_iter()
        .filter(|group| names.is_empty() || names.contains(&group.name))
        .collect())
}

fn parse(text: &str) -> Result<Vec<Group>, String> {
    let table: Table = text.parse().map_err(|error| format!("{error}"))?;
    let groups = table.get("group").and_then(Value::as_array);
    let groups = groups.ok_or("expected at least one [[group]]")?;
    groups.iter().map(group).collect()
}

fn group(value: &Value) -> Result<Group, String> {
    let name = value.get("name").and_then(Value::as_str);
    let name = name.ok_or("a [[group]] has no `name`")?.to_owned();
    let words = |key: &str| -> Result<Vec<String>, String> {
        let words = value.get(key).and_then(Value::as_array);
        let words = words.map(|words| words.iter().filter_map(Value::as_str));
        let words: Vec<String> = words.into_iter().flatten().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(format!("group `{name}` needs `{key}`, a list of names"));
        }
        Ok(words)
    };
    Ok(Group {
        files: words("files")?,
        suites: words("suites")?,
        name: name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_this_repository_are_read_and_named() {
        let root = crate::root();
        let all = read(&root, &[]).expect("a good file");
        assert_eq!(all.len(), 5);
        let one = read(&root, &["oom".to_owned()]).expect("a known group");
        assert_eq!(one.len(), 1);
        let error = read(&root, &["lists".to_owned()]).expect_err("no such group");
        assert!(
            error.contains("has page, vmstat, counter, space, oom"),
            "{error}"
        );
    }

    #[test]
    fn a_suite_that_does_not_exist_is_noticed() {
        let root = crate::root();
        for group in read(&root, &[]).expect("a good file") {
            for suite in &group.suites {
                let exists = |folder: &str| {
                    let file = root.join(format!("{folder}/{suite}.rs"));
                    file.exists() || file.with_extension("").join("mod.rs").exists()
                };
                let of_a_program = PROGRAMS
                    .iter()
                    .any(|machine| exists(&format!("machines/{machine}/tests/{machine}")));
                assert!(
                    of_a_program || exists("mm/src"),
                    "{}: no suite is called {suite}",
                    group.name
                );
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, help) in [
            ("", "at least one [[group]]"),
            ("[[group]]\n", "no `name`"),
            ("[[group]]\nname = 'a'\nfiles = ['b']\n", "needs `suites`"),
        ] {
            let error = parse(text).expect_err("incomplete");
            assert!(error.contains(help), "{error}");
        }
    }
}
