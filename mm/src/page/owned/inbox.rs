//! Pages on their way to their owner, without a lock.
//!
//! Each block has a bit for each of its pages, 64 of them in a word. A CPU that frees pages for the
//! owner sets their bits, up to 64 at once. If the word was zero before, the CPU also pushes the
//! group onto the owner's inbox, a stack that is linked through the groups. So a group is on a
//! stack exactly while its word is not zero, and on one stack only.
//!
//! The owner takes the whole stack in one step. It reads a group's link first, and then subtracts
//! the bits that it has seen until the word is zero. From that moment another CPU may push the
//! group again, so the owner must not read the link afterwards. Since a CPU that pushes never
//! follows a link, the stack needs no protection against a group that was removed and pushed again.
//!
//! Locks: none to send. A CPU that collects holds the pcp lock of the inbox's CPU, so there is one
//! at a time.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{GROUPS, Owners};
use crate::machine::{Field, Line, Machine, Once};
use crate::units::{CpuId, count_of, narrow, signed};

/// The pages of a block that were freed for the owner and have not reached it yet.
pub(super) struct Mail<M: Machine> {
    /// A bit for each page. Word `g` has the bits of group `g`.
    bits: M::Line,
    /// For each group, the group below it on the stack. Only the CPU that pushes the group writes
    /// this, and only the CPU that collects the stack reads it.
    below: [M::Field; GROUPS],
}

impl<M: Machine> Mail<M> {
    pub(super) fn new(machine: &M) -> Box<Self> {
        Box::new(Self {
            bits: machine.line(),
            below: core::array::from_fn(|_| machine.field(0)),
        })
    }

    /// Takes all bits of a group, and leaves its word zero.
    fn take(&self, machine: &M, group: usize) -> u64 {
        // Relaxed: the addition below acquires what the CPUs that set the bits have released.
        let mut seen = self.bits.load(machine, group, Relaxed);
        let mut all = 0;
        // The loop ends: a bit is set again only after its page was allocated again, which this CPU
        // makes possible only after the loop.
        while seen != 0 {
            // Acquire: the pages' tags. Release: partner of the addition in `send`, so that a CPU
            // that pushes the group again does so after the link was read.
            let left = self.bits.add(machine, group, seen.wrapping_neg(), AcqRel);
            all |= seen;
            seen = left;
        }
        all.cast_unsigned()
    }
}

/// The groups with mail for one CPU. The two words are in one cache line, because a CPU that sends
/// changes both.
pub(super) struct Inbox<M: Machine>(M::Line);

/// The word of an inbox that has the number of the topmost group plus 1, or 0 if there is none.
const TOP: usize = 0;
/// The word of an inbox that counts the groups. It may lag behind, in both directions.
const COUNT: usize = 1;

impl<M: Machine> Inbox<M> {
    pub(super) fn new(machine: &M) -> Self {
        Self(machine.line())
    }
}

/// A group of up to 64 pages: its number counts all groups of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(pub(super) u64);

impl Group {
    /// The number of the block that the group is in.
    pub(super) fn block(self) -> u32 {
        narrow(self.0 / GROUPS as u64)
    }

    /// The group `index` places after this one.
    pub(super) const fn after(self, index: u64) -> Self {
        Self(self.0 + index)
    }

    /// The index of the group in its block.
    pub(super) fn index(self) -> usize {
        narrow(self.0 % GROUPS as u64) as usize
    }
}

impl<M: Machine> Owners<M> {
    /// The group of `page`, and the bit of the page in it.
    pub(super) fn group_of(&self, page: u32) -> (Group, u32) {
        let inside = page & (self.order().pages().0 - 1);
        let group = u64::from(self.block_of(page)) * GROUPS as u64 + u64::from(inside / 64);
        (Group(group), inside % 64)
    }

    /// The page that has the bit 0 of `group`.
    pub(super) fn page_of(&self, group: Group) -> u32 {
        self.first_page(group.block()) + count_of(group.index()) * 64
    }

    fn mail(&self, block: u32) -> &Mail<M> {
        let mail = self.entries[block as usize].mail.get();
        mail.expect("a block has its mail before it has an owner")
    }

    /// Frees the pages `bits` of `group` to the inbox of `cpu`. Returns the number of groups in the
    /// inbox if this call pushed one.
    pub(super) fn send(&self, machine: &M, cpu: CpuId, group: Group, bits: u64) -> Option<u64> {
        let mail = self.mail(group.block());
        let bits = bits.cast_signed();
        // Release: what the freeing CPU did with the pages; partner of the addition in `take`.
        // Acquire: the owner's reading of the link, before the link is written below.
        let now = mail.bits.add(machine, group.index(), bits, AcqRel);
        if now != bits {
            return None; // The group was not empty, so it is on a stack, or about to be pushed.
        }
        let inbox = &self.inboxes[cpu.index()].0;
        let pushed = signed(group.0 + 1);
        let mut top = inbox.load(machine, TOP, Relaxed);
        loop {
            mail.below[group.index()].set(top.cast_unsigned());
            // Release: the link; partner of the exchange in `collect`.
            match inbox.compare_exchange(machine, TOP, top, pushed, Release) {
                Ok(_) => break,
                Err(other) => top = other,
            }
        }
        let count = inbox.add(machine, COUNT, 1, Relaxed);
        Some(count.max(0).cast_unsigned())
    }

    /// Returns whether the inbox of `cpu` has mail. The answer may be stale.
    #[inline]
    pub(in crate::page) fn has_mail(&self, machine: &M, cpu: CpuId) -> bool {
        let inbox = self.inboxes.get(cpu.index());
        inbox.is_some_and(|inbox| inbox.0.load(machine, TOP, Relaxed) != 0)
    }

    /// Empties the inbox of `cpu`, and calls `deliver` with each group and the bits of its pages.
    /// The caller holds the pcp lock of `cpu`.
    pub(super) fn collect(&self, machine: &M, cpu: CpuId, mut deliver: impl FnMut(Group, u64)) {
        let Some(Inbox(inbox)) = self.inboxes.get(cpu.index()) else {
            return;
        };
        let mut top = inbox.load(machine, TOP, Relaxed);
        // The loop ends: each failure means that another CPU has pushed a group.
        while top != 0 {
            // Acquire: the links; partner of the exchange in `send`. The exchanges of CPUs that
            // pushed lower groups are in its release sequence.
            match inbox.compare_exchange(machine, TOP, top, 0, Acquire) {
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

    /// The number of pages in the inbox of `cpu`. Exact if no operation is in progress.
    pub(super) fn mailed(&self, machine: &M, cpu: CpuId) -> u32 {
        let Some(Inbox(inbox)) = self.inboxes.get(cpu.index()) else {
            return 0;
        };
        let mut top = inbox.load(machine, TOP, Acquire).cast_unsigned();
        let mut pages = 0;
        // While a group is pushed again, its link may lead back, so the steps are limited.
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
