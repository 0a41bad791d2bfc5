//! Finds the shared libraries that this process has mapped. The same program needs the same
//! libraries in a guest.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Error;

/// A library, and the names under which programs look for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) file: PathBuf,
    pub(crate) names: Vec<String>,
}

/// Returns the libraries of this process, including its loader.
pub(crate) fn of_this_process() -> Result<Vec<Library>, Error> {
    let maps = Path::new("/proc/self/maps");
    let text = fs::read_to_string(maps).map_err(Error::file("read", maps))?;
    let mapped = mapped(&text).into_iter();
    let libraries = mapped.filter(|file| is_library(file));
    Ok(libraries.map(library).collect())
}

/// Returns the files of all mappings in `maps`, the text of `/proc/PID/maps`.
fn mapped(maps: &str) -> BTreeSet<PathBuf> {
    let files = maps.lines().filter_map(|line| line.split_once(" /"));
    files.map(|(_, path)| Path::new("/").join(path)).collect()
}

/// Returns whether a file has the name of a library, such as `libc.so.6` or `ld-linux-x86-64.so.2`.
fn is_library(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(".so") || name.contains(".so."))
}

/// Finds all names of a library, because a program may open it through a link to the mapped file.
fn library(file: PathBuf) -> Library {
    let mut names: Vec<String> = file.file_name().into_iter().map(text).collect();
    let folder = file.parent().unwrap_or(Path::new("/"));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() && fs::canonicalize(&path).is_ok_and(|target| target == file) {
            names.push(text(&entry.file_name()));
        }
    }
    Library { file, names }
}

fn text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_all_else_that_is_mapped() {
        let maps = "\
7f00-7f01 r--p 00000000 fe:01 12  /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 r-xp 00001000 fe:01 12  /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 rw-p 00000000 00:00 0
7f03-7f04 r--p 00000000 fe:01 13  /home/a user/plimsoll
7f04-7f05 r--p 00000000 fe:01 14  /usr/lib/ld-linux-x86-64.so.2
7f05-7f06 rw-p 00000000 00:00 0  [stack]
";
        let libraries: Vec<_> = mapped(maps).into_iter().filter(|f| is_library(f)).collect();
        assert_eq!(
            libraries,
            [
                PathBuf::from("/usr/lib/ld-linux-x86-64.so.2"),
                PathBuf::from("/usr/lib/x86_64-linux-gnu/libc.so.6")
            ]
        );
    }

    #[test]
    fn a_library_goes_by_the_links_to_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let file = folder.join("libx-1.2.so");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("libx-1.2.so", folder.join("libx.so.1")).unwrap();
        std::os::unix::fs::symlink("elsewhere", folder.join("liby.so.1")).unwrap();
        assert_eq!(library(file).names, ["libx-1.2.so", "libx.so.1"]);
    }

    #[test]
    fn this_process_has_a_c_library() {
        let libraries = of_this_process().unwrap();
        if cfg!(target_env = "gnu") {
            let is_libc = |name: &String| name.starts_with("libc.so");
            assert!(
                libraries
                    .iter()
                    .any(|library| library.names.iter().any(is_libc))
            );
        }
    }
}
