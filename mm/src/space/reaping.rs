//! The ways in which helpers go through a dying address space, as designs name them.

/// The way in which helpers go through a dying address space to empty it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaping {
    /// Mapping by mapping from the lowest on, as the last user does (Linux before 6.18).
    Ascending,
    /// Mapping by mapping from the highest on, each from its start (Linux 6.18).
    DescendingByVma,
    /// From the highest mapping on, each by 1 GiB from its end. The helper yields to waiting
    /// writers after each chunk (proposed for Linux in 2026).
    DescendingChunks,
    /// The last user goes upwards and any number of helpers mostly downwards, table by table, until
    /// they meet.
    MeetInTheMiddle,
}

impl Reaping {
    /// Every variant.
    pub const ALL: [Self; 4] = [
        Self::Ascending,
        Self::DescendingByVma,
        Self::DescendingChunks,
        Self::MeetInTheMiddle,
    ];

    /// Returns the variant's name, as designs spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ascending => "ascending",
            Self::DescendingByVma => "descending-by-vma",
            Self::DescendingChunks => "descending-chunks",
            Self::MeetInTheMiddle => "meet-in-the-middle",
        }
    }
}
