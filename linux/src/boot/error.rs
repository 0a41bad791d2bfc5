//! Errors of booting and recording a kernel.

use std::error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reasons why a kernel could not be booted and recorded.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be met; the text says what is possible.
    Asked(String),
    /// Something must be installed on this computer first; the text says how.
    Missing(String),
    /// A file could not be read or written.
    File {
        /// The operation on the file, such as "read" or "write".
        doing: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program ended with an error.
    Program {
        /// The program and its arguments.
        command: String,
        /// The text that the program wrote to standard error.
        said: String,
    },
    /// The guest reported a failure.
    Guest {
        /// The guest's description of the failure.
        said: String,
        /// The last lines of the guest's console output.
        console: String,
        /// The file with the data that the guest had sent; `None` if the guest had sent nothing.
        kept: Option<PathBuf>,
    },
    /// The guest ended before it had sent the whole recording.
    Ended {
        /// Words for the state that the guest had reached, such as "while it booted".
        after: String,
        /// QEMU's exit status and output.
        how: String,
        /// The last lines of the guest's console output.
        console: String,
        /// The file with the data that the guest had sent; `None` if the guest had sent nothing.
        kept: Option<PathBuf>,
    },
    /// The guest was stopped before it had sent the whole recording.
    Stopped {
        /// The reason why the guest was stopped.
        why: Stop,
        /// Words for the state that the guest had reached, such as "while it booted".
        after: String,
        /// The file with the data that the guest had sent; `None` if the guest had sent nothing.
        kept: Option<PathBuf>,
    },
}

/// The reasons to stop a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The guest ran longer than its timeout.
    Timeout(Duration),
    /// The user sent a signal, for example with Ctrl-C.
    Signal,
}

impl Error {
    /// Returns a closure for `map_err` that makes the error of an operation on `path`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }

    /// Returns whether the user can correct the error.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        // If a guest fails, Plimsoll may be at fault. All other errors are caused by this computer
        // or by the request.
        !matches!(self, Self::Guest { .. } | Self::Ended { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(text) | Self::Missing(text) => f.write_str(text),
            Self::File {
                doing,
                path,
                source,
            } => write!(f, "cannot {doing} {}: {source}", path.display()),
            Self::Program { command, said } => write!(f, "`{command}` failed: {}", said.trim()),
            Self::Guest {
                said,
                console,
                kept,
            } => {
                write!(f, "the guest failed: {said}{}", Kept(kept.as_deref()))?;
                write!(f, "{}", Console(console))
            }
            Self::Ended {
                after,
                how,
                console,
                kept,
            } => {
                let kept = Kept(kept.as_deref());
                write!(f, "the guest ended {after}: {how}{kept}")?;
                write!(f, "{}", Console(console))
            }
            Self::Stopped { why, after, kept } => {
                let kept = Kept(kept.as_deref());
                match why {
                    Stop::Timeout(limit) => write!(
                        f,
                        "the guest was stopped {after}, after {} seconds: allow more with --timeout{kept}",
                        limit.as_secs()
                    ),
                    Stop::Signal => write!(f, "the guest was stopped {after}{kept}"),
                }
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        // The text of a file error already ends with the text of the underlying I/O error. So
        // returning this I/O error as the source would add nothing.
        None
    }
}

struct Kept<'a>(Option<&'a Path>);

impl fmt::Display for Kept<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(
                f,
                "; the events that it had sent are kept in {}",
                path.display()
            ),
            None => Ok(()),
        }
    }
}

struct Console<'a>(&'a str);

impl fmt::Display for Console<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.trim().is_empty() {
            return f.write_str("\nits console is empty");
        }
        write!(f, "\nthe end of its console:")?;
        self.0.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
