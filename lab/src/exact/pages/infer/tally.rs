//! Counts of how well the derived lists agree with what the kernel handed out.

/// The counts of one pass over the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Tally {
    /// Blocks handed out that did not come straight from a zone.
    pub(in super::super) allocs: u64,
    /// Of `allocs`, the blocks that an event had put on their list.
    pub(in super::super) predictable: u64,
    /// Of `predictable`, the blocks that were on top of their list when they were handed out.
    pub(in super::super) predicted: u64,
    /// Blocks that were handed out although no event explains how they came to a list.
    pub(in super::super) unexplained: u64,
    /// Blocks taken from a zone, bypassing the lists.
    pub(in super::super) direct_allocs: u64,
    /// Blocks given to a zone, bypassing the lists.
    pub(in super::super) direct_frees: u64,
    /// Blocks that were taken from lists without an event, as derived.
    pub(in super::super) bulk_inferred: u64,
    /// Single pages that bulk allocations took, as counted by a probe.
    pub(in super::super) bulk_probed: u64,
    /// Blocks that went from lists to a zone.
    pub(in super::super) drained: u64,
    /// Of `drained`, the blocks that were not the coldest of their list.
    pub(in super::super) drained_elsewhere: u64,
}
