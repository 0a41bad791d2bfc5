//! Semantic patches: files that Coccinelle's `spatch` reads, applied to the kernel's source.
//!
//! The patches are read from a folder and never become part of this program, because their licence
//! differs from Plimsoll's.
//!
//! Each patch names the file that it changes (`// Apply to: mm/vmstat.c`) and how often certain
//! words must occur in that file afterwards (`// Expect: 3 zone_hold_next`). If a patch does not
//! match, `spatch` changes nothing but reports success, so only these counts reveal the failure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::source::Source;
use super::{Error, Tools};

/// The folder in the source that holds unpatched copies of the patched files.
const PRISTINE: &str = ".plimsoll-pristine";
/// The file in the source in which patches are applied to a copy of a kernel file.
const DRAFT: &str = ".plimsoll-draft.c";
const SUFFIX: &str = ".cocci";

/// A semantic patch of the kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SemanticPatch {
    /// The patch's name, such as `phased`.
    pub name: String,
    file: PathBuf,
    /// The file of the kernel that the patch changes, relative to the source folder.
    target: PathBuf,
    /// The words that must occur in the target after patching, each with its number of occurrences.
    expected: Vec<(usize, String)>,
}

impl SemanticPatch {
    /// Reads the patch `name` from `folder`.
    ///
    /// # Errors
    ///
    /// [`Error::Asked`] if the patch does not exist, or does not name the file that it changes.
    pub fn read(name: &str, folder: &Path) -> Result<Self, Error> {
        let known = names(folder);
        if !known.iter().any(|known| known == name) {
            return Err(Error::Asked(if known.is_empty() {
                format!(
                    "there are no semantic patches in {}: name the folder with --patches",
                    folder.display()
                )
            } else {
                format!(
                    "there is no semantic patch `{name}` in {}: it has {}",
                    folder.display(),
                    known.join(", ")
                )
            }));
        }
        let file = folder.join(format!("{name}{SUFFIX}"));
        let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
        Self::parse(name, file, &text)
    }

    fn parse(name: &str, file: PathBuf, text: &str) -> Result<Self, Error> {
        let lacks = |what: &str| {
            let file = file.display();
            Error::Asked(format!("{file} must say {what}"))
        };
        let said = |label: &'static str| {
            let lines = text.lines().map(|line| line.trim_start_matches(['/', ' ']));
            lines
                .filter_map(move |line| line.strip_prefix(label))
                .map(str::trim)
        };
        let target = said("Apply to:").next().map(PathBuf::from);
        let inside = |path: &PathBuf| {
            let mut parts = path.components();
            path.is_relative() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let target = target.filter(inside).ok_or_else(|| {
            lacks("which file of the kernel it changes: `// Apply to: mm/vmstat.c`")
        })?;
        let count = |line: &str| {
            let (count, word) = line.split_once(' ')?;
            Some((count.parse().ok()?, word.trim().to_owned()))
        };
        let expected: Option<Vec<_>> = said("Expect:").map(count).collect();
        let expected = expected
            .filter(|expected| !expected.is_empty())
            .ok_or_else(|| {
                lacks("how often a word is there afterwards: `// Expect: 3 zone_hold_next`")
            })?;
        Ok(Self {
            name: name.to_owned(),
            target,
            expected,
            file,
        })
    }

    /// Applies this patch to `draft`. Then checks that each word in `expected` occurs in `draft` as
    /// often as the patch states.
    fn apply(&self, tools: &Tools, draft: &Path, source: &Source) -> Result<(), Error> {
        let mut command = tools.command("spatch");
        command
            .arg("--sp-file")
            .arg(&self.file)
            .arg("--in-place")
            .arg(draft);
        Tools::run(&mut command, &format!("applying {}", self.file.display()))?;
        let text = fs::read_to_string(draft).map_err(Error::file("read", draft))?;
        for (expected, word) in &self.expected {
            let found = occurrences(&text, word);
            if found != *expected {
                return Err(Error::Asked(format!(
                    "{} does not fit {}: `{word}` occurs {found} times in {} afterwards, not {expected}",
                    self.file.display(),
                    source.package,
                    self.target.display()
                )));
            }
        }
        Ok(())
    }
}

/// Returns the names of the semantic patches in `folder`, sorted.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        Some(name.strip_suffix(SUFFIX)?.to_owned())
    });
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

/// Changes the files of `source` to the files of the package with `patches` applied, and with no
/// other patches. Does not rewrite a file that already has the right content, so that `make` does
/// not compile this file again.
pub(super) fn patch(
    tools: &Tools,
    source: &Source,
    patches: &[SemanticPatch],
) -> Result<(), Error> {
    let kept = source.folder.join(PRISTINE);
    for patch in patches {
        keep(
            &source.folder.join(&patch.target),
            &kept.join(&patch.target),
        )?;
    }
    for target in files_below(&kept, Path::new(""))? {
        let (pristine, draft) = (kept.join(&target), source.folder.join(DRAFT));
        fs::copy(&pristine, &draft).map_err(Error::file("copy", &pristine))?;
        for patch in patches.iter().filter(|patch| patch.target == target) {
            patch.apply(tools, &draft, source)?;
        }
        let wanted = fs::read(&draft).map_err(Error::file("read", &draft))?;
        let file = source.folder.join(&target);
        if fs::read(&file).ok().as_ref() != Some(&wanted) {
            fs::write(&file, wanted).map_err(Error::file("write", &file))?;
        }
        fs::remove_file(&draft).map_err(Error::file("remove", &draft))?;
    }
    Ok(())
}

/// Copies `file` to `copy` if `copy` does not exist yet. A final rename ensures that every existing
/// copy is complete.
fn keep(file: &Path, copy: &Path) -> Result<(), Error> {
    if copy.is_file() {
        return Ok(());
    }
    let folder = copy.parent().unwrap_or(copy);
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    let draft = folder.join(".draft");
    fs::copy(file, &draft).map_err(Error::file("copy", file))?;
    fs::rename(&draft, copy).map_err(Error::file("rename", &draft))
}

/// Returns the files below `root`/`folder` except drafts, as paths relative to `root`.
fn files_below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let read = root.join(folder);
    if !read.is_dir() {
        return Ok(found);
    }
    // The recursion ends: this module makes all folders that it walks through, and puts no links
    // into them.
    for entry in fs::read_dir(&read)
        .map_err(Error::file("read", &read))?
        .flatten()
    {
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            found.extend(files_below(root, &path)?);
        } else if !entry.file_name().to_string_lossy().starts_with('.') {
            found.push(path);
        }
    }
    Ok(found)
}

/// Counts the occurrences of `word` in `text` as a whole word.
fn occurrences(text: &str, word: &str) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(|letter| !is_part(letter))
        .filter(|part| *part == word)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "// x\n// Apply to: mm/vmstat.c\n// Expect: 2 turn\n// Expect: 0 work\n@@ @@\n";

    fn parse(text: &str) -> Result<SemanticPatch, Error> {
        SemanticPatch::parse("x", "x.cocci".into(), text)
    }

    #[test]
    fn a_patch_says_what_it_changes_and_how_that_is_seen() {
        let patch = parse(GOOD).unwrap();
        assert_eq!(patch.target, Path::new("mm/vmstat.c"));
        assert_eq!(
            patch.expected,
            [(2, "turn".to_owned()), (0, "work".to_owned())]
        );
        for bad in [
            "// Expect: 1 x\n".to_owned(),
            "// Apply to: mm/vmstat.c\n".to_owned(),
            GOOD.replace("2 turn", "two turns"),
            GOOD.replace("mm/vmstat.c", "../vmstat.c"),
            GOOD.replace("mm/vmstat.c", "/etc/passwd"),
        ] {
            assert!(parse(&bad).unwrap_err().is_bad_input(), "{bad}");
        }
    }

    #[test]
    fn words_are_counted_whole() {
        assert_eq!(
            occurrences("turn(turns, my_turn); turn->at = turn", "turn"),
            3
        );
    }

    #[test]
    fn a_patch_that_is_not_there_is_answered_with_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let empty = SemanticPatch::read("phased", folder.path())
            .unwrap_err()
            .to_string();
        assert!(empty.contains("name the folder with --patches"), "{empty}");
        for name in ["b.cocci", "a.cocci", "README.md"] {
            fs::write(folder.path().join(name), GOOD).unwrap();
        }
        let text = SemanticPatch::read("phased", folder.path())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("no semantic patch `phased`") && text.ends_with("it has a, b"),
            "{text}"
        );
        SemanticPatch::read("../a", folder.path()).unwrap_err();
        assert_eq!(SemanticPatch::read("a", folder.path()).unwrap().name, "a");
    }

    #[test]
    fn those_of_this_repository_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel");
        let names = names(&folder);
        assert!(names.iter().any(|name| name == "phased"), "{names:?}");
        for name in names {
            SemanticPatch::read(&name, &folder).unwrap();
        }
    }
}
