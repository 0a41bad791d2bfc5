//! Runs `cargo mutants`, the tool that lists the possible mutants.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::change::{self, Change};
use super::groups::Group;
use super::options::Options;

/// Returns the mutants of some groups, each with its name and its change, in the order in which
/// cargo-mutants lists them.
pub(crate) fn list(
    root: &Path,
    groups: &[Group],
    options: &Options,
) -> Result<Vec<(String, Change)>, String> {
    let mut command = tool(root);
    command.args(["--list", "--json", "--colors", "never"]);
    for files in groups.iter().flat_map(|group| &group.files) {
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
    change::parse(&String::from_utf8_lossy(&output.stdout))
        .map_err(|error| format!("`cargo mutants --list --json`: {error}"))
}

fn tool(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["mutants", "--package", "plimsoll-mm"]);
    command.current_dir(root);
    command
}

/// Writes the changes of `mm/src` since `commit`, as `git diff` prints them, to a file. Returns the
/// path of the file.
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
