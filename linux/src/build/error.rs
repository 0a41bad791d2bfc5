//! Errors of building a kernel.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reasons why a kernel could not be built.
#[derive(Debug)]
pub enum Error {
    /// The request cannot be met; the text says what is possible.
    Asked(String),
    /// Something must be installed first; the text names the command that installs it.
    Missing(String),
    /// A command that the build ran has failed.
    Failed {
        /// The purpose of the command, such as "unpacking the source".
        what: String,
        /// The last lines of the command's output.
        said: String,
        /// The file with all of the command's output, if it was kept.
        log: Option<PathBuf>,
    },
    /// A file or folder could not be read or written.
    File {
        /// The operation on the file or folder, such as "read" or "write".
        what: &'static str,
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    /// Returns whether the user can correct the error without repairing the computer.
    #[must_use]
    pub const fn is_bad_input(&self) -> bool {
        matches!(self, Self::Asked(_) | Self::Missing(_))
    }

    /// Returns a closure for `map_err` that makes the error of an operation on `path`.
    pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(text) | Self::Missing(text) => f.write_str(text),
            Self::Failed { what, said, log } => {
                write!(f, "{what} failed")?;
                if let Some(log) = log {
                    write!(f, "; all of its output is in {}", log.display())?;
                }
                if said.is_empty() {
                    return Ok(());
                }
                write!(f, "; it ended with:\n{said}")
            }
            Self::File { what, path, source } => {
                write!(f, "cannot {what} {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::Asked(_) | Self::Missing(_) | Self::Failed { .. } => None,
        }
    }
}
