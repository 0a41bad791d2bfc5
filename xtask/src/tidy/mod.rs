//! Rules of this repository that no other tool checks. The error of every rule says what to do.

mod circles;
mod comments;
mod docs;
mod edges;
mod licences;
mod sources;
mod survivors;
#[cfg(test)]
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

/// A rule takes the files of a repository and returns an error for each violation.
type Rule = fn(&Tree) -> Vec<String>;

const RULES: [(&str, Rule); 13] = [
    ("dependency edges", edges::check),
    ("no circles between modules", circles::check),
    ("files are small", sources::small),
    ("files say what they are", sources::headers),
    ("mm has no hidden inputs", sources::hidden_inputs),
    ("lints are suppressed with a reason", sources::suppressions),
    ("comments are plain", comments::plain),
    ("links lead somewhere", docs::links),
    ("README maps every crate", docs::readme_map),
    ("the tour of the code is short", docs::short_tour),
    ("docs/locks.md names every lock class", docs::lock_classes),
    ("the kernel's licence stays in its folder", licences::check),
    ("accepted survivors are in order", survivors::check),
];

/// Checks every rule and prints the violations.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        broken.extend(
            rule(&tree)
                .into_iter()
                .map(|what| format!("{what}   [{name}]")),
        );
    }
    if broken.is_empty() {
        eprintln!(
            "tidy: {} rules hold in {} files",
            RULES.len(),
            tree.files.len()
        );
        return Ok(());
    }
    Err(format!(
        "{}\ntidy: {} to mend",
        broken.join("\n"),
        broken.len()
    ))
}

/// The text files of the repository.
pub(crate) struct Tree {
    root: PathBuf,
    /// The files, in the order of their paths.
    files: Vec<File>,
}

/// One text file of the repository.
pub(crate) struct File {
    /// The path from the root of the repository, with `/` as separator.
    path: String,
    text: String,
}

/// The folders that `read_folder` skips, because git ignores them or they contain third-party code.
const SKIPPED: [&str; 2] = ["target", "node_modules"];
const READ: [&str; 4] = ["rs", "md", "toml", "cocci"];

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self {
            root: root.to_owned(),
            files: Vec::new(),
        };
        tree.read_folder(root)?;
        tree.files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(tree)
    }

    /// Adds the files below `folder`. The recursion ends, because it does not follow links to
    /// folders.
    fn read_folder(&mut self, folder: &Path) -> Result<(), String> {
        let cannot = |error| format!("cannot read {}: {error}", folder.display());
        for entry in fs::read_dir(folder).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let kind = entry.file_type().map_err(cannot)?;
            if name.starts_with('.') || SKIPPED.contains(&&*name) {
                continue;
            }
            if kind.is_dir() {
                self.read_folder(&path)?;
            } else if path
                .extension()
                .is_some_and(|end| READ.iter().any(|read| end == *read))
            {
                let text = fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                self.files.push(File {
                    path: self.relative(&path),
                    text,
                });
            }
        }
        Ok(())
    }

    fn relative(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.to_string_lossy().replace('\\', "/")
    }

    fn ending(&self, end: &str) -> impl Iterator<Item = &File> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(end))
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the manifest of every crate, with the crate's folder.
    fn crates(&self) -> impl Iterator<Item = (&str, &File)> {
        self.ending("/Cargo.toml").filter_map(|file| {
            let folder = file.path.strip_suffix("/Cargo.toml")?;
            (!folder.contains("/tests/")).then_some((folder, file))
        })
    }
}
