//! The orders in which helpers, such as the OOM reaper, empty a dying address space.

/// The order in which helpers, such as the OOM reaper, empty a dying address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaping {
    /// Helpers empty the mappings one by one in ascending order, as the exiting thread does (Linux
    /// before 6.18).
    Ascending,
    /// Helpers empty the mappings one by one in descending order, and each mapping from its start
    /// (Linux 6.18).
    DescendingByVma,
    /// Helpers empty the mappings one by one in descending order, and each mapping in steps of
    /// 1 GiB from its end. After each step, the helper gives way to a writer that waits for the
    /// lock of the mappings (proposed for Linux in 2026).
    DescendingChunks,
    /// The exiting thread and any number of helpers empty one page table after the other. The
    /// exiting thread goes upwards, and most helpers go downwards, until they meet.
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

    /// Returns the name by which users choose the variant.
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
