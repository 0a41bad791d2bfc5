//! A move of the kernel beside that of Plimsoll.

use super::op::Kind;

/// What one operation moved in one zone, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) pages: u32,
    pub(super) blocks: u32,
}

/// One move, the kernel's beside ours; zero where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The operation, counted from the first.
    pub(super) op: usize,
    pub(super) cpu: u32,
    pub(super) zone: u8,
    pub(super) kind: Kind,
    pub(super) kernel: Amount,
    pub(super) ours: Amount,
    /// It depends on what the CPU did before the recording.
    pub(super) unknown: bool,
}

impl Pair {
    /// Whether both moved as many pages in as many blocks.
    pub(super) fn is_same(&self) -> bool {
        self.kernel == self.ours
    }
}
