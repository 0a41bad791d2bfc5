//! The lists of used pages of a NUMA node, and the kinds of pages that can be reclaimed.

/// A list of used pages of a NUMA node (Linux: `enum lru_list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum List {
    /// Anonymous pages that are the next candidates for reclaim (Linux: `LRU_INACTIVE_ANON`).
    Inactive,
    /// Anonymous pages that were touched several times (Linux: `LRU_ACTIVE_ANON`).
    Active,
    /// Pages of files that are the next candidates for reclaim (Linux: `LRU_INACTIVE_FILE`).
    InactiveFile,
    /// Pages of files that were touched several times (Linux: `LRU_ACTIVE_FILE`).
    ActiveFile,
    /// Pages that cannot be reclaimed: huge pages, and pages of address spaces that were not passed
    /// to [`Memory::enlist`](crate::space::Memory::enlist) (Linux: `LRU_UNEVICTABLE`).
    Unevictable,
}

/// A kind of pages that reclaim can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Anonymous pages, which move to swap.
    Anon,
    /// Pages of files, which are dropped.
    File,
}

impl Kind {
    /// Both kinds, in declaration order.
    pub const ALL: [Self; 2] = [Self::Anon, Self::File];

    /// The list of the inactive pages of this kind.
    #[must_use]
    pub const fn inactive(self) -> List {
        match self {
            Self::Anon => List::Inactive,
            Self::File => List::InactiveFile,
        }
    }

    /// The list of the active pages of this kind.
    #[must_use]
    pub const fn active(self) -> List {
        match self {
            Self::Anon => List::Active,
            Self::File => List::ActiveFile,
        }
    }
}

impl List {
    /// All LRU lists of a node, in declaration order.
    pub const ALL: [Self; 5] = [
        Self::Inactive,
        Self::Active,
        Self::InactiveFile,
        Self::ActiveFile,
        Self::Unevictable,
    ];

    /// The kind of the list's pages. Pages that cannot be reclaimed count as anonymous.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::InactiveFile | Self::ActiveFile => Kind::File,
            Self::Inactive | Self::Active | Self::Unevictable => Kind::Anon,
        }
    }

    pub(super) const fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::ActiveFile)
    }
}
