//! Where kernels are kept: a folder of the user's cache, one folder a kernel.

use std::env;
use std::path::PathBuf;

use super::debian::CHECKED_SERIES;
use crate::boot::Error;

/// The folder of all that is kept: `$XDG_CACHE_HOME/plimsoll`, or below `~/.cache`.
///
/// # Errors
///
/// If neither variable names a folder.
pub fn folder() -> Result<PathBuf, Error> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let cache = cache(variable("XDG_CACHE_HOME"), variable("HOME"));
    let cache = cache.ok_or_else(|| {
        Error::Asked("no folder for kernels: set HOME or XDG_CACHE_HOME".to_owned())
    })?;
    Ok(cache.join("plimsoll"))
}

/// The folder of all kernels, inside of [`folder`].
///
/// # Errors
///
/// If there is no cache folder.
pub fn kernels() -> Result<PathBuf, Error> {
    Ok(folder()?.join("kernels"))
}

/// The folder of the kernel that `build` makes with this many timer interrupts a second, without patches.
///
/// # Errors
///
/// If there is no cache folder.
pub fn built(hz: u32) -> Result<PathBuf, Error> {
    Ok(kernels()?.join(format!("{CHECKED_SERIES}-hz{hz}")))
}

fn cache(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // A relative path is to be ignored, says the XDG specification.
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
