//! Sets the variable `PLIMSOLL_COMMIT` for the build of the command or of the package for Python:
//! the commit from which it is built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders whose files become part of the program.
const SOURCES: [&str; 6] = ["cli", "lab", "linux", "machines", "mm", "recording"];

fn main() {
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={commit}");
    let root = root();
    // `PLIMSOLL_COMMIT` may change after a commit or a change of a source. Only existing files are
    // named here, because cargo would run this program at each build if a named file did not exist.
    let of_git = ["HEAD", "logs/HEAD"].map(|file| git(&["rev-parse", "--git-path", file]));
    let of_git = of_git.into_iter().flatten().map(PathBuf::from);
    for path in of_git.chain(SOURCES.map(|folder| root.join(folder))) {
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// The folder of the repository: the nearest folder above the package that has this program.
fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let mut above = Path::new(&package).ancestors();
    let root = above.find(|folder| folder.join("cli/build.rs").exists());
    root.unwrap_or(Path::new("..")).to_owned()
}

/// The commit, with `-dirty` if a file that git knows has changed since; `None` if the folder is in
/// no repository of git.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    Some(format!("{commit}{dirty}"))
}

/// The text that git prints; `None` if git fails or is not installed.
fn git(arguments: &[&str]) -> Option<String> {
    // Without this option, `git status` would write to the repository.
    let git = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .output();
    let out = git.ok().filter(|out| out.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_owned())
}
