//! Inboxes: if a CPU frees a page of another CPU's block, the page reaches the owner of the block
//! without a lock.
//!
//! Each block has a bit for each of its pages. The 64 pages whose bits are in one word are a
//! *group*. A CPU that frees pages of another CPU's block sets their bits, up to 64 in one
//! addition. If the word was 0 before, this CPU also pushes the group onto the owner's inbox, a
//! stack whose links are stored in the groups. A group is pushed again only after its word has
//! become 0, so it is on at most one stack.
//!
//! The owner takes the whole stack in one step. For each group, the owner first reads the link. It
//! then subtracts from the word the bits that it has seen, until the word is 0. From that moment
//! another CPU may push the group again, so the owner must not read the link afterwards. A CPU that
//! pushes never follows a link. So it does no harm if a group was removed and pushed again in the
//! meantime (the ABA problem).
//!
//! Locks: a CPU that sends pages to an inbox takes no lock. A CPU that empties an inbox holds the
//! pcp lock of the inbox's owner, so only one CPU at a time empties it.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{GROUPS, Owners};
use crate::machine::{Field, Line, Machine, Once};
use crate::units::{CpuId, count_of, narrow, signed};

/// The pages of one block that other CPUs have freed, and that are still in the inbox of the
/// block's owner.
pub(super) struct Mail<M: Machine> {
    /// A bit for each page. Word `g` has the bits of the 64 pages of group `g`.
    bits: M::Line,
    /// For each group of 64 pages, the group below it on the stack of the owner's inbox. Only the
    /// CPU that pushes the group writes this field, and only the CPU that collects the stack reads
    /// it.
    below: [M::Field; GROUPS],
}

impl<M: Machine> Mail<M> {
    pub(super) fn new(machine: &M) -> Box<Self> {
        Box::new(Self {
            bits: machine.line(),
            below: core::array::from_fn(|_| machine.field(0)),
        })
    }

    /// Takes all bits of a group of 64 pages, and leaves the word of the group zero.
    fn take(&self, machine: &M, group: usize) -> u64 {
        // Relaxed is enough: the addition below synchronizes with the CPUs that set the bits.
        let mut seen = self.bits.load(machine, group, Relaxed);
        let mut all = 0;
        // The loop ends: while it runs, each bit is set at most once. Before a page can be freed
        // again, it must be allocated, and this CPU makes the pages available only after the loop.
        while seen != 0 {
            // Acquire pairs with the Release in `send`: this CPU sees the tags of the freed pages.
            // Release pairs with the Acquire in `send`: a CPU that pushes the group again
            // overwrites the link only after this CPU has read it.
            let left = self.bits.add(machine, group, seen.wrapping_neg(), AcqRel);
            all |= seen;
            seen = left;
        }
        all.cast_unsigned()
    }
}

/// The inbox of one CPU: a stack of groups (of 64 pages) with pages that other CPUs freed for this
/// CPU, and the number of these groups. The two words are in one cache line, because a CPU that
/// pushes a group changes both.
pub(super) struct Inbox<M: Machine>(M::Line);

/// The index of the word of an [`Inbox`] that says which group (of 64 pages) is topmost on the
/// stack. The word holds the group's number plus 1, or 0 if the inbox is empty.
const TOP: usize = 0;
/// The index of the word of an [`Inbox`] that counts the groups (of 64 pages) on the stack. While
/// CPUs push groups or empty the inbox, the count may be too large or too small.
const COUNT: usize = 1;

impl<M: Machine> Inbox<M> {
    pub(super) fn new(machine: &M) -> Self {
        Self(machine.line())
    }
}

/// The number of a group of up to 64 pages. The groups of a zone are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(pub(super) u64);

impl Group {
    /// The number of the block that the group is in.
    pub(super) fn block(self) -> u32 {
        narrow(self.0 / GROUPS as u64)
    }

    /// Returns the group that is `index` groups after this one.
    pub(super) const fn after(self, index: u64) -> Self {
        Self(self.0 + index)
    }

    /// The index of the group in its block.
    pub(super) fn index(self) -> usize {
        narrow(self.0 % GROUPS as u64) as usize
    }
}

impl<M: Machine> Owners<M> {
    /// The group of 64 pages that `page` is in, and the index of the page's bit in the group's
    /// word.
    pub(super) fn group_of(&self, page: u32) -> (Group, u32) {
        let inside = page & (self.order().pages().0 - 1);
        let group = u64::from(self.block_of(page)) * GROUPS as u64 + u64::from(inside / 64);
        (Group(group), inside % 64)
    }

    /// The page whose bit is bit 0 of the group's word.
    pub(super) fn page_of(&self, group: Group) -> u32 {
        self.first_page(group.block()) + count_of(group.index()) * 64
    }

    fn mail(&self, block: u32) -> &Mail<M> {
        let mail = self.entries[block as usize].mail.get();
        mail.expect("a block has its mail before it has an owner")
    }

    /// Sends some of the 64 pages of `group` to the inbox of `cpu`: those whose bits are 1 in
    /// `bits`. Returns the number of groups in the inbox if this call has pushed the group onto the
    /// inbox. Otherwise returns `None`.
    pub(super) fn send(&self, machine: &M, cpu: CpuId, group: Group, bits: u64) -> Option<u64> {
        let mail = self.mail(group.block());
        let bits = bits.cast_signed();
        // Release pairs with the Acquire in `take`: the owner sees everything that this CPU did
        // with the pages. Acquire pairs with the Release in `take`: the owner has read the old link
        // before this CPU overwrites it below.
        let now = mail.bits.add(machine, group.index(), bits, AcqRel);
        if now != bits {
            return None; // The CPU that made the word nonzero pushes the group.
        }
        let inbox = &self.inboxes[cpu.index()].0;
        let pushed = signed(group.0 + 1);
        let mut top = inbox.load(machine, TOP, Relaxed);
        loop {
            mail.below[group.index()].set(top.cast_unsigned());
            // Release pairs with the Acquire in `collect`: the owner sees the link. Acquire pairs
            // with the Release in `show_loss`, which adds to `TOP`: if this exchange comes after
            // the addition, this CPU sees that the owner has lost the block.
            match inbox.compare_exchange(machine, TOP, top, pushed, AcqRel) {
                Ok(_) => break,
                Err(other) => top = other,
            }
        }
        let count = inbox.add(machine, COUNT, 1, Relaxed);
        Some(count.max(0).cast_unsigned())
    }

    /// Called after blocks were taken away from `cpu`. A CPU that pushes a group of pages onto the
    /// inbox of `cpu` either did so before this call, or sees that `cpu` has lost the blocks. In
    /// the first case, the caller finds the group in the inbox afterwards.
    pub(super) fn show_loss(&self, machine: &M, cpu: CpuId) {
        if let Some(Inbox(inbox)) = self.inboxes.get(cpu.index()) {
            // Release pairs with the Acquire of the exchange in `send`. Acquire pairs with the
            // Release of the same exchange: this CPU sees all groups that were pushed before.
            inbox.add(machine, TOP, 0, AcqRel);
        }
    }

    /// Returns whether the inbox of `cpu` has pages that other CPUs have freed for `cpu`. The
    /// answer may be stale.
    #[inline]
    pub(in crate::page) fn has_mail(&self, machine: &M, cpu: CpuId) -> bool {
        let inbox = self.inboxes.get(cpu.index());
        // Acquire pairs with the Release in `collect`. So if another CPU has just emptied the
        // inbox, this CPU sees that the number of pages on the lists is not zero.
        inbox.is_some_and(|inbox| inbox.0.load(machine, TOP, Acquire) != 0)
    }

    /// Empties the inbox of `cpu`, and calls `deliver` with each group and the bits of its pages.
    /// The caller holds the pcp lock of `cpu`. It has also stored a nonzero count of the pages on
    /// the lists of `cpu`; other CPUs read this count without the lock.
    pub(super) fn collect(&self, machine: &M, cpu: CpuId, mut deliver: impl FnMut(Group, u64)) {
        let Some(Inbox(inbox)) = self.inboxes.get(cpu.index()) else {
            return;
        };
        let mut top = inbox.load(machine, TOP, Relaxed);
        // The loop ends: an exchange fails only if another CPU has just pushed a group.
        while top != 0 {
            // Acquire pairs with the Release in `send`: this CPU sees the links of all groups on
            // the stack. This includes the lower groups, because each push is in the release
            // sequences of the pushes before it. Release pairs with the Acquire in `has_mail` and
            // in `show_loss`: a drain that finds the inbox empty sees the number of pages that the
            // caller has stored.
            match inbox.compare_exchange(machine, TOP, top, 0, AcqRel) {
                Ok(_) => break,
                Err(other) => top = other,
            }
        }
        let mut count = 0;
        while let Some(group) = top.cast_unsigned().checked_sub(1).map(Group) {
            let mail = self.mail(group.block());
            top = mail.below[group.index()].get().cast_signed();
            deliver(group, mail.take(machine, group.index()));
            count -= 1;
        }
        if count != 0 {
            inbox.add(machine, COUNT, count, Relaxed);
        }
    }

    /// The number of pages that other CPUs have freed for `cpu` and that are still in its inbox.
    /// Exact if no operation is in progress.
    pub(super) fn mailed(&self, machine: &M, cpu: CpuId) -> u32 {
        let Some(Inbox(inbox)) = self.inboxes.get(cpu.index()) else {
            return 0;
        };
        let mut top = inbox.load(machine, TOP, Acquire).cast_unsigned();
        let mut pages = 0;
        // If a group is pushed again during this walk, its new link may lead back to a group that
        // was counted already. So the number of steps is limited.
        for _ in 0..self.entries.len() * GROUPS {
            let Some(group) = top.checked_sub(1).map(Group) else {
                break;
            };
            let mail = self.mail(group.block());
            pages += mail.bits.load(machine, group.index(), Relaxed).count_ones();
            top = mail.below[group.index()].get();
        }
        pages
    }
}
