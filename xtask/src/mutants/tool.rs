//! Runs `cargo mutants`, the tool that makes the changes and builds and runs the suites.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::groups::{Group, PROGRAMS};
use super::options::Options;
use super::sample::Mutant;

/// The fate of one mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A test failed or did not end.
    Caught,
    /// All suites passed.
    Survived,
    /// It did not compile.
    Unviable,
}

/// The names of the group's mutants, in the order of their places.
pub(crate) fn list(root: &Path, group: &Group, options: &Options) -> Result<Vec<String>, String> {
    let mut command = tool(root);
    command.args(["--list", "--line-col", "true", "--colors", "never"]);
    for files in &group.files {
        command.args(["--file", files]);
    }
    if let Some(commit) = &options.since {
        command.arg("--in-diff").arg(diff(root, commit)?);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(
            "`cargo mutants --list` failed; `cargo install --locked cargo-mutants` installs the tool"
                .to_owned(),
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

/// Tries `mutants`, all of `group`. Returns the fate of each that was reached.
pub(crate) fn run(
    root: &Path,
    group: &Group,
    mutants: &[&Mutant],
    options: &Options,
) -> Result<Vec<(String, Fate)>, String> {
    let folder = root.join("target/mutants").join(&group.name);
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut command = tool(root);
    command.arg("--output").arg(&folder);
    command.args(["--timeout-multiplier", "4", "--minimum-test-timeout", "60"]);
    command.args(["--jobs", &options.jobs.to_string()]);
    for files in &group.files {
        command.args(["--file", files]);
    }
    command.args(["--re", &exactly(mutants)]);
    command.args(["--test-package", "plimsoll-mm"]);
    for program in PROGRAMS {
        command.args(["--test-package", &format!("plimsoll-{program}")]);
    }
    command.args(["--", "--lib"]);
    for program in PROGRAMS {
        command.args(["--test", program]);
    }
    // A test is run if its path contains one of these.
    command.arg("--");
    command.args(group.suites.iter().map(|suite| format!("{suite}::")));
    let status = command
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let outcomes = folder.join("mutants.out/outcomes.json");
    // 2: some survived. 3: some took too long.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!(
            "`cargo mutants` ended with {status} in group {}; its logs are in {}",
            group.name,
            folder.join("mutants.out/log").display()
        ));
    }
    let text = fs::read_to_string(&outcomes)
        .map_err(|error| format!("cannot read {}: {error}", outcomes.display()))?;
    fates(&text).map_err(|error| format!("{}: {error}", outcomes.display()))
}

fn tool(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["mutants", "--package", "plimsoll-mm"]);
    command.current_dir(root);
    command
}

/// A file with what differs from `commit`.
fn diff(root: &Path, commit: &str) -> Result<PathBuf, String> {
    let output = Command::new("git")
        .args(["diff", commit, "--", "mm/src"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("--since {commit}: {}", text.trim_end()));
    }
    let file = root.join("target/mutants/since.diff");
    fs::create_dir_all(root.join("target/mutants"))
        .and_then(|()| fs::write(&file, output.stdout))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

/// A regular expression that fits the names of `mutants` and no other.
fn exactly(mutants: &[&Mutant]) -> String {
    let names: Vec<String> = mutants.iter().map(|mutant| escaped(&mutant.name)).collect();
    format!("^(?:{})$", names.join("|"))
}

fn escaped(name: &str) -> String {
    let special = |letter: char| r"\.+*?()|[]{}^$#&-~".contains(letter);
    let mut escaped = String::with_capacity(2 * name.len());
    for letter in name.chars() {
        if special(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// The fate of each mutant, by name, as the tool's `outcomes.json` gives it.
fn fates(text: &str) -> Result<Vec<(String, Fate)>, String> {
    let report: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let outcomes = report["outcomes"].as_array();
    let outcomes = outcomes.ok_or("expected a list of outcomes")?;
    let mut fates = Vec::new();
    for outcome in outcomes {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else {
            continue; // The suites without a change.
        };
        let fate = match outcome["summary"].as_str() {
            Some("CaughtMutant" | "Timeout") => Fate::Caught,
            Some("MissedMutant") => Fate::Survived,
            Some("Unviable") => Fate::Unviable,
            other => return Err(format!("{name}: unknown outcome {other:?}")),
        };
        fates.push((name.to_owned(), fate));
    }
    Ok(fates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_escaped_so_that_it_only_fits_itself() {
        let mutant = Mutant {
            name: "mm/src/a.rs:3:9: replace A::b -> Option<u8> with Some(0)".to_owned(),
            key: String::new(),
        };
        assert_eq!(
            exactly(&[&mutant, &mutant]),
            r"^(?:mm/src/a\.rs:3:9: replace A::b \-> Option<u8> with Some\(0\)|mm/src/a\.rs:3:9: replace A::b \-> Option<u8> with Some\(0\))$"
        );
    }

    #[test]
    fn outcomes_are_told_apart_and_an_unknown_one_is_refused() {
        let report = |summary: &str| {
            format!(
                r#"{{"outcomes":[{{"scenario":"Baseline","summary":"Success"}},
                   {{"scenario":{{"Mutant":{{"name":"m"}}}},"summary":"{summary}"}}]}}"#
            )
        };
        for (summary, fate) in [
            ("CaughtMutant", Fate::Caught),
            ("Timeout", Fate::Caught),
            ("MissedMutant", Fate::Survived),
            ("Unviable", Fate::Unviable),
        ] {
            assert_eq!(fates(&report(summary)), Ok(vec![("m".to_owned(), fate)]));
        }
        fates(&report("Lost")).expect_err("an outcome that is not known");
        fates("{}").expect_err("no outcomes");
    }
}
