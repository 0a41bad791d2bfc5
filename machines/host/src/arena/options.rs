//! The options of an arena, and the errors that its creation can return.

use std::ops::Range;
use std::{fmt, io};

use plimsoll_mm::units::{NodeId, Pages};

use super::Arena;

/// The kernel's policy for huge pages in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// The kernel follows the system-wide settings.
    AsSystem,
    /// The kernel uses huge pages where it can (Linux: `MADV_HUGEPAGE`).
    Advise,
    /// The kernel uses no huge pages, so that single frames can be returned to it (Linux:
    /// `MADV_NOHUGEPAGE`).
    Refuse,
}

/// The memory that a forked child of this process has at the addresses of the arena. In each case
/// the child must not use the memory manager of its parent: on Linux, an allocation or a free
/// aborts the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFork {
    /// The child has no memory there: an access is a segmentation fault (Linux: `MADV_DONTFORK`).
    /// The parent pays nothing for the fork. On systems other than Linux, a child inherits the
    /// memory, as with `Inherit`.
    Absent,
    /// At the addresses of the arena, the child has memory of its own, which contains zeros (Linux:
    /// `MADV_WIPEONFORK`). Only private memory can have this option.
    Zeroed,
    /// The child has a copy of the contents at the time of the fork. The parent pays a page fault
    /// for its first write to each page after the fork. If the arena has a file descriptor, parent
    /// and child share the memory instead.
    Inherit,
}

/// The options of an arena. [`ArenaOptions::map`] creates it.
///
/// ```
/// use plimsoll_host::arena::{ArenaOptions, HugePages};
/// use plimsoll_mm::units::Pages;
///
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Memory of a virtual machine: another process maps it by its file descriptor.
/// let arena = ArenaOptions::new(Pages(4096))
///     .memfd("guest-memory")
///     .huge_pages(HugePages::Advise)
///     .map()?;
/// assert!(arena.fd().is_some());
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
#[must_use = "options alone map no memory"]
pub struct ArenaOptions {
    pub(super) pages: Pages,
    pub(super) huge: HugePages,
    pub(super) on_fork: OnFork,
    pub(super) memfd: Option<String>,
    pub(super) nodes: Vec<(Range<u32>, NodeId)>,
    pub(super) populate: bool,
}

impl ArenaOptions {
    /// Returns the default options for a private arena of `pages` frames. The arena follows the
    /// system's settings for huge pages, is absent in forked children, and is bound to no node. A
    /// frame gets memory when it is first touched.
    ///
    /// `pages` is the largest number of frames that the arena will ever have. Frames that are not
    /// touched take only address space, so a zone that may grow needs no second arena. The kernel
    /// does not count the frames as committed memory (Linux: `MAP_NORESERVE`), unless the system
    /// forbids overcommitment (`vm.overcommit_memory` = 2).
    pub const fn new(pages: Pages) -> Self {
        Self {
            pages,
            huge: HugePages::AsSystem,
            on_fork: OnFork::Absent,
            memfd: None,
            nodes: Vec::new(),
            populate: false,
        }
    }

    /// Sets the policy for huge pages. An arena with a file descriptor gets huge pages only if the
    /// system allows them for shared memory (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
    pub const fn huge_pages(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self
    }

    /// Sets what a forked child finds in the arena.
    pub const fn on_fork(mut self, on_fork: OnFork) -> Self {
        self.on_fork = on_fork;
        self
    }

    /// Gives the arena a file descriptor (Linux: `memfd_create`), so that a virtual machine or
    /// another process can map the same memory. `name` appears in `/proc/self/maps`. The size of
    /// the file is sealed: no process that has the descriptor can truncate the file, which would
    /// make accesses by all other processes fail.
    pub fn memfd(mut self, name: &str) -> Self {
        self.memfd = Some(name.into());
        self
    }

    /// Takes the memory of a range of frames from `node` only (Linux: `mbind` with `MPOL_BIND`). If
    /// `node` is the only one that has memory, nothing needs to be bound, and [`Arena::placement`]
    /// returns [`Placement::OneNode`](crate::numa::Placement::OneNode).
    pub fn on_node(mut self, frames: Range<u32>, node: NodeId) -> Self {
        self.nodes.push((frames, node));
        self
    }

    /// Makes the kernel allocate memory for all frames at once, as [`Arena::populate`] does.
    pub const fn populated(mut self) -> Self {
        self.populate = true;
        self
    }

    /// Maps the memory and returns the arena.
    ///
    /// # Errors
    /// If the number of pages is 0 or too large, a range is not in the arena, a node does not
    /// exist, or the kernel refuses.
    pub fn map(self) -> Result<Arena, ArenaError> {
        Arena::with(&self)
    }
}

/// The reason why an arena could not be created.
#[derive(Debug)]
pub enum ArenaError {
    /// The arena would have no pages, or more pages than the address space can hold.
    Size {
        /// The requested number of pages.
        pages: Pages,
    },
    /// The kernel refused the mapping.
    Map {
        /// The requested number of pages.
        pages: Pages,
        /// The kernel's error.
        why: io::Error,
    },
    /// The kernel refused the advice about huge pages, for instance because it does not support
    /// them.
    Advise {
        /// The kernel's error.
        why: io::Error,
    },
    /// The kernel created no file for the memory.
    Memfd {
        /// The kernel's error.
        why: io::Error,
    },
    /// The kernel refused the advice about forks. Memory with a file descriptor cannot be
    /// [`OnFork::Zeroed`].
    Fork {
        /// The requested state in a child.
        on_fork: OnFork,
        /// The kernel's error.
        why: io::Error,
    },
    /// A range of frames for a node is empty, or is not inside the arena.
    Range {
        /// The requested range.
        frames: Range<u32>,
        /// The number of pages of the arena.
        pages: Pages,
    },
    /// No node of this number has memory.
    NoSuchNode {
        /// The requested node.
        node: NodeId,
        /// The nodes that have memory.
        nodes: Vec<NodeId>,
    },
    /// The kernel did not bind memory to a node, for instance because it has no support for NUMA.
    Bind {
        /// The requested node.
        node: NodeId,
        /// The kernel's error.
        why: io::Error,
    },
    /// The kernel did not have enough memory for all frames, or it does not support populating all
    /// frames at once.
    Populate {
        /// The kernel's error.
        why: io::Error,
    },
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { pages } => write!(f, "an arena cannot have {pages} pages"),
            Self::Map { pages, why } => write!(f, "the kernel did not map {pages} pages: {why}"),
            Self::Advise { why } => write!(f, "the kernel did not take the advice: {why}"),
            Self::Memfd { why } => write!(f, "the kernel created no file for memory: {why}"),
            Self::Fork { on_fork, why } => write!(
                f,
                "the kernel cannot make memory {on_fork:?} in a forked child: {why}; memory with a \
                 file descriptor can be Absent or Inherit"
            ),
            Self::Range { frames, pages } => write!(
                f,
                "frames {} to {} are empty or not in an arena of {pages} pages",
                frames.start, frames.end
            ),
            Self::NoSuchNode { node, nodes } => {
                let nodes: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
                let nodes = nodes.join(", ");
                write!(
                    f,
                    "node {} has no memory; these nodes have: {nodes}",
                    node.0
                )
            }
            Self::Bind { node, why } => write!(
                f,
                "the kernel did not bind memory to node {}: {why}; leave the nodes out if the \
                 kernel has no NUMA",
                node.0
            ),
            Self::Populate { why } => write!(f, "the kernel gave no memory in advance: {why}"),
        }
    }
}

impl std::error::Error for ArenaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size { .. } | Self::Range { .. } | Self::NoSuchNode { .. } => None,
            Self::Map { why, .. }
            | Self::Advise { why }
            | Self::Memfd { why }
            | Self::Fork { why, .. }
            | Self::Bind { why, .. }
            | Self::Populate { why } => Some(why),
        }
    }
}
