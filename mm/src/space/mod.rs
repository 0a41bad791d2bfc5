//! Address spaces: mappings, page tables, resident pages, and the end of an address space.
//!
//! ```text
//! map ──> mapping ──fault──> page table entry ──unmap, exit, reap──> gather ──> zone
//! ```
//!
//! `vma_tree` and `mapping` record what is mapped, and `page_table` in which frames the pages are.
//! A living process uses `map`, `fault` and `swapping`. `zap` and `gather` unmap and free pages.
//! The last user empties a dying address space in `exit`, and helpers do so in `reap`; `frontier`
//! divides the work between them. `rss` counts the resident pages of a space, `usage` counts the
//! pages that a kill would free, and `budget` limits the pages that a space may use. `walk` reads
//! page tables. Address spaces share `object`, `swap`, `lru`, `batches` and `memory`. Reclaim finds
//! the mapping of a page through `rmap`, and unmaps the page by `evict`. `cached` has the files
//! whose pages are reclaimed. Through `contents`, the embedder fills, copies and stores the bytes
//! of pages.

pub(crate) mod batches;
pub mod budget;
mod cached;
mod contents;
mod error;
pub(crate) mod evict;
mod exit;
mod fault;
pub(crate) mod frontier;
mod gather;
mod index;
pub mod lru;
mod map;
mod mapping;
mod memory;
pub mod object;
mod page_table;
pub mod reap;
mod reaping;
pub(crate) mod rmap;
pub mod rss;
pub mod swap;
mod swapping;
mod usage;
pub mod vma_tree;
mod walk;
mod zap;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use self::budget::Budget;
pub use self::cached::Read;
pub use self::contents::{Contents, NotStored};
pub use self::error::{ExitError, FaultError, MapError, NoMemory};
pub use self::exit::Exited;
pub use self::fault::{Access, FAULT_TRIES, Faulted};
use self::frontier::Frontier;
pub use self::map::{MapRequest, Place};
use self::mapping::Mappings;
pub use self::mapping::{Backing, MappingKind};
pub use self::memory::{Discard, Memory, Spaces};
use self::page_table::{Entries, Entry, PageTable, SPACE_BITS, What};
pub use self::rmap::EnlistError;
use self::rss::{BadRss, Rss};
use self::vma_tree::{Vma, VmaTree};
pub use self::walk::Walked;
use crate::counter::InitError;
use crate::machine::{Lock, Machine, RwLock, Word};
use crate::site::{LockClass, Site};
use crate::units::{Pages, Pfn, Vpn};

/// The memory of one process, or of several that share it (Linux: `mm_struct`).
///
/// All operations take `&self`: any number of CPUs may map, fault and help to empty the space at
/// the same time. When no process uses the space any more, the embedder must end it with
/// [`AddressSpace::exit`] and then destroy it with [`AddressSpace::destroy`].
pub struct AddressSpace<M: Machine> {
    mappings: M::RwLock<Mappings<M>>,
    tree: VmaTree<M>,
    table: PageTable<M>,
    /// The field is not 0 while a mapping replaces other mappings whose pages are still in the page
    /// tables.
    replacing: M::Field,
    rss: Rss<M>,
    flags: M::Word,
    users: M::Word,
    frontier: Frontier<M>,
    budget: Option<Arc<Budget<M>>>,
    notified: Vec<Box<dyn Notified<M>>>,
    mappings_max: u32,
    /// The number under which reclaim finds the space, once it is [enlisted](Memory::enlist).
    number: M::Once<u32>,
}

/// A holder of translations outside the page tables, such as a virtual machine or a device. It is
/// notified of ranges whose pages are about to leave their frames or be unmapped (Linux:
/// `mmu_notifier`).
///
/// The holder is notified whenever a page leaves its frame or the address space: when the page is
/// unmapped, reaped, moved to swap, replaced by a private copy, or freed at the end of the address
/// space. A page in memory remains in its frame until the holder is notified of its range.
///
/// The CPU that notifies holds no page-table lock during a call. It may hold the lock of the
/// mappings as a reader or, if a mapping replaces others, as a writer.
pub trait Notified<M: Machine>: Send + Sync {
    /// Notifies the holder of translations that pages of `pages` are about to leave: the holder
    /// must use no translation to any of them until `end`.
    ///
    /// # Errors
    /// [`Refused`] if `may_wait` is false and the holder would have to wait before it can stop
    /// using translations to these pages.
    fn start(&self, machine: &M, pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused>;

    /// Notifies the holder of translations that the pages announced by `start` have left, or will
    /// stay where they are. A page that has left may already be back in memory, in another frame.
    fn end(&self, machine: &M, pages: &Range<Vpn>);

    /// Notifies the holder of translations that the address space is about to be emptied for good:
    /// from now on the holder must use no translation to any page of the space. Helpers may still
    /// call [`Notified::start`] and [`Notified::end`] afterwards; the holder then need not do
    /// anything.
    fn release(&self, machine: &M);
}

/// The error of a [`Notified`] that would have to wait before it could give up a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A fact about an address space, recorded as a flag. Once a flag is raised, it stays raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// The processes that use the space have been sent a fatal signal, so their killable waits end
    /// (Linux: `SIGKILL` pending).
    Killed,
    /// Private pages may already be unmapped, so touching them is refused (Linux: `MMF_UNSTABLE`).
    Unstable,
    /// A kill can free no more memory of this space. So the reaper must not empty the space again,
    /// and the OOM killer must not choose a process that uses the space (Linux: `MMF_OOM_SKIP`).
    Skip,
    /// The space has been handed to the reaper (Linux: `MMF_OOM_REAP_QUEUED`).
    ReapQueued,
    /// The OOM killer chose a victim that uses the space (Linux: `signal->oom_mm` is set).
    Victim,
    /// The last process that used the space is leaving it, and the space is being emptied for good.
    Exiting,
    /// The space is empty and has ended.
    Ended,
    /// The space is [enlisted](Memory::enlist).
    Enlisted,
}

/// The largest number of mappings of an address space, unless [`AddressSpace::with_mappings_max`]
/// sets another limit (Linux: `DEFAULT_MAX_MAP_COUNT`).
pub const MAPPINGS_MAX: u32 = 65_530;

/// The first page after the address space, which has 128 TiB.
pub const END: Vpn = Vpn(1 << SPACE_BITS);

impl<M: Machine> AddressSpace<M> {
    /// Makes an address space in which nothing is mapped.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if there is not enough memory.
    pub fn new(memory: Memory<'_, M>) -> Result<Self, InitError> {
        let machine = memory.machine;
        let (tree, editor) = VmaTree::new(machine).map_err(|NoMemory| InitError::OutOfMemory)?;
        let here = machine.this_cpu();
        Ok(Self {
            mappings: machine.rw_lock(LockClass::Mmap, here, Mappings::new(editor)),
            tree,
            table: PageTable::new(machine),
            replacing: machine.field(0),
            rss: Rss::new(machine, memory.spaces.plan())?,
            flags: machine.word(0),
            users: machine.word(0),
            frontier: Frontier::new(machine),
            budget: None,
            notified: Vec::new(),
            mappings_max: MAPPINGS_MAX,
            number: machine.once(),
        })
    }

    /// Returns the address space with its pages charged to `budget`. Call this before anything is
    /// mapped: a page that was mapped earlier is not charged, but `budget` is uncharged when the
    /// page is freed.
    #[must_use]
    pub fn limited(self, budget: Arc<Budget<M>>) -> Self {
        let budget = Some(budget);
        Self { budget, ..self }
    }

    /// Adds `notified` to the objects that are notified before pages leave the address space, and
    /// returns the address space.
    #[must_use]
    pub fn notifying(mut self, notified: impl Notified<M> + 'static) -> Self {
        self.notified.push(Box::new(notified));
        self
    }

    /// Returns the address space with a limit of `max` mappings (Linux: `vm.max_map_count`).
    #[must_use]
    pub fn with_mappings_max(self, max: u32) -> Self {
        let mappings_max = max;
        Self {
            mappings_max,
            ..self
        }
    }

    /// Returns the counters of the space's resident pages.
    pub fn rss(&self) -> &Rss<M> {
        &self.rss
    }

    /// Returns the budget that the space's pages are charged to, if there is one.
    pub fn budget(&self) -> Option<&Arc<Budget<M>>> {
        self.budget.as_ref()
    }

    /// Returns the tree of the space's mappings, for lookups that do not wait.
    pub fn mappings(&self) -> &VmaTree<M> {
        &self.tree
    }

    /// Returns the number of pages that the space's page tables take (Linux: `mm_pgtables_bytes`
    /// divided by the page size).
    pub fn table_pages(&self, machine: &M) -> u64 {
        self.table.pages(machine)
    }

    /// Returns the frame of `page`, or `None` if the page is not in memory (Linux:
    /// `/proc/PID/pagemap`).
    ///
    /// The page may move to another frame at any moment. A [`Notified`] of this space can rely on
    /// the result until the next notification of a range with `page`. It cannot rely on the result
    /// if such a notification came during this call.
    pub fn frame_of(&self, machine: &M, page: Vpn) -> Option<Pfn> {
        let spot = self.table.find(page).filter(|_| page < END)?;
        let index = spot.clip(&(page..Vpn(page.0 + 1))).start;
        let look = |entries: &mut Entries| match (entries.what(), entries.get(index)) {
            (What::Huge(whole), _) => Some(whole.pfn.plus(Pages(index))),
            (What::Table, Some(Entry::Page(page))) => Some(page.pfn),
            _ => None,
        };
        spot.leaf.entries.with(machine, Site::Fault, look)
    }

    /// Returns whether `flag` was raised.
    pub fn has(&self, machine: &M, flag: Flag) -> bool {
        // Acquire pairs with the Release in `raise`: everything that the raising CPU did before is
        // visible.
        self.flags.load(machine, Acquire) & bit(flag) != 0
    }

    /// Raises `flag`. Returns `true` if this call raised the flag, and `false` if it was raised
    /// before.
    pub fn raise(&self, machine: &M, flag: Flag) -> bool {
        !self.raise_after(machine, flag, flag)
    }

    /// Raises `flag`. Returns whether `earlier` was already raised at that moment. Suppose that one
    /// CPU raises flag A and asks for flag B, while another CPU raises B and asks for A. Then
    /// exactly one of them finds that the other's flag was raised first.
    fn raise_after(&self, machine: &M, flag: Flag, earlier: Flag) -> bool {
        let mut flags = self.flags.load(machine, Relaxed);
        while flags & bit(flag) == 0 {
            // AcqRel pairs with the Acquire in `has`, and with the AcqRel of other CPUs here.
            match self
                .flags
                .compare_exchange(machine, flags, flags | bit(flag), AcqRel)
            {
                Ok(_) => break,
                Err(others) => flags = others,
            }
        }
        flags & bit(earlier) != 0
    }

    /// Counts one more process that uses the space (Linux: `mmget`).
    pub(crate) fn add_user(&self, machine: &M) {
        debug_assert!(!self.has(machine, Flag::Exiting), "it is not over yet");
        // Relaxed: the caller already uses the space, or has just made it. The count makes nothing
        // visible to other CPUs.
        self.users.add(machine, 1, Relaxed);
    }

    /// Counts that a process has stopped using the space. Returns whether that process was the last
    /// user (Linux: `mmput`).
    pub(crate) fn remove_user(&self, machine: &M) -> bool {
        // AcqRel pairs with the AcqRel of this addition on other CPUs. So the last user of the
        // space sees everything that the other users did before they left.
        self.users.add(machine, -1, AcqRel) == 0
    }

    /// Returns the number of processes that use the space (Linux: `mm_users`).
    pub(crate) fn users(&self, machine: &M) -> i64 {
        // Relaxed: no caller relies on the number for the order of other accesses.
        self.users.load(machine, Relaxed)
    }

    /// Frees the counters after the space has ended (Linux: `mmdrop`).
    ///
    /// # Errors
    /// [`BadRss`] if a counter is not 0, because of a miscount or because the space was never
    /// ended.
    pub fn destroy(self, machine: &M) -> Result<(), BadRss> {
        self.rss.destroy(machine)
    }

    /// Notifies each [`Notified`] that `pages` may leave, and waits until none of them uses a
    /// translation to these pages.
    fn announce(&self, machine: &M, pages: &Range<Vpn>) {
        for notified in &self.notified {
            // A `Notified` refuses only if it must not wait, and here it may wait.
            let _waited = notified.start(machine, pages, true);
        }
    }

    /// Notifies each [`Notified`] that `pages` have left, or will stay where they are.
    fn announce_end(&self, machine: &M, pages: &Range<Vpn>) {
        for notified in &self.notified {
            notified.end(machine, pages);
        }
    }

    /// Returns the mapping that contains `page`.
    fn vma_at(&self, machine: &M, page: Vpn, site: Site) -> Option<Vma> {
        if let Ok(found) = self.tree.find(page) {
            return found;
        }
        // Other CPUs changed the mappings during every try of the lookup. So look up once more
        // while this CPU holds the lock, under which no other CPU changes the mappings.
        self.mappings
            .read(machine, site, |_| self.tree.find(page).ok().flatten())
    }
}

const fn bit(flag: Flag) -> i64 {
    1 << flag as u8
}

impl<M: Machine> fmt::Debug for AddressSpace<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSpace")
            .field("mappings", &self.tree)
            .finish_non_exhaustive()
    }
}
