//! Laws (tests for threads, model checkers and the simulator) of page lists that own blocks: a page
//! that is freed on another CPU returns to the CPU that owns its block. The zone has only 16 pages,
//! so the blocks that CPUs own have four pages each.
//!
//! Locks: the locks that allocations, frees and drains take.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::AcqRel;

use super::{Body, FEW, FewPages, Law, few_pages};
use crate::design::Design;
use crate::machine::{Lock, Machine, Word};
use crate::page::owned::Owning;
use crate::page::{ListState, Mobility, TypedBlock};
use crate::site::{LockClass, Site};
use crate::units::{CpuId, Order, Pages, Pfn};

fn design(owning: Owning) -> Design {
    Design {
        owning,
        ..Design::OURS
    }
}

/// The state of the tests in this file: an allocator of a few pages, and pages that one CPU has
/// allocated and another will free.
pub struct Handed<M: Machine> {
    few: FewPages<M>,
    pages: M::Lock<Vec<Pfn>>,
}

impl<M: Machine> fmt::Debug for Handed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed").finish_non_exhaustive()
    }
}

impl<M: Machine> Handed<M> {
    /// Makes the state of a test: CPU 0 has allocated `count` pages.
    fn new(machine: &M, owning: Owning, count: usize) -> Self {
        let few = few_pages(machine, design(owning));
        let taken = (0..count).filter_map(|_| few.take(machine, Order::ZERO));
        let pages = taken.collect();
        Self {
            few,
            pages: machine.lock(LockClass::Batches, CpuId(0), pages),
        }
    }

    /// Frees one of the pages that CPU 0 has allocated.
    fn free_one(&self, machine: &M) {
        let page = self.pages.with(machine, Site::Gather, Vec::pop);
        if let Some(pfn) = page {
            self.few.give(machine, pfn, Order::ZERO);
        }
    }

    /// Puts all pages that CPU 0 has allocated on the lists of `cpu`, although CPU 0 owns their
    /// blocks.
    fn list_all(&self, machine: &M, cpu: CpuId) {
        let pages = self.pages.with(machine, Site::Gather, core::mem::take);
        let listed = |pfn: Pfn| {
            self.few.holders[pfn.0 as usize].add(machine, -1, AcqRel);
            let (order, mobility) = (Order::ZERO, Mobility::Unmovable);
            TypedBlock {
                pfn,
                order,
                mobility,
            }
        };
        let state = ListState {
            blocks: pages.into_iter().map(listed).collect(),
            ..ListState::default()
        };
        let set = self.few.pages.seed_lists(machine, 0, cpu, &state);
        set.expect("the pages were allocated, and the lists have room");
    }

    fn decay(&self, machine: &M, cpu: CpuId) {
        let decayed = self.few.pages.decay_lists(machine, 0, cpu);
        decayed.expect("there is a zone");
    }

    fn allocate_one(&self, machine: &M) {
        if let Some(pfn) = self.few.take(machine, Order::ZERO) {
            self.pages
                .with(machine, Site::Gather, |pages| pages.push(pfn));
        }
    }

    /// Asserts that `cpu`, which is offline, owns no block and has no page. Then asserts that no
    /// page is lost.
    fn is_left_by(&self, machine: &M, cpu: CpuId) {
        assert!(!self.few.pages.owns_blocks(cpu), "no block has this owner");
        self.has_no_pages(machine, cpu);
    }

    /// Asserts that `cpu` has no page on its lists or in its inbox, and that no page is lost.
    fn has_no_pages(&self, machine: &M, cpu: CpuId) {
        let left = self.few.pages.listed(machine, cpu);
        assert_eq!(left, Pages::ZERO, "no page waits for this CPU");
        self.is_whole(machine);
    }

    fn is_whole(&self, machine: &M) {
        let pages = self.pages.with(machine, Site::Gather, core::mem::take);
        for pfn in pages {
            self.few.give(machine, pfn, Order::ZERO);
        }
        self.few.is_whole(machine);
    }
}

fn law<M: Machine>(
    name: &'static str,
    setup: fn(&M) -> Handed<M>,
    bodies: Vec<Body<M, Handed<M>>>,
) -> Law<M, Handed<M>> {
    Law {
        name,
        setup,
        bodies,
        check: |machine, handed| handed.is_whole(machine),
    }
}

/// Another CPU frees two pages of a block that CPU 0 owns. Each page goes to the inbox of CPU 0,
/// which has the pages that others have freed for CPU 0. At the same time, CPU 0 collects the pages
/// in its inbox. Each page is collected once.
#[must_use]
pub fn sending_against_collecting<M: Machine>() -> Law<M, Handed<M>> {
    law(
        "a page in an inbox is collected once, and none is lost",
        |machine| Handed::new(machine, Owning::Inbox, 4),
        vec![
            |machine, handed| {
                handed.few.pages.drain_cpu(machine, CpuId(0));
            },
            |machine, handed| {
                handed.free_one(machine);
                handed.free_one(machine);
            },
        ],
    )
}

/// Two CPUs free pages of the same block of CPU 0, while CPU 0 allocates. Only one of the two
/// pushes the block onto CPU 0's inbox.
#[must_use]
pub fn two_senders_against_their_owner<M: Machine>() -> Law<M, Handed<M>> {
    law(
        "of two CPUs that send pages of one block, one pushes the block onto the inbox",
        |machine| Handed::new(machine, Owning::Inbox, 4),
        vec![
            |machine, handed| handed.allocate_one(machine),
            |machine, handed| handed.free_one(machine),
            |machine, handed| handed.free_one(machine),
        ],
    )
}

fn mixed<M: Machine>() -> Vec<Body<M, Handed<M>>> {
    let others: Body<M, Handed<M>> = |machine, handed| {
        handed.free_one(machine);
        handed.few.churn(machine);
        handed.free_one(machine);
        handed.allocate_one(machine);
    };
    vec![
        |machine, handed| {
            handed.allocate_one(machine);
            handed.few.pages.drain_cpu(machine, CpuId(1));
            handed.allocate_one(machine);
            handed.few.churn(machine);
        },
        others,
        others,
    ]
}

/// Three CPUs allocate, free pages of blocks that other CPUs own, and drain lists. If a CPU frees a
/// page of another CPU's block, the page goes to the inbox of that other CPU.
#[must_use]
pub fn inboxes_and_everything<M: Machine>() -> Law<M, Handed<M>> {
    law(
        "no page is lost or shared, whoever frees it, with inboxes",
        |machine| Handed::new(machine, Owning::Inbox, 6),
        mixed(),
    )
}

/// All pages are in use. CPU 2 takes one of CPU 0's blocks, with its ownership, while another CPU
/// frees pages of CPU 0's blocks. A page may still reach the inbox of CPU 0 after CPU 0 has lost
/// the block. Such a page goes onto a list. No page is lost.
#[must_use]
pub fn robbing_against_sending<M: Machine>() -> Law<M, Handed<M>> {
    law(
        "no page is lost that reaches an inbox after its block was taken by another CPU",
        |machine| Handed::new(machine, Owning::Inbox, FEW as usize),
        robbed(),
    )
}

fn robbed<M: Machine>() -> Vec<Body<M, Handed<M>>> {
    vec![
        |machine, handed| {
            let decayed = handed.few.pages.decay_lists(machine, 0, CpuId(0));
            decayed.expect("there is a zone");
        },
        |machine, handed| {
            handed.free_one(machine);
            handed.free_one(machine);
        },
        |machine, handed| handed.allocate_one(machine),
    ]
}

/// Three CPUs allocate, free pages of blocks that other CPUs own, and drain lists. A CPU that frees
/// a page of another CPU's block takes the owner's pcp lock (the lock of its page lists).
#[must_use]
pub fn owner_locks_and_everything<M: Machine>() -> Law<M, Handed<M>> {
    law(
        "no page is lost or shared, whoever frees it, with the owner's lock",
        |machine| Handed::new(machine, Owning::Rfc, 6),
        mixed(),
    )
}

/// A CPU frees a page of a block that CPU 0 owns, and then drains the lists of CPU 0, while the
/// decay of CPU 0 (periodic work, which shortens its lists) empties CPU 0's inbox. The page does
/// not stay with CPU 0: the drain does not miss a page that has left the inbox and is not yet
/// counted on the lists.
#[must_use]
pub fn draining_against_collecting<M: Machine>() -> Law<M, Handed<M>> {
    Law {
        check: |machine, handed| handed.has_no_pages(machine, CpuId(0)),
        ..law(
            "a drain does not miss a page that is on its way from an inbox to a list",
            |machine| {
                let handed = Handed::new(machine, Owning::Inbox, 1);
                handed.few.pages.drain_cpu(machine, CpuId(0));
                handed
            },
            vec![
                |machine, handed| handed.decay(machine, CpuId(0)),
                |machine, handed| {
                    handed.free_one(machine);
                    handed.few.pages.drain_cpu(machine, CpuId(0));
                },
            ],
        )
    }
}

/// A CPU goes offline while a second CPU frees pages of the first CPU's blocks. There are so many
/// of these pages that the second CPU empties the inbox of the first. A third CPU allocates and
/// frees, and may become the owner of these blocks. No page is lost. The CPU that is offline owns
/// no block afterwards, and no page is left on its lists or in its inbox.
#[must_use]
pub fn disowning_against_sending<M: Machine>() -> Law<M, Handed<M>> {
    Law {
        check: |machine, handed| handed.is_left_by(machine, CpuId(0)),
        ..law(
            "no page is lost, or stays with its owner, that is freed while its owner goes offline",
            |machine| Handed::new(machine, Owning::Inbox, 6),
            vec![
                |machine, handed| {
                    handed.few.pages.drain_cpu(machine, CpuId(0));
                    handed.few.pages.disown(machine, CpuId(0));
                },
                |machine, handed| {
                    handed.free_one(machine);
                    handed.allocate_one(machine);
                    handed.free_one(machine);
                    handed.free_one(machine);
                },
                |machine, handed| {
                    handed.allocate_one(machine);
                    handed.free_one(machine);
                    handed.free_one(machine);
                },
            ],
        )
    }
}

/// A CPU goes offline and loses its blocks, while the decay of another CPU (periodic work, which
/// shortens its lists) sends pages of these blocks from its list to their owner. No page stays with
/// the CPU that is offline.
#[must_use]
pub fn disowning_against_decaying<M: Machine>() -> Law<M, Handed<M>> {
    Law {
        check: |machine, handed| handed.is_left_by(machine, CpuId(0)),
        ..law(
            "a page that a decay sends to a CPU that goes offline does not stay there",
            |machine| {
                let handed = Handed::new(machine, Owning::Inbox, 8);
                handed.few.pages.drain_cpu(machine, CpuId(0));
                handed.list_all(machine, CpuId(1));
                handed
            },
            vec![
                |machine, handed| handed.few.pages.disown(machine, CpuId(0)),
                |machine, handed| handed.decay(machine, CpuId(1)),
            ],
        )
    }
}

/// A CPU goes offline and loses its blocks, while another CPU frees a page of one of them. The page
/// does not stay in the inbox of the offline CPU. This is the shortest form of
/// [`disowning_against_sending`], so that loom can check the orderings.
#[must_use]
pub fn disowning_against_one_page<M: Machine>() -> Law<M, Handed<M>> {
    Law {
        check: |machine, handed| handed.is_left_by(machine, CpuId(0)),
        ..law(
            "a page that is sent to a CPU that goes offline does not stay there",
            |machine| {
                let handed = Handed::new(machine, Owning::Inbox, 1);
                handed.few.pages.drain_cpu(machine, CpuId(0));
                handed
            },
            vec![
                |machine, handed| handed.few.pages.disown(machine, CpuId(0)),
                |machine, handed| handed.free_one(machine),
            ],
        )
    }
}
