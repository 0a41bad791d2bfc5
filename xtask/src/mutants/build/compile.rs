//! Runs cargo on the copy of the repository, and reads cargo's messages.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::tree::Tree;
use crate::mutants::groups::PROGRAMS;

/// A program with tests of `mm`, which cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The name of the library or of the test program.
    pub(crate) name: String,
    /// The folder of the program's crate, in which the program has to run.
    pub(crate) folder: PathBuf,
    pub(crate) path: PathBuf,
}

/// An error that the compiler reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) code: String,
    pub(super) message: String,
    /// The compiler's text for people, which quotes the wrong code.
    pub(super) rendered: String,
    pub(super) spans: Vec<Span>,
}

/// A piece of code to which an error points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The path of the file, from the root of the repository.
    pub(super) file: String,
    pub(super) bytes: Range<usize>,
    pub(super) is_primary: bool,
}

/// The errors that cargo reports, and the programs that it has built.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<Error>,
    pub(super) programs: Vec<Program>,
}

impl Outcome {
    /// Returns the programs, if there was no error.
    pub(super) fn built(self) -> Option<Vec<Program>> {
        self.errors.is_empty().then_some(self.programs)
    }
}

/// Checks the library `mm` without building it.
pub(super) fn check(tree: &Tree) -> Result<Outcome, String> {
    cargo(tree, &["check", "--package", "plimsoll-mm", "--lib"])
}

/// Builds the unit tests of `mm`.
pub(super) fn unit_tests(tree: &Tree) -> Result<Outcome, String> {
    cargo(
        tree,
        &["test", "--no-run", "--package", "plimsoll-mm", "--lib"],
    )
}

/// Builds the programs that test `mm` on machines: on real threads and in the simulator.
pub(super) fn machines(tree: &Tree) -> Result<Outcome, String> {
    on_machines(tree, &["test", "--no-run"])
}

/// Checks the programs that test `mm` on machines (on real threads and in the simulator), without
/// building them.
pub(super) fn check_machines(tree: &Tree) -> Result<Outcome, String> {
    on_machines(tree, &["check"])
}

fn on_machines(tree: &Tree, what: &[&str]) -> Result<Outcome, String> {
    let mut arguments = what.to_vec();
    let packages = PROGRAMS.map(|program| format!("plimsoll-{program}"));
    for (program, package) in PROGRAMS.iter().zip(&packages) {
        arguments.extend(["--package", package, "--test", program]);
    }
    cargo(tree, &arguments)
}

/// Builds all programs with tests of `mm`.
pub(super) fn all(tree: &Tree) -> Result<Outcome, String> {
    let mut outcome = unit_tests(tree)?;
    if outcome.errors.is_empty() {
        let machines = machines(tree)?;
        outcome.errors = machines.errors;
        outcome.programs.extend(machines.programs);
    }
    Ok(outcome)
}

/// Settings with which cargo builds faster. `host`, `mm` and `sim` get no debug information. Cargo
/// optimises `host` as little as the other crates. In ordinary builds it optimises `host` more,
/// because `host` times steps of a few nanoseconds. Cargo keeps builds with different settings
/// apart, so an ordinary build at the same time does not replace the test programs.
const PROFILE: [&str; 4] = [
    "profile.dev.package.plimsoll-host.opt-level=1",
    "profile.dev.package.plimsoll-host.debug=0",
    "profile.dev.package.plimsoll-mm.debug=0",
    "profile.dev.package.plimsoll-sim.debug=0",
];

fn cargo(tree: &Tree, arguments: &[&str]) -> Result<Outcome, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--quiet", "--message-format", "json"])
        .args(PROFILE.iter().flat_map(|setting| ["--config", setting]))
        .arg("--target-dir")
        .arg(&tree.target)
        .current_dir(&tree.folder)
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let outcome = parse(&String::from_utf8_lossy(&output.stdout))?;
    if !output.status.success() && outcome.errors.is_empty() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "cargo {}: {}",
            arguments.join(" "),
            text.trim_end()
        ));
    }
    Ok(outcome)
}

fn parse(text: &str) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let line: Value =
            serde_json::from_str(line).map_err(|error| format!("cargo's messages: {error}"))?;
        let message = &line["message"];
        match line["reason"].as_str() {
            // The last message about a crate only states the number of errors. It has no spans, so
            // this code leaves it out.
            Some("compiler-message")
                if message["level"] == "error" && message["spans"] != Value::Array(Vec::new()) =>
            {
                outcome.errors.push(error(message));
            }
            Some("compiler-artifact") if line["profile"]["test"] == true => {
                outcome.programs.extend(program(&line));
            }
            _ => {}
        }
    }
    Ok(outcome)
}

fn program(artifact: &Value) -> Option<Program> {
    let manifest = Path::new(artifact["manifest_path"].as_str()?);
    Some(Program {
        name: artifact["target"]["name"].as_str()?.to_owned(),
        folder: manifest.parent()?.to_owned(),
        path: artifact["executable"].as_str()?.into(),
    })
}

fn error(message: &Value) -> Error {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let children = message["children"].as_array();
    let mut spans = spans(message, true);
    for child in children.into_iter().flatten() {
        spans.extend(self::spans(child, false));
    }
    Error {
        code: text(&message["code"]["code"]),
        message: text(&message["message"]),
        rendered: text(&message["rendered"]),
        spans,
    }
}

fn spans(message: &Value, may_be_primary: bool) -> Vec<Span> {
    let spans = message["spans"].as_array().into_iter().flatten();
    let number = |value: &Value| value.as_u64().and_then(|byte| usize::try_from(byte).ok());
    let span = |span: &Value| {
        Some(Span {
            file: span["file_name"].as_str()?.to_owned(),
            bytes: number(&span["byte_start"])?..number(&span["byte_end"])?,
            is_primary: may_be_primary && span["is_primary"] == true,
        })
    };
    spans.filter_map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_programs_are_read_and_all_else_is_left_out() {
        let outcome = parse(concat!(
            r#"{"reason":"compiler-message","message":{"level":"warning","spans":[{}]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"error","message":"m","code":"#,
            r#"{"code":"E0308"},"rendered":"r","spans":[{"file_name":"mm/src/a.rs","#,
            r#""byte_start":3,"byte_end":5,"is_primary":true}],"children":[{"spans":["#,
            r#"{"file_name":"mm/src/b.rs","byte_start":1,"byte_end":2,"is_primary":true}]}]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"error","spans":[]}}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"manifest_path":"/w/Cargo.toml","#,
            r#""target":{"name":"sim"},"executable":"/w/sim-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":null}"#,
        ))
        .expect("good messages");
        let span = |file: &str, bytes: Range<usize>, is_primary| Span {
            file: file.to_owned(),
            bytes,
            is_primary,
        };
        let expected = Error {
            code: "E0308".to_owned(),
            message: "m".to_owned(),
            rendered: "r".to_owned(),
            spans: vec![
                span("mm/src/a.rs", 3..5, true),
                span("mm/src/b.rs", 1..2, false),
            ],
        };
        assert_eq!(outcome.errors, [expected]);
        let expected = Program {
            name: "sim".to_owned(),
            folder: "/w".into(),
            path: "/w/sim-1".into(),
        };
        assert_eq!(outcome.programs, [expected]);
    }
}
