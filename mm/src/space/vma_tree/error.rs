//! The reasons why a tree of mappings refuses a call.

use core::error::Error;
use core::fmt;

use super::Vma;
use crate::units::Vpn;

/// The error of a lookup during which the tree changed on every try. The caller should take the
/// lock of the mappings, and look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// There is not enough memory for a new node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// The reason why a mapping cannot be added or changed. The tree is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmaError {
    /// The mapping ends where it begins.
    Empty(Vma),
    /// The mapping ends before it begins.
    Unordered(Vma),
    /// The mapping has more pages than [`Vma::LEN_MAX`].
    TooLong(Vma),
    /// The mapping ends above [`Vma::END_MAX`].
    TooHigh(Vma),
    /// The mapping's id is larger than [`Vma::ID_MAX`].
    IdTooLarge(Vma),
    /// The new mapping overlaps this existing one.
    Overlaps(Vma),
    /// No mapping begins at this page.
    NotMapped(Vpn),
    /// There is not enough memory for a new node of the tree.
    NoMemory,
}

/// Checks that `new` has pages, and that its length, its end and its id are within the limits.
#[inline]
pub(super) fn check(new: Vma) -> Result<(), VmaError> {
    let is_sane = new.start < new.end
        && new.end <= Vma::END_MAX
        && new.pages() <= Vma::LEN_MAX
        && new.id <= Vma::ID_MAX;
    if is_sane { Ok(()) } else { Err(complaint(new)) }
}

#[cold]
fn complaint(new: Vma) -> VmaError {
    if new.start > new.end {
        VmaError::Unordered(new)
    } else if new.start == new.end {
        VmaError::Empty(new)
    } else if new.end > Vma::END_MAX {
        VmaError::TooHigh(new)
    } else if new.pages() > Vma::LEN_MAX {
        VmaError::TooLong(new)
    } else {
        VmaError::IdTooLarge(new)
    }
}

impl fmt::Display for VmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(Vma { start, .. }) => {
                write!(f, "a mapping at page {start} would have no pages")
            }
            Self::Unordered(Vma { start, end, .. }) => {
                write!(
                    f,
                    "a mapping cannot end at page {end} and begin at page {start}"
                )
            }
            Self::TooLong(vma) => {
                let (pages, max) = (vma.pages(), Vma::LEN_MAX);
                write!(f, "a mapping of {pages} pages is longer than {max}")
            }
            Self::TooHigh(Vma { end, .. }) => {
                write!(f, "page {end} is above the last one, {}", Vma::END_MAX)
            }
            Self::IdTooLarge(Vma { id, .. }) => {
                write!(f, "id {id} is larger than {}", Vma::ID_MAX)
            }
            Self::Overlaps(Vma { start, end, .. }) => {
                write!(f, "pages {start} to {end} are mapped already")
            }
            Self::NotMapped(page) => write!(f, "no mapping begins at page {page}"),
            Self::NoMemory => f.write_str("no memory for the tree of mappings"),
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mappings changed whenever they were read")
    }
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        VmaError::NoMemory.fmt(f)
    }
}

impl Error for VmaError {}
impl Error for Busy {}
impl Error for NoMemory {}

impl From<NoMemory> for VmaError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}
