//! The public interface of the crates that programs embed, as text: `docs/api/*.txt`.
//!
//! Each line is one public item of one file. The compiler refuses `pub` on an item that cannot be
//! reached from outside (the lint `unreachable_pub`). So the `pub` items of all files are the
//! interface, and this module need not resolve names. A removed or changed line may break a program
//! that embeds the crate; an added line breaks a program only if it is in an enum, or in a trait
//! that programs implement.

mod items;

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of each crate, the name of its text file, and the subfolder whose public items may
/// change without notice.
const CRATES: [(&str, &str, &str); 2] = [
    ("mm/src", "plimsoll-mm", "laws/"),
    ("machines/host/src", "plimsoll-host", "measure/"),
];

/// Compares the files in `docs/api` with the public items of the code, and returns an error if they
/// differ.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut broken = Vec::new();
    for (folder, name, without) in CRATES {
        let now = lines_of(&root.join(folder), without)?;
        let file = file_of(root, name);
        let before = read(&file)?;
        let before: Vec<&str> = before.lines().collect();
        let gone = before
            .iter()
            .filter(|line| !now.iter().any(|new| new == *line));
        let new = now.iter().filter(|line| !before.contains(&line.as_str()));
        broken.extend(gone.map(|line| format!("- {name}: {line}")));
        broken.extend(new.map(|line| format!("+ {name}: {line}")));
    }
    if broken.is_empty() {
        return Ok(());
    }
    let lines = broken.join("\n");
    Err(format!(
        "{lines}\nThe public interface has changed. A line with - may break programs: then raise the \
         second number of the version after a release. `cargo xtask api --write` accepts the change."
    ))
}

/// Writes the public interface of each crate to its file in `docs/api`. [`check`] compares these
/// files with the code.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    for (folder, name, without) in CRATES {
        let mut text = lines_of(&root.join(folder), without)?.join("\n");
        text.push('\n');
        let file = file_of(root, name);
        fs::write(&file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))?;
    }
    Ok(())
}

fn file_of(root: &Path, name: &str) -> PathBuf {
    root.join("docs/api").join(name).with_extension("txt")
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

/// Returns the public items of all files below `folder`, except those in the folder `without`
/// inside `folder`.
fn lines_of(folder: &Path, without: &str) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let path = file.strip_prefix(folder).expect("it is below the folder");
        let path = path.display().to_string();
        if path.starts_with(without) {
            continue;
        }
        let text = read(&file)?;
        let items = items::public(&text).map_err(|why| format!("{path}: {why}"))?;
        lines.extend(items.into_iter().map(|item| format!("{path}: {item}")));
    }
    Ok(lines)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder);
    let entries = entries.map_err(|why| format!("cannot read {}: {why}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|why| why.to_string())?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
