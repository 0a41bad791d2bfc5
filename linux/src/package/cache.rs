//! The folder in which kernels are kept: a part of the user's cache, with one folder for each
//! kernel.

use std::env;
use std::path::PathBuf;

use super::CHECKED_SERIES;
use crate::boot::Error;

/// Returns Plimsoll's cache folder: `$XDG_CACHE_HOME/plimsoll`, or else `~/.cache/plimsoll`.
///
/// # Errors
///
/// If neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn folder() -> Result<PathBuf, Error> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let cache = cache(variable("XDG_CACHE_HOME"), variable("HOME"));
    let cache = cache.ok_or_else(|| {
        Error::Asked("no folder for kernels: set HOME or XDG_CACHE_HOME".to_owned())
    })?;
    Ok(cache.join("plimsoll"))
}

/// Returns the folder `kernels` in the cache folder. It has one folder for each kernel.
///
/// # Errors
///
/// If the cache folder cannot be determined.
pub fn kernels() -> Result<PathBuf, Error> {
    Ok(folder()?.join("kernels"))
}

/// Returns the folder of the unpatched kernel that `build` makes with `hz` timer interrupts per
/// second.
///
/// # Errors
///
/// If the cache folder cannot be determined.
pub fn built(hz: u32) -> Result<PathBuf, Error> {
    Ok(kernels()?.join(format!("{CHECKED_SERIES}-hz{hz}")))
}

fn cache(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // The XDG specification says that relative paths must be ignored.
    let xdg = xdg.filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute());
    xdg.or_else(|| Some(home?.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_xdg_says() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(cache(path("/c"), path("/home/a")), path("/c"));
        assert_eq!(cache(path("c"), path("/home/a")), path("/home/a/.cache"));
        assert_eq!(cache(None, path("/home/a")), path("/home/a/.cache"));
        assert_eq!(cache(path(""), None), None);
    }
}
