//! A copy of the repository, in which `mm` is changed and built.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that has the copy of the repository and the results of the last run. The path begins
/// at the root of the repository.
pub(crate) const FOLDER: &str = "target/mutants";

/// A copy of the files that git tracks or that `git add` would add.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) folder: PathBuf,
    /// The folder in which cargo builds the copy. This is the `target` folder of the repository
    /// itself, because it already has builds of the crates on which the copy depends.
    pub(crate) target: PathBuf,
    /// The lock on the copy of the repository. While this value exists, other processes do not use
    /// the copy.
    _lock: File,
}

impl Tree {
    /// Brings the copy up to date. A file that has not changed keeps its time of modification, so
    /// that cargo builds only the changed crates.
    pub(crate) fn copy(root: &Path) -> Result<Self, String> {
        let folder = root.join(FOLDER).join("tree");
        make(&folder)?;
        let lock = lock(&root.join(FOLDER).join("lock"))?;
        let tree = Self {
            folder,
            target: root.join("target"),
            _lock: lock,
        };
        let paths = paths(root)?;
        for path in &paths {
            // `paths` also has files that were deleted but are still in git's index. Such files
            // cannot be read.
            if let Ok(bytes) = fs::read(root.join(path)) {
                tree.write(path, &bytes)?;
            }
        }
        tree.remove_others(root, Path::new(""), &paths)?;
        Ok(tree)
    }

    /// Writes a file of the copy of the repository, unless the file already has these contents.
    pub(crate) fn write(&self, path: &str, contents: &[u8]) -> Result<(), String> {
        let file = self.folder.join(path);
        if fs::read(&file).is_ok_and(|now| now == contents) {
            return Ok(());
        }
        if let Some(folder) = file.parent() {
            make(folder)?;
        }
        fs::write(&file, contents).map_err(|error| cannot("write", &file, &error))
    }

    /// Removes files from a folder of the copy: the files that are not in `known`, and the files
    /// that were deleted from the repository.
    fn remove_others(
        &self,
        root: &Path,
        folder: &Path,
        known: &BTreeSet<String>,
    ) -> Result<(), String> {
        let here = self.folder.join(folder);
        let entries = fs::read_dir(&here).map_err(|error| cannot("read", &here, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| cannot("read", &here, &error))?;
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                self.remove_others(root, &path, known)?;
            } else if !known.contains(&*path.to_string_lossy()) || !root.join(&path).exists() {
                fs::remove_file(entry.path())
                    .map_err(|error| cannot("remove", &entry.path(), &error))?;
            }
        }
        Ok(())
    }
}

/// Locks the file at `path`. Closing the returned file releases the lock.
fn lock(path: &Path) -> Result<File, String> {
    let file = File::create(path).map_err(|error| cannot("write", path, &error))?;
    file.try_lock().map_err(|_| {
        format!(
            "another `cargo xtask mutants` is running here (it holds {}); wait for it",
            path.display()
        )
    })?;
    Ok(file)
}

/// Returns the paths of the files that git tracks or that `git add` would add.
fn paths(root: &Path) -> Result<BTreeSet<String>, String> {
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = Command::new("git").args(list).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files: {}", text.trim_end()));
    }
    let paths = String::from_utf8_lossy(&output.stdout);
    let paths = paths.split('\0').filter(|path| !path.is_empty());
    Ok(paths.map(str::to_owned).collect())
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
