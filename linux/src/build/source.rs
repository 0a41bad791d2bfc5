//! The kernel's source as Debian packages it: fetched and unpacked into the cache, not installed.
//!
//! Each step works in a separate folder and ends with a rename. So the next build repeats an
//! interrupted step, and never uses a half-unpacked folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BuildEvent, Error, Tools};

/// The file in the source that stores the name and version of the package.
const PACKAGE: &str = ".plimsoll-package";

/// A kernel's unpacked source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The folder that contains the kernel's top-level `Makefile`.
    pub(super) folder: PathBuf,
    /// The package that contained the source, such as `linux-source-6.12_6.12.117-1~deb12u1_all`.
    pub(super) package: String,
}

/// Checks that `series` consists of two numbers with a dot between them, because `series` becomes
/// part of a command and of a path.
///
/// # Errors
///
/// [`Error::Asked`] if `series` is anything else.
pub(super) fn check_series(series: &str) -> Result<(), Error> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match series.split_once('.') {
        Some((major, minor)) if digits(major) && digits(minor) => Ok(()),
        _ => Err(Error::Asked(format!(
            "`{series}` is not a kernel series: write it like 6.12"
        ))),
    }
}

/// Returns the source of `series` below `folder`; fetches and unpacks the source if it is not
/// present yet.
pub(super) fn source(
    tools: &Tools,
    series: &str,
    folder: &Path,
    told: &mut dyn FnMut(BuildEvent<'_>),
) -> Result<Source, Error> {
    let unpacked = folder.join(series);
    if let Ok(package) = fs::read_to_string(unpacked.join(PACKAGE)) {
        return Ok(Source {
            folder: unpacked,
            package,
        });
    }
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    let fetched = empty(&folder.join(format!("{series}.fetching")))?;
    told(BuildEvent::Begins(&format!(
        "fetching linux-source-{series}, 150 MB"
    )));
    let archive = fetch(tools, series, &fetched)?;
    let draft = empty(&folder.join(format!("{series}.unpacking")))?;
    told(BuildEvent::Begins(&format!(
        "unpacking linux-source-{series}"
    )));
    let package = unpack(tools, series, &archive, &draft)?;
    fs::remove_dir_all(&fetched).map_err(Error::file("remove", &fetched))?;
    // A folder without the file that names the package was left by an interrupted build.
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).map_err(Error::file("remove", &unpacked))?;
    }
    fs::rename(&draft, &unpacked).map_err(Error::file("rename", &draft))?;
    Ok(Source {
        folder: unpacked,
        package,
    })
}

/// Downloads the package into `folder` and returns its file.
fn fetch(tools: &Tools, series: &str, folder: &Path) -> Result<PathBuf, Error> {
    let package = format!("linux-source-{series}");
    let mut command = tools.command("apt-get");
    command.args(["download", &package]).current_dir(folder);
    let what = format!(
        "`apt-get download {package}` (if apt knows no such package: run `apt-get update`, or name another --series)"
    );
    Tools::run(&mut command, &what)?;
    let files = fs::read_dir(folder).map_err(Error::file("read", folder))?;
    let mut files = files.flatten().map(|entry| entry.path());
    files
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .ok_or_else(|| Error::Asked(format!("apt-get downloaded no package {package}")))
}

/// Unpacks the package `archive` and the source in it into `draft`; returns the package's name and
/// version.
fn unpack(tools: &Tools, series: &str, archive: &Path, draft: &Path) -> Result<String, Error> {
    let content = archive.with_extension("content");
    let mut command = tools.command("dpkg-deb");
    Tools::run(
        command.arg("-x").arg(archive).arg(&content),
        "unpacking the package",
    )?;
    let packed = content.join(format!("usr/src/linux-source-{series}.tar.xz"));
    let mut command = tools.command("tar");
    command.args(["--strip-components=1", "-xf"]).arg(&packed);
    Tools::run(
        command.arg("-C").arg(draft),
        "unpacking the source (2 GB are needed)",
    )?;
    let package = archive.file_stem().unwrap_or_default();
    let package = package.to_string_lossy().replace("%3a", ":");
    let named = draft.join(PACKAGE);
    fs::write(&named, &package).map_err(Error::file("write", &named))?;
    Ok(package)
}

/// Creates `folder` as an empty folder; removes an existing folder first.
fn empty(folder: &Path) -> Result<PathBuf, Error> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Error::file("remove", folder))?;
    }
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_two_numbers() {
        for good in ["6.12", "7.0"] {
            assert!(check_series(good).is_ok(), "{good}");
        }
        for bad in ["6", "6.", ".12", "6.12.1", "../6.12", "6.x", ""] {
            assert!(check_series(bad).unwrap_err().is_bad_input(), "{bad}");
        }
    }
}
