//! Pairs of moves: the kernel's move and Plimsoll's move for the same operation. A move transfers
//! blocks between page lists and a zone.

use super::op::Kind;

/// The size of a move, in pages and in blocks. A move is the transfer of blocks between lists and a
/// zone by one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) pages: u32,
    pub(super) blocks: u32,
}

/// The moves of one kind that the kernel and Plimsoll made in one zone for the same operation. If
/// one of the two made no such move, its amount (`kernel` or `ours`) is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The index of the operation, such as an allocation, in the list that the replay performs.
    pub(super) op: usize,
    pub(super) cpu: u32,
    pub(super) zone: u8,
    pub(super) kind: Kind,
    pub(super) kernel: Amount,
    pub(super) ours: Amount,
    /// True if the move is set aside, because it depends on what the CPU did before the recording
    /// or because the CPU lost events.
    pub(super) unknown: bool,
}

impl Pair {
    /// Returns whether the kernel and Plimsoll moved the same number of pages in the same number of
    /// blocks.
    pub(super) fn is_same(&self) -> bool {
        self.kernel == self.ours
    }
}
