//! Reads the groups of `xtask/mutants.toml`. A group has files of `mm`, and the test suites that
//! judge the mutants of these files.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// The programs that test `mm` on machines: on real threads (`host`) and in the simulator (`sim`).
pub(crate) const PROGRAMS: [&str; 2] = ["host", "sim"];

/// Files of `mm`, and the suites of tests that should notice a change in these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// The paths of files. `FOLDER/**/*.rs` stands for all Rust files below a folder.
    pub(crate) files: Vec<String>,
    /// The names of modules with tests. These modules belong to the unit tests of `mm` or to a
    /// program of [`PROGRAMS`].
    pub(crate) suites: Vec<String>,
}

/// The end of a path that stands for all Rust files below a folder.
const ALL_FILES: &str = "**/*.rs";

impl Group {
    /// Returns whether the file with this path, from the root of the repository, belongs to the
    /// group.
    pub(crate) fn has(&self, file: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix(ALL_FILES) {
            Some(folder) => file.starts_with(folder) && file.ends_with(".rs"),
            None => file == pattern,
        };
        self.files.iter().any(fits)
    }
}

/// Returns the groups with these names, or all groups if `names` is empty.
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
    let files = words("files")?;
    let is_known = |pattern: &String| !pattern.trim_end_matches(ALL_FILES).contains('*');
    if let Some(pattern) = files.iter().find(|pattern| !is_known(pattern)) {
        return Err(format!(
            "group `{name}`: write `{pattern}` as a path, or as a folder and {ALL_FILES}"
        ));
    }
    Ok(Group {
        files,
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
    fn a_file_belongs_to_the_group_of_its_folder() {
        let groups = read(&crate::root(), &[]).expect("a good file");
        let of = |file: &str| -> Vec<&str> {
            let of_file = groups.iter().filter(|group| group.has(file));
            of_file.map(|group| group.name.as_str()).collect()
        };
        assert_eq!(of("mm/src/page/buddy/mod.rs"), ["page"]);
        assert_eq!(of("mm/src/wheel.rs"), ["vmstat"]);
        assert_eq!(of("mm/src/pages.rs"), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, help) in [
            ("", "at least one [[group]]"),
            ("[[group]]\n", "no `name`"),
            ("[[group]]\nname = 'a'\nfiles = ['b']\n", "needs `suites`"),
            ("[[group]]\nname = 'a'\nfiles = ['b/*']\n", "b/*"),
        ] {
            let error = parse(text).expect_err("incomplete");
            assert!(error.contains(help), "{error}");
        }
    }
}
