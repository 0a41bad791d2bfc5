//! The chores that run other programs: `.ci/run`, and two builds of `plimsoll` whose results must
//! be equal.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs `.ci/run`, the script with all checks that a change must pass.
pub(crate) fn ci(root: &Path) -> Result<(), String> {
    let status = Command::new(root.join(".ci/run"))
        .current_dir(root)
        .status();
    let status = status.map_err(|error| format!("cannot run .ci/run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(".ci/run failed: {status}"))
    }
}

/// Runs one quick experiment in a debug and a release build, and compares the hashes of the runs.
pub(crate) fn determinism(root: &Path, experiment: &str) -> Result<(), String> {
    let debug = hashes(&reproduce(root, experiment, "dev")?)?;
    let release = hashes(&reproduce(root, experiment, "release")?)?;
    if debug == release {
        eprintln!(
            "determinism: {experiment} hashes to {} in both builds",
            debug.join(", ")
        );
        return Ok(());
    }
    Err(format!(
        "{experiment} differs between builds\n  debug:   {}\n  release: {}",
        debug.join(", "),
        release.join(", ")
    ))
}

fn reproduce(root: &Path, experiment: &str, profile: &str) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = [
        "run",
        "--quiet",
        "--package",
        "plimsoll",
        "--profile",
        profile,
        "--",
    ];
    let run = ["reproduce", experiment, "--quick", "--format", "json"];
    let output = Command::new(cargo)
        .args(build)
        .args(run)
        .current_dir(root)
        .output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "`plimsoll {}` ({profile}) failed:\n{text}",
            run.join(" ")
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("the report is not text: {error}"))
}

/// Returns the hash of each report in `reports`, which has one report per line.
fn hashes(reports: &str) -> Result<Vec<String>, String> {
    let hash = |line: &str| {
        let report: Value = serde_json::from_str(line)
            .map_err(|error| format!("expected one JSON report per line: {error}"))?;
        let hash = report["hash"].as_str();
        hash.map(str::to_owned)
            .ok_or_else(|| "a report without a hash".to_owned())
    };
    let hashes: Vec<String> = reports.lines().map(hash).collect::<Result<_, _>>()?;
    if hashes.is_empty() {
        Err("no report".to_owned())
    } else {
        Ok(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_come_from_every_line_and_nothing_else_passes() {
        let two = "{\"hash\":\"00ff\"}\n{\"hash\":\"0100\"}\n";
        assert_eq!(hashes(two), Ok(vec!["00ff".to_owned(), "0100".to_owned()]));
        for bad in ["", "not json\n", "{}\n"] {
            hashes(bad).expect_err(bad);
        }
    }
}
