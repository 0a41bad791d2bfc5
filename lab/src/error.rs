//! The errors that can prevent a report.
//!
//! [`Error::is_bad_input`] tells whether the user can fix an error, or whether Plimsoll must be
//! changed.

use std::error;
use std::fmt;

use plimsoll_recording::ReadError;
use plimsoll_sim::profile::ProfileError;

use crate::catalog::names::nearest;

/// An error that leaves a command of the lab without a result.
#[derive(Debug)]
pub enum Error {
    /// The user gave an unknown name.
    Unknown {
        /// The kind of thing that was named, such as `machine` or `variant`.
        kind: &'static str,
        /// The name that the user gave.
        name: String,
        /// True if `offers` holds only known names that are similar to `name`; false if it holds
        /// all known names.
        near: bool,
        /// The known names to suggest to the user.
        offers: Vec<String>,
    },
    /// Unusable input. The text says where it is wrong and what was expected.
    Invalid(String),
    /// A recording (a file of kernel trace events) that could not be read.
    Trace(ReadError),
    /// Two runs with the same design and the same seed differed. This is always a bug in Plimsoll.
    NotDeterministic {
        /// The case (the run of one design on one seed), as text.
        case: String,
        /// The hash that the first run produced.
        first: u64,
        /// The hash that the second run produced; equal runs have equal hashes.
        second: u64,
    },
}

impl Error {
    /// Returns the error for an unknown `name`. It offers the nearest of `names`, or all of `names`
    /// if none is near.
    #[must_use]
    pub fn unknown(kind: &'static str, name: &str, names: &[&str]) -> Self {
        let near = nearest(name, names);
        let offers = if near.is_empty() { names } else { &near };
        let offers = offers.iter().map(|offer| (*offer).to_owned()).collect();
        Self::Unknown {
            kind,
            name: name.to_owned(),
            near: !near.is_empty(),
            offers,
        }
    }

    /// Returns whether the user's input caused the error. If so, a corrected input may work.
    #[must_use]
    pub const fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Unknown { .. } | Self::Invalid(_) | Self::Trace(_)
        )
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        Self::Trace(error)
    }
}

impl From<ProfileError> for Error {
    fn from(error: ProfileError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown {
                kind,
                name,
                near,
                offers,
            } => {
                let offers: Vec<String> = offers.iter().map(|name| format!("`{name}`")).collect();
                let offers = offers.join(", ");
                if *near {
                    write!(f, "no {kind} is called `{name}`; did you mean {offers}?")
                } else {
                    write!(f, "no {kind} is called `{name}`; choose one of {offers}")
                }
            }
            Self::Invalid(what) => f.write_str(what),
            Self::Trace(error) => error.fmt(f),
            Self::NotDeterministic {
                case,
                first,
                second,
            } => write!(
                f,
                "two runs of {case} differ: hash {first:016x}, then {second:016x}; \
                 this is a bug in Plimsoll, please report it with this line"
            ),
        }
    }
}

// The text of an error already includes its cause (such as a `ReadError`). If `source` returned the
// cause as well, a caller that prints all sources would print the cause twice.
impl error::Error for Error {}
