//! Compiles a kernel with one `make` and derives the progress from the lines that `make` prints.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::source::Source;
use super::{BuildEvent, Error, Tools};

/// The approximate number of object files in a 6.12 kernel of this configuration. It only sets the
/// length of a progress bar.
const OBJECTS_ABOUT: u64 = 1_200;
/// The path, in the build folder, of the image that `make` builds for x86.
const IMAGE: &str = "arch/x86/boot/bzImage";

/// A compiled kernel that is still in its build folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    pub(super) image: PathBuf,
    /// The release, as `uname -r` will print it.
    pub(super) release: String,
}

/// Compiles `source` in `folder`, which must be configured. Objects that have not changed are not
/// compiled again, so an interrupted build continues where it stopped.
pub(super) fn compile(
    tools: &Tools,
    source: &Source,
    folder: &Path,
    local_version: &str,
    jobs: NonZeroUsize,
    told: &mut dyn FnMut(BuildEvent<'_>),
) -> Result<Compiled, Error> {
    let make = |goal: &str| {
        let mut command = tools.make(&source.folder, folder);
        // Only the release identifies the build. The build's time, user and host are fixed, so that
        // the image does not depend on these values.
        command.arg(format!("LOCALVERSION={local_version}"));
        command.args(["KBUILD_BUILD_TIMESTAMP=@0", "KBUILD_BUILD_USER=plimsoll"]);
        command.args(["KBUILD_BUILD_HOST=plimsoll", &format!("-j{jobs}"), goal]);
        command
    };
    told(BuildEvent::Begins("compiling the kernel"));
    let there = objects_below(folder);
    let left = OBJECTS_ABOUT
        .checked_sub(there)
        .filter(|left| *left > OBJECTS_ABOUT / 10);
    let mut done = 0;
    told(BuildEvent::Compiled { done, left });
    let mut line = |line: &str| {
        if is_object(line) {
            done += 1;
            told(BuildEvent::Compiled { done, left });
        }
    };
    let log = folder.join("plimsoll.log");
    Tools::run_logged(
        &mut make("bzImage"),
        "compiling the kernel",
        &log,
        &mut line,
    )?;
    let release = Tools::run(
        make("kernelrelease").arg("-s"),
        "asking for the kernel's release",
    )?;
    Ok(Compiled {
        image: folder.join(IMAGE),
        release: release.trim().to_owned(),
    })
}

/// Returns whether a line of `make` reports the compilation of an object: `  CC      mm/vmstat.o`.
fn is_object(line: &str) -> bool {
    let mut words = line.split_whitespace();
    matches!(words.next(), Some("CC" | "AS"))
        && words.next().is_some_and(|name| name.ends_with(".o"))
}

/// Counts the object files that already exist below `folder`. An unreadable folder counts as empty.
/// This is good enough, because the number only sets the length of a progress bar.
fn objects_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // The recursion ends: links are not followed, so the folders are a finite tree.
    let count = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => objects_below(&entry.path()),
        _ => u64::from(entry.path().extension().is_some_and(|end| end == "o")),
    };
    entries.map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_objects_count() {
        for line in [
            "  CC      mm/vmstat.o",
            "  AS      arch/x86/entry/entry_64.o",
        ] {
            assert!(is_object(line), "{line}");
        }
        for line in [
            "  LD      vmlinux.o",
            "  CC",
            "",
            "mm/vmstat.o",
            "  HOSTCC  scripts/x",
            "  GEN x.o",
        ] {
            assert!(!is_object(line), "{line}");
        }
    }

    #[test]
    fn objects_are_counted_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        for file in ["a/b/x.o", "a/y.o", "a/y.c", "z.o"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        assert_eq!(objects_below(folder.path()), 3);
        assert_eq!(objects_below(Path::new("/no/such/folder")), 0);
    }
}
