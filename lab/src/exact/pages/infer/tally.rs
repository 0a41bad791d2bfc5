//! How well the inferred lists agree with what the kernel handed out.

/// Counts of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Tally {
    /// Blocks handed out from lists.
    pub(in super::super) allocs: u64,
    /// Of them, those that were seen to come to their list.
    pub(in super::super) predictable: u64,
    /// Of those, the ones that were on top when they were handed out.
    pub(in super::super) predicted: u64,
    /// Blocks handed out that cannot have been on a list by any event.
    pub(in super::super) unexplained: u64,
    /// Blocks taken from a zone past the lists.
    pub(in super::super) direct_allocs: u64,
    /// Blocks given to a zone past the lists.
    pub(in super::super) direct_frees: u64,
    /// Single pages that were taken unseen, as inferred.
    pub(in super::super) bulk_inferred: u64,
    /// Single pages that a probe says were taken so.
    pub(in super::super) bulk_probed: u64,
    /// Blocks given back from a list, and those of them that were not the coldest.
    pub(in super::super) drained: u64,
    pub(in super::super) drained_elsewhere: u64,
}
