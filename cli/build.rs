//! Tells the command from which commit it is built, as the variable `PLIMSOLL_COMMIT`.

use std::path::Path;
use std::process::Command;

/// The folders whose files become part of the program.
const SOURCES: [&str; 6] = ["cli", "lab", "linux", "machines", "mm", "recording"];

fn main() {
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // After a commit, or after a change of a source, another text may be right. Cargo would run
    // this program each time if it were to wait for a file that does not exist.
    let of_git = ["HEAD", "logs/HEAD"].map(|file| git(&["rev-parse", "--git-path", file]));
    let sources = SOURCES.map(|folder| format!("../{folder}"));
    for path in of_git.into_iter().flatten().chain(sources) {
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The commit, with `-dirty` if a file that git knows has changed since; `None` if this is no
/// repository of git.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    Some(format!("{commit}{dirty}"))
}

/// What git prints; `None` if it fails or is not installed.
fn git(arguments: &[&str]) -> Option<String> {
    // `git status` would otherwise write to the repository.
    let git = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .output();
    let out = git.ok().filter(|out| out.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_owned())
}
