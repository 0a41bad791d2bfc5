//! The reasons why a recording failed, with remedies.

use std::error;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_recording::WriteError;
use rustix::process::geteuid;

/// The reasons why nothing, or not everything, was recorded.
#[derive(Debug)]
pub enum RecordError {
    /// The kernel has no tracefs.
    NoTracefs,
    /// The user has no permission to trace.
    NotRoot,
    /// The kernel is locked down.
    Lockdown,
    /// A file of tracefs could not be used.
    Tracefs {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The kernel does not have enough memory for the ring buffers.
    Buffers {
        /// The requested size of each CPU's ring buffer, in MiB.
        mib: u32,
    },
    /// The file of the recording could not be opened.
    Output {
        /// The path of the file, as the user gave it.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The command could not be started.
    Command {
        /// The name of the command.
        name: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The recording could not be written to its end.
    Write {
        /// The path of the file, as the user gave it.
        path: PathBuf,
        /// The error of the operating system, and the number of events that are in the file.
        source: WriteError,
    },
    /// The kernel describes its events in a form that Plimsoll does not know; the text says what is
    /// unknown.
    Formats(String),
    /// The system refused an operation that no other variant covers.
    System {
        /// The attempted operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl RecordError {
    /// Translates an error of tracefs into the error to report to the user.
    pub(crate) fn of_tracefs(path: impl AsRef<Path>, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::PermissionDenied {
            if !geteuid().is_root() {
                return Self::NotRoot;
            }
            let lockdown = fs::read_to_string("/sys/kernel/security/lockdown");
            // The file `lockdown` lists all states; the current state is in brackets.
            if lockdown.is_ok_and(|modes| modes.contains('[') && !modes.contains("[none]")) {
                return Self::Lockdown;
            }
        }
        Self::Tracefs {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// Returns whether the user can correct the error. Any other error is a fault of Plimsoll.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Formats(_))
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTracefs => f.write_str(
                "this kernel has no tracefs; it needs CONFIG_FTRACE and CONFIG_EVENT_TRACING. \
                 `perf record -a -e 'kmem:mm_page_*'` needs them too",
            ),
            Self::NotRoot => f.write_str(
                "only root may read the kernel's events; run `sudo plimsoll record …`, or give \
                 a user the right to read and write /sys/kernel/tracing",
            ),
            Self::Lockdown => f.write_str(
                "the kernel is in lockdown and hides its events, even from root; boot \
                 without `lockdown=` or switch off Secure Boot \
                 (/sys/kernel/security/lockdown shows the state)",
            ),
            Self::Tracefs { path, source } => {
                write!(f, "cannot use {}: {source}", path.display())
            }
            Self::Buffers { mib } => write!(
                f,
                "there is not enough memory for ring buffers of {mib} MiB on each CPU; give a \
                 smaller --buffer-mb"
            ),
            Self::Output { path, source } => write!(
                f,
                "cannot write to {}: {source}; name another --output",
                path.display()
            ),
            Self::Command { name, source } => write!(f, "cannot run {name}: {source}"),
            Self::Write { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Formats(what) => write!(
                f,
                "this kernel describes its events in an unknown way ({what}); please report \
                 this line with `uname -r`"
            ),
            Self::System { what, source } => write!(f, "cannot {what}: {source}"),
        }
    }
}

// The printed text already includes the cause, so `source` is not implemented.
impl error::Error for RecordError {}
