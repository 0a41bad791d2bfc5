//! Small repositories for the tests of the rules: one that obeys every rule, and copies with one
//! file changed.

use std::fs;

use super::Tree;

/// The files of a repository that obeys every rule.
const GOOD: [(&str, &str); 9] = [
    (
        "Cargo.toml",
        "[workspace]\nmembers = [\"mm\", \"machines/sim\", \"lab\"]\n",
    ),
    (
        "README.md",
        "The map: `mm/`, `machines/sim/`, `lab/`. See [locks](docs/locks.md#order).\n",
    ),
    (
        "docs/locks.md",
        "`Zone` inside `Pcp`. Back to the [map](../README.md).\n",
    ),
    ("mm/Cargo.toml", "[package]\nname = \"plimsoll-mm\"\n"),
    ("mm/src/lib.rs", "//! The memory manager.\n"),
    (
        "mm/src/site.rs",
        "//! Classes of locks.\n\npub enum LockClass {\n    /// The zone.\n    Zone,\n    Pcp,\n}\n",
    ),
    (
        "machines/sim/Cargo.toml",
        "[package]\nname = \"plimsoll-sim\"\n[dependencies]\nplimsoll-mm.workspace = true\n",
    ),
    (
        "lab/Cargo.toml",
        "[package]\nname = \"plimsoll-lab\"\n[dependencies]\nplimsoll-sim.workspace = true\n\
         plimsoll-mm.workspace = true\nserde = \"1\"\n",
    ),
    ("lab/src/lib.rs", "//! The experiments.\n"),
];

/// Returns the errors that `rule` finds in the repository `GOOD` if the file at `path` has the
/// content `text`. If `text` is empty, the repository has no such file.
pub(super) fn broken_by(rule: super::Rule, path: &str, text: &str) -> Vec<String> {
    let unchanged = GOOD.iter().copied().filter(|(known, _)| *known != path);
    let files = unchanged.chain([(path, text)]);
    let files: Vec<(&str, &str)> = files.filter(|(_, text)| !text.is_empty()).collect();
    of_tree(&files, rule)
}

/// Returns the result of `check` on a repository that consists of `files`.
pub(super) fn of_tree(
    files: &[(impl AsRef<str>, &str)],
    check: impl FnOnce(&Tree) -> Vec<String>,
) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in files {
        let path = folder.path().join(path.as_ref());
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    check(&Tree::read(folder.path()).expect("a readable tree"))
}

#[test]
fn the_good_tree_keeps_every_rule() {
    for (name, rule) in super::RULES {
        assert_eq!(
            broken_by(rule, "notes.txt", "no rule reads this"),
            [""; 0],
            "{name}"
        );
    }
}
