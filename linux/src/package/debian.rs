//! Debian's cloud kernels. They are small, have everything that a recording needs, and have the
//! drivers for emulators built in.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{CHECKED_SERIES, Kernel, cache};
use crate::boot::Error;

/// Returns the newest packaged kernel of `series`; fetches it if it is not present yet. Calls
/// `said` before it fetches anything.
///
/// # Errors
///
/// If `series` is not a kernel series, or its package does not exist or cannot be fetched or
/// unpacked.
pub fn kernel(series: &str, said: &mut dyn FnMut(&str)) -> Result<Kernel, Error> {
    check(series)?;
    let kernels = cache::kernels()?;
    let known = match names(series) {
        Ok(names) => newest(series, names.lines()),
        // If `apt-cache` fails, the function returns a kernel that was fetched before.
        Err(error) => return newest_in(series, &kernels).ok_or(error)?,
    };
    let Some(package) = known else {
        return newest_in(series, &kernels).ok_or_else(|| {
            Error::Missing(format!(
                "apt knows no package linux-image-{series}.*-cloud-amd64: run `apt-get update`, \
                 name another --series, or a --kernel"
            ))
        })?;
    };
    let folder = kernels.join(&package);
    if !folder.is_dir() {
        said(&format!("fetching {package}"));
        fetch(&package, &kernels)?;
    }
    Kernel::of_folder(&folder)
}

/// Checks that `series` consists of two numbers with a dot between them, because `series` becomes
/// part of a command and of a path.
fn check(series: &str) -> Result<(), Error> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match series.split_once('.') {
        Some((major, minor)) if digits(major) && digits(minor) => Ok(()),
        _ => Err(Error::Asked(format!(
            "`{series}` is not a kernel series: write it like {CHECKED_SERIES}"
        ))),
    }
}

/// Asks `apt-cache` for all packages whose names begin with `linux-image-` and the series. Returns
/// their names, one on each line.
fn names(series: &str) -> Result<String, Error> {
    let output =
        run(Command::new("apt-cache").args(["pkgnames", &format!("linux-image-{series}.")]))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the newest cloud kernel of `series` among `names`.
fn newest<'a>(series: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let versioned = |name: &'a str| Some((version(series, name)?, name));
    let newest = names.filter_map(versioned).max();
    newest.map(|(_, name)| name.to_owned())
}

/// Returns the key that sorts the kernels of `series` by age: the number after the series, then
/// Debian's suffix. An unsigned kernel sorts after the signed kernel of the same version; the two
/// differ only in the signature.
fn version(series: &str, name: &str) -> Option<(u32, String)> {
    let rest = name.strip_prefix("linux-image-")?.strip_prefix(series)?;
    let (patch, rest) = split_digits(rest.strip_prefix('.')?);
    let (version, unsigned) = match rest.strip_suffix("-unsigned") {
        Some(version) => (version, "unsigned"),
        None => (rest, ""),
    };
    let added = version.strip_suffix("-cloud-amd64")?;
    Some((patch.parse().ok()?, format!("{added} {unsigned}")))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns the newest kernel of `series` that was fetched before.
fn newest_in(series: &str, kernels: &Path) -> Option<Result<Kernel, Error>> {
    let entries = fs::read_dir(kernels).ok()?.flatten();
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let name = newest(series, names.iter().map(String::as_str))?;
    Some(Kernel::of_folder(&kernels.join(name)))
}

/// Fetches a package and unpacks it. A final rename ensures that the folder is complete.
fn fetch(package: &str, kernels: &Path) -> Result<(), Error> {
    fs::create_dir_all(kernels).map_err(Error::file("make", kernels))?;
    let draft = tempfile::Builder::new()
        .prefix(".fetching-")
        .tempdir_in(kernels);
    let draft = draft.map_err(Error::file("write to", kernels))?;
    run(Command::new("apt-get")
        .args(["download", package])
        .current_dir(draft.path()))?;
    let entries = fs::read_dir(draft.path()).map_err(Error::file("read", draft.path()))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let archive = files
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| {
            Error::Missing(format!("`apt-get download {package}` downloaded nothing"))
        })?;
    let root = draft.path().join("root");
    run(Command::new("dpkg").arg("-x").args([&archive, &root]))?;
    Kernel::of_folder(&root)?;
    let folder = kernels.join(package);
    match fs::rename(&root, &folder) {
        // Another process has fetched the same package in the meantime.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => renamed.map_err(Error::file("write", &folder)),
    }
}

fn run(command: &mut Command) -> Result<Output, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        Error::Missing(format!(
            "cannot run {name}, which fetches Debian's kernels: {error}; name a --kernel instead"
        ))
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    let words: Vec<_> = [name.into()].into_iter().chain(arguments).collect();
    Err(Error::Program {
        command: words.join(" "),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_chosen_by_number_and_unsigned_before_signed() {
        let names = [
            "linux-image-6.12.9+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.117+deb12-cloud-amd64-dbg",
            "linux-image-6.12.118+deb12-amd64-unsigned",
            "linux-image-6.12.118+deb12-cloud-arm64-unsigned",
            "linux-image-6.1.200-cloud-amd64-unsigned",
            "linux-image-6.12-cloud-amd64",
        ];
        assert_eq!(
            newest("6.12", names.into_iter()).as_deref(),
            Some("linux-image-6.12.117+deb12-cloud-amd64-unsigned")
        );
        assert_eq!(newest("6.18", names.into_iter()), None);
    }

    #[test]
    fn one_series_is_not_the_beginning_of_another() {
        let names = ["linux-image-6.12.117+deb12-cloud-amd64"];
        assert_eq!(newest("6.1", names.into_iter()), None);
        let names = ["linux-image-6.1.0-47-cloud-amd64-unsigned"];
        assert!(newest("6.1", names.into_iter()).is_some());
    }

    #[test]
    fn what_is_no_series_never_reaches_a_command() {
        for series in ["", "6", "6.", "6.12; rm", "../6.1", "6.12.3", "v6.1"] {
            assert!(check(series).unwrap_err().is_bad_input(), "{series}");
        }
        check("6.12").unwrap();
    }
}
