//! Page lists that own blocks: each block of 512 pages may have an owner, a CPU to which the pages
//! of the block return wherever they are freed.
//!
//! A CPU that refills its lists claims whole blocks and becomes their owner. If another CPU frees a
//! page of such a block, the page does not go onto the list of the CPU that frees it, but back to
//! the owner. So no zone lock is needed to return memory that one CPU allocates and another CPU
//! frees.
//!
//! Ownership is only a hint that says where a freed page goes. No page is lost if the hint is
//! stale: the page then goes to a CPU that gains little from it, and every drain finds it there.
//!
//! There are two forms. In the form that was proposed for Linux ([`Owning::Rfc`]), a CPU that frees
//! a page of another owner takes the lock of the owner's page lists. In ours ([`Owning::Inbox`]),
//! that CPU sets the page's bit in a cache line of the block, and takes no lock (`inbox.rs`). In
//! both forms, a CPU keeps free pages of its blocks as bitmaps, one for each block (`stock.rs`),
//! and returns whole blocks to the zone first.
//!
//! | file | what it has |
//! |---|---|
//! | `stock.rs` | the free pages that a CPU keeps block by block |
//! | `inbox.rs` | inboxes: pages that other CPUs have freed for their owner, without a lock |
//! | `send.rs` | frees of pages whose blocks have an owner |
//! | `refill.rs` | refills from blocks that the CPU owns; claims of blocks; recovery of fragments |
//! | `give.rs` | the return of pages to the zone, whole blocks first |
//! | `rob.rs` | taking a block from another CPU; taking ownership away from an offline CPU |
//!
//! Locks: a block's entry is written under the pcp lock of its owner, or under the zone lock while
//! no CPU has pages of the block. A CPU that frees a page reads the entry without a lock.

mod give;
mod inbox;
mod refill;
mod rob;
mod send;
mod stock;

use alloc::boxed::Box;
use core::ops::Range;

use self::inbox::{Inbox, Mail};
pub(super) use self::stock::Stock;
use super::links::Metadata;
use crate::machine::{Field, Machine, Once};
use crate::units::{CpuId, Order, Pages, narrow};

/// Where a freed page goes if the block around it has been claimed by a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owning {
    /// No CPU claims blocks: a freed page goes onto the list of the CPU that frees it (Linux).
    #[default]
    None,
    /// A freed page goes onto the list of the CPU that has claimed the block around the page. The
    /// freeing CPU takes the lock of that list. This was proposed on linux-mm on 3 April 2026 ("mm:
    /// page_alloc: pcp buddy allocator").
    Rfc,
    /// A freed page goes, without a lock, into the inbox of the CPU that has claimed the block
    /// around the page. That CPU collects the page later.
    Inbox,
}

impl Owning {
    /// All variants: that of Linux, the one proposed for Linux, and ours.
    pub const ALL: [Self; 3] = [Self::None, Self::Rfc, Self::Inbox];

    /// The variant's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "block-unowned",
            Self::Rfc => "block-owned-rfc",
            Self::Inbox => "block-owned",
        }
    }
}

/// The number of pages of the largest block that can have an owner. A [`Mail`] has a bit for each
/// page.
const PAGES_MAX: usize = Order::HUGE.pages().0 as usize;

/// The number of groups in the largest block. A group is 64 pages, whose bits are in one word.
const GROUPS: usize = PAGES_MAX / 64;

/// The owner of each block of a zone: the CPU to which freed pages of the block return.
pub(super) struct Owners<M: Machine> {
    order: Order,
    entries: Box<[Entry<M>]>,
    inboxes: Box<[Inbox<M>]>,
}

/// The owner of a block, and the pages on their way to the owner.
struct Entry<M: Machine> {
    /// 0 if the block has no owner. Otherwise, the upper half is the owner's CPU number plus 1. The
    /// lower half is 0 if the owner's [`Stock`] has no bitmap of the block's free pages. Otherwise
    /// it is the index of this bitmap in the stock, plus 1. Only the CPU that holds the owner's pcp
    /// lock uses the lower half.
    owner: M::Field,
    /// The pages of the block that other CPUs have freed for the owner. Set before the block gets
    /// its first owner.
    mail: M::Once<Box<Mail<M>>>,
}

impl<M: Machine> Owners<M> {
    /// Creates an entry for each block of a zone that spans `spanned` pages. No block has an owner
    /// yet.
    pub(super) fn new(machine: &M, owning: Owning, spanned: Pages, metadata: Metadata) -> Self {
        let order = block_order(spanned);
        let blocks = match owning {
            Owning::None => 0,
            Owning::Rfc | Owning::Inbox => spanned.0.div_ceil(order.pages().0),
        };
        let with_mail = owning == Owning::Inbox;
        let entry = |_| Entry {
            owner: machine.field(0),
            mail: match metadata {
                Metadata::Eager if with_mail => M::Once::of(Mail::new(machine)),
                Metadata::Eager | Metadata::WhenSplit => machine.once(),
            },
        };
        let cpus = if with_mail {
            machine.topology().cpus()
        } else {
            0
        };
        Self {
            order,
            entries: (0..blocks).map(entry).collect(),
            inboxes: (0..cpus).map(|_| Inbox::new(machine)).collect(),
        }
    }

    /// Returns whether CPUs claim blocks of this zone, so that blocks have owners.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Returns whether CPUs have inboxes. If they do, a page that another CPU frees reaches the CPU
    /// that owns the page's block through the inbox of the owner.
    #[inline]
    pub(super) fn has_inboxes(&self) -> bool {
        !self.inboxes.is_empty()
    }

    /// The order of the blocks that have owners: 9, or less in a tiny zone.
    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// The number of the block around `page`.
    fn block_of(&self, page: u32) -> u32 {
        page >> self.order.get()
    }

    /// The first page of a block.
    fn first_page(&self, block: u32) -> u32 {
        block << self.order.get()
    }

    /// The indices of all blocks.
    fn blocks(&self) -> Range<u32> {
        0..narrow(self.entries.len() as u64)
    }

    /// The CPU that owns the block. The owner may change at any time unless the caller holds the
    /// owner's pcp lock.
    #[inline]
    fn owner(&self, block: u32) -> Option<CpuId> {
        self.of_entry(block).0
    }

    /// The CPU that owns the block, and the index of the block's bitmap of free pages in the
    /// [`Stock`] of this CPU.
    fn of_entry(&self, block: u32) -> (Option<CpuId>, Option<usize>) {
        let entry = self.entries[block as usize].owner.get();
        let less_one = |half: u64| narrow(half).checked_sub(1);
        let owner = less_one(entry >> 32).map(CpuId);
        let record = less_one(entry & u64::from(u32::MAX));
        (owner, record.map(|record| record as usize))
    }

    /// Returns whether `cpu` owns any block. The answer may be stale.
    fn owns(&self, cpu: CpuId) -> bool {
        self.blocks().any(|block| self.owner(block) == Some(cpu))
    }

    /// Makes `cpu` the owner of the block. `record` is the index of the block's bitmap of free
    /// pages in the [`Stock`] of `cpu`.
    fn set_owner(&self, block: u32, cpu: CpuId, record: Option<usize>) {
        let record = record.map_or(0, |record| record as u64 + 1);
        let entry = (u64::from(cpu.0) + 1) << 32 | record;
        self.entries[block as usize].owner.set(entry);
    }

    /// Records that the block has no owner.
    fn clear_owner(&self, block: u32) {
        self.entries[block as usize].owner.set(0);
    }

    /// Creates the block's [`Mail`] if freed pages reach their owners through inboxes, and the
    /// block has no `Mail` yet. With [`Metadata::Eager`], every `Mail` exists from the start, so
    /// this allocates no memory.
    fn provide_mail(&self, machine: &M, block: u32) {
        let mail = &self.entries[block as usize].mail;
        if self.has_inboxes() && mail.get().is_none() {
            // If two CPUs create a `Mail` for the block at once, the second CPU's `Mail` is
            // dropped.
            let _other = mail.set(Mail::new(machine));
        }
    }
}

/// The order of the blocks that have owners in a zone of `spanned` pages: that of a huge page, or
/// less if the zone would then have fewer than four such blocks.
fn block_order(spanned: Pages) -> Order {
    let quarter = (spanned.0 / 4).max(1).ilog2();
    let order = u8::try_from(quarter).ok().and_then(Order::new);
    order.map_or(Order::HUGE, |order| order.min(Order::HUGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_zones_have_small_blocks() {
        let orders = [1, 4, 16, 2047, 2048, 1 << 30].map(|pages| block_order(Pages(pages)).get());
        assert_eq!(orders, [0, 0, 2, 8, 9, 9]);
    }
}
