//! The reasons why an address space refuses a call.

use core::error::Error;
use core::fmt;

use super::budget::OverBudget;
use super::object::PageError;
pub use super::vma_tree::NoMemory;
use super::vma_tree::Vma;
use crate::page::AllocError;
use crate::units::Vpn;

/// The reason why nothing was mapped or unmapped. The address space is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The request has no pages (Linux: `EINVAL`).
    Empty,
    /// The mapping would end above the highest address (Linux: `ENOMEM`, `EINVAL`).
    TooHigh {
        /// The page at which the mapping would begin.
        start: Vpn,
        /// The number of pages of the mapping.
        pages: u64,
    },
    /// The start, the end or the page count of the request is not a multiple of the alignment that
    /// a mapping of this kind needs (Linux: `EINVAL`).
    Unaligned {
        /// The page at which the mapping, or a piece of it, would begin or end. If the requested
        /// number of pages is not a multiple of `align`, the field has that number instead.
        page: Vpn,
        /// The alignment, in pages.
        align: u64,
    },
    /// This mapping occupies pages that were requested at a fixed address (Linux: `EEXIST`).
    Overlaps(Vma),
    /// No gap between the mappings has room for this number of pages (Linux: `ENOMEM`).
    NoRoom(u64),
    /// There would be more mappings than this limit (Linux: `vm.max_map_count`, `ENOMEM`).
    /// Unmapping the middle of a mapping splits it into two.
    TooMany(usize),
    /// The mapping would need a frame, or an index in its file or shared memory, that is above the
    /// largest possible one (Linux: `EINVAL`).
    NoSuchFrames,
    /// The global allocator has no memory for the book-keeping.
    NoMemory,
    /// The caller was killed while it waited for the lock of the mappings (Linux: `EINTR`).
    Killed,
    /// The address space has ended.
    Ended,
}

/// The reason why a page was not mapped. The mappings and the counters are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// The page is in no mapping (Linux: `SIGSEGV`, `SEGV_MAPERR`).
    NotMapped(Vpn),
    /// The address space is being reaped: its private pages may already be unmapped (Linux:
    /// `MMF_UNSTABLE`, `SIGBUS`).
    Unstable(Vpn),
    /// The address space, or a group that contains it, would use more than its budget (Linux: the
    /// memory group's OOM).
    OverBudget(OverBudget),
    /// The machine has no free page for the request (Linux: `out_of_memory`).
    OutOfMemory(AllocError),
    /// The global allocator has no memory for the book-keeping.
    NoMemory,
    /// The caller was killed while it waited for the lock of the mappings.
    Killed,
    /// The address space has ended.
    Ended,
}

impl From<PageError> for FaultError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::OutOfMemory(error) => Self::OutOfMemory(error),
            PageError::NoMemory => Self::NoMemory,
        }
    }
}

/// The reason why an address space cannot be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitError {
    /// An earlier call has ended the address space.
    Ended,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a range without pages: ask for at least one"),
            Self::TooHigh { start, pages } => write!(
                f,
                "{pages} pages from page {start} on end above the highest address, page {}: \
                 choose a lower one or ask for fewer",
                super::END
            ),
            Self::Unaligned { page, align } => {
                write!(
                    f,
                    "a mapping of huge pages begins and ends at a multiple of {align} pages, which \
                     {page} is not"
                )
            }
            Self::Overlaps(Vma { start, end, .. }) => {
                write!(
                    f,
                    "pages {start} to {end} are mapped already: unmap them first, or ask to replace them"
                )
            }
            Self::NoRoom(pages) => write!(
                f,
                "no gap of {pages} pages is left: unmap something, or ask for fewer"
            ),
            Self::TooMany(max) => write!(
                f,
                "there would be more than {max} mappings: unmap whole ones first, or allow more"
            ),
            Self::NoSuchFrames => f.write_str(
                "the mapping would need frames, or pages of its object, above the highest possible \
                 one: begin lower or map fewer",
            ),
            Self::NoMemory => f.write_str(
                "no memory for the records of the address space: give some back and try again",
            ),
            Self::Killed => f.write_str("killed while waiting for the mappings"),
            Self::Ended => f.write_str("the address space has ended: make a new one"),
        }
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped(page) => write!(f, "nothing is mapped at page {page}: map it first"),
            Self::Unstable(page) => {
                write!(
                    f,
                    "page {page} may have been unmapped: the process that owns it is being killed"
                )
            }
            Self::OverBudget(over) => over.fmt(f),
            Self::OutOfMemory(error) => error.fmt(f),
            Self::NoMemory => MapError::NoMemory.fmt(f),
            Self::Killed => MapError::Killed.fmt(f),
            Self::Ended => MapError::Ended.fmt(f),
        }
    }
}

impl fmt::Display for ExitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address space has already ended: end it only once")
    }
}

impl Error for MapError {}
impl Error for FaultError {}
impl Error for ExitError {}

impl From<NoMemory> for MapError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl From<NoMemory> for FaultError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl From<OverBudget> for FaultError {
    fn from(over: OverBudget) -> Self {
        Self::OverBudget(over)
    }
}
