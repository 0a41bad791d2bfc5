//! Counts in how many cases the page lists that the replay derives from events agree with the
//! blocks that the kernel allocated.

/// The counts of one pass over the events, in which the replay derives the contents of the page
/// lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Tally {
    /// How many blocks the kernel allocated from lists and not directly from a zone.
    pub(in super::super) allocs: u64,
    /// The number of blocks in `allocs` for which an earlier event had shown that the kernel put
    /// them on a list.
    pub(in super::super) predictable: u64,
    /// The number of blocks in `predictable` that the kernel allocated as predicted: in the
    /// replay's copy of the list, the block was on top.
    pub(in super::super) predicted: u64,
    /// The number of blocks that were allocated from a list although no event explains how they
    /// came to the list.
    pub(in super::super) unexplained: u64,
    /// How many blocks the kernel took directly from a zone, bypassing the lists.
    pub(in super::super) direct_allocs: u64,
    /// How many blocks the kernel returned directly to a zone, bypassing the lists.
    pub(in super::super) direct_frees: u64,
    /// How many blocks must have been taken from lists although no event shows it.
    pub(in super::super) bulk_inferred: u64,
    /// The number of single pages that bulk allocations took, as counted by a probe.
    pub(in super::super) bulk_probed: u64,
    /// The number of blocks that the kernel moved from lists to a zone.
    pub(in super::super) drained: u64,
    /// The number of blocks in `drained` that were not the coldest (longest listed) on the list
    /// that the replay derived, although the kernel takes the coldest block first.
    pub(in super::super) drained_elsewhere: u64,
}
