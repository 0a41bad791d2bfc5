//! Address spaces: mappings, page tables, resident pages, and how all of it ends.
//!
//! ```text
//! map ──> mapping ──fault──> page table entry ──unmap, exit, reap──> gather ──> zone
//! ```
//!
//! `vma_tree`, `mapping`: what is mapped. `page_table`: where its pages are. `map`, `fault`, `swapping`:
//! what a living process does. `zap`, `gather`: how pages leave. `exit`, `reap`, `frontier`: how a dying
//! address space is emptied, by its last user and by those who help. `rss`, `usage`, `budget`: how many
//! pages, what killing would give back, and how many at most. `walk`: looking at page tables. `object`, `swap`, `lru`, `memory`: what address spaces share.

pub mod budget;
mod error;
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
pub use self::error::{ExitError, FaultError, MapError, NoMemory};
pub use self::exit::Exited;
pub use self::fault::{Access, FAULT_TRIES, Faulted};
use self::frontier::Frontier;
pub use self::map::{MapRequest, Place};
use self::mapping::Mappings;
pub use self::mapping::{Backing, MappingKind};
pub use self::memory::{Discard, Memory, Spaces};
use self::page_table::{Entries, Entry, PageTable, SPACE_BITS, What};
use self::rss::{BadRss, Rss};
use self::vma_tree::{Vma, VmaTree};
pub use self::walk::Walked;
use crate::counter::InitError;
use crate::machine::{Lock, Machine, RwLock, Word};
use crate::site::{LockClass, Site};
use crate::units::{Pages, Pfn, Vpn};

/// The memory of one process, or of several that share it (Linux: `mm_struct`).
///
/// All operations take `&self`: any number of CPUs may map, fault and help to empty it at once.
/// When nobody uses it any more it has to be ended, by [`AddressSpace::exit`], and then dropped by
/// [`AddressSpace::destroy`].
pub struct AddressSpace<M: Machine> {
    mappings: M::RwLock<Mappings<M>>,
    tree: VmaTree<M>,
    table: PageTable<M>,
    /// Not 0 while a mapping takes the place of others whose pages are still there.
    replacing: M::Field,
    rss: Rss<M>,
    flags: M::Word,
    users: M::Word,
    frontier: Frontier<M>,
    budget: Option<Arc<Budget<M>>>,
    notified: Vec<Box<dyn Notified<M>>>,
    mappings_max: u32,
}

/// Hears of ranges whose pages are about to leave, because it holds translations of its own: a
/// virtual machine, a device (Linux: `mmu_notifier`).
///
/// It hears of every way in which a page leaves: unmapped, reaped, moved to swap, replaced by a private
/// copy, or given back when the address space ends. A page that is in memory is in the same frame as
/// long as nothing was said of it. The lock of the mappings may be held as a reader during a call, page
/// tables are not locked.
pub trait Notified<M: Machine>: Send + Sync {
    /// Pages of `pages` are about to leave: no translation to any of them may be used until `end`.
    ///
    /// # Errors
    /// [`Refused`] if that cannot be done without waiting and `may_wait` is false.
    fn start(&self, machine: &M, pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused>;

    /// What was to leave of `pages` has left; a page may be in memory again, in another frame.
    fn end(&self, machine: &M, pages: &Range<Vpn>);

    /// The address space is about to be emptied for good: no translation to any of it may be used
    /// from now on. Helpers may still tell of ranges, which there is nothing left to do for.
    fn release(&self, machine: &M);
}

/// Whoever was told of a range would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Something that is true of an address space from some moment on, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// Whoever uses it was told to die; nobody waits for its sake (Linux: `SIGKILL` pending).
    Killed,
    /// Private pages may be gone: touching them is refused (Linux: `MMF_UNSTABLE`).
    Unstable,
    /// Nothing is to be had here any more: not to be reaped or chosen again (Linux:
    /// `MMF_OOM_SKIP`).
    Skip,
    /// It was handed to the reaper once (Linux: `MMF_OOM_REAP_QUEUED`).
    ReapQueued,
    /// Its owner was chosen by the OOM killer (Linux: `signal->oom_mm` is set).
    Victim,
    /// Its last user is leaving.
    Exiting,
    /// It is empty.
    Ended,
}

/// The most mappings an address space may have unless it says otherwise (Linux:
/// `DEFAULT_MAX_MAP_COUNT`).
pub const MAPPINGS_MAX: u32 = 65_530;

/// The end of an address space: 128 TiB.
pub const END: Vpn = Vpn(1 << SPACE_BITS);

impl<M: Machine> AddressSpace<M> {
    /// Nothing mapped.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`].
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
        })
    }

    /// The same with pages charged to `budget`. Before anything is mapped.
    #[must_use]
    pub fn limited(self, budget: Arc<Budget<M>>) -> Self {
        let budget = Some(budget);
        Self { budget, ..self }
    }

    /// The same, and `notified` hears of ranges whose pages leave.
    #[must_use]
    pub fn notifying(mut self, notified: impl Notified<M> + 'static) -> Self {
        self.notified.push(Box::new(notified));
        self
    }

    /// The same with room for `max` mappings (Linux: `vm.max_map_count`).
    #[must_use]
    pub fn with_mappings_max(self, max: u32) -> Self {
        let mappings_max = max;
        Self {
            mappings_max,
            ..self
        }
    }

    /// Its resident pages.
    pub fn rss(&self) -> &Rss<M> {
        &self.rss
    }

    /// What it may use, if that is limited.
    pub fn budget(&self) -> Option<&Arc<Budget<M>>> {
        self.budget.as_ref()
    }

    /// Its mappings, to look at without waiting.
    pub fn mappings(&self) -> &VmaTree<M> {
        &self.tree
    }

    /// Pages that its page tables take (Linux: `mm_pgtables_bytes` over the page size).
    pub fn table_pages(&self, machine: &M) -> u64 {
        self.table.pages(machine)
    }

    /// The frame that `page` is in, or `None` if it is not in memory (Linux: `/proc/PID/pagemap`).
    ///
    /// It may be another one at once. If [`Notified`] heard of no range with `page` since before this
    /// call, the answer holds until it does.
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

    /// Whether `flag` was raised.
    pub fn has(&self, machine: &M, flag: Flag) -> bool {
        // Acquire: pairs with the release in `raise`, so that what was done before is seen.
        self.flags.load(machine, Acquire) & bit(flag) != 0
    }

    /// Raises `flag`; whether this call was the one that did.
    pub fn raise(&self, machine: &M, flag: Flag) -> bool {
        let mut flags = self.flags.load(machine, Relaxed);
        while flags & bit(flag) == 0 {
            // AcqRel: pairs with the acquire in `has`, and with itself.
            match self
                .flags
                .compare_exchange(machine, flags, flags | bit(flag), AcqRel)
            {
                Ok(_) => return true,
                Err(others) => flags = others,
            }
        }
        false
    }

    /// One process more uses it (Linux: `mmget`).
    pub(crate) fn add_user(&self, machine: &M) {
        debug_assert!(!self.has(machine, Flag::Exiting), "it is not over yet");
        // Relaxed: who adds a user is one, or made the space; nothing is handed over.
        self.users.add(machine, 1, Relaxed);
    }

    /// A process does not use it any more; whether it was the last one (Linux: `mmput`).
    pub(crate) fn remove_user(&self, machine: &M) -> bool {
        // AcqRel: pairs with itself, so that the last one sees all that others did before.
        self.users.add(machine, -1, AcqRel) == 0
    }

    /// Processes that use it (Linux: `mm_users`).
    pub(crate) fn users(&self, machine: &M) -> i64 {
        // Relaxed: it may be another number at once.
        self.users.load(machine, Relaxed)
    }

    /// Gives the counters back once everything has ended (Linux: `mmdrop`).
    ///
    /// # Errors
    /// [`BadRss`] if a counter is not 0: somebody has miscounted, or it was never ended.
    pub fn destroy(self, machine: &M) -> Result<(), BadRss> {
        self.rss.destroy(machine)
    }

    /// Tells those who hold translations of their own that `pages` may leave, and waits until none
    /// is used.
    fn announce(&self, machine: &M, pages: &Range<Vpn>) {
        for notified in &self.notified {
            // Only one that may not wait refuses.
            let _waited = notified.start(machine, pages, true);
        }
    }

    /// Tells them that `pages` have left, or stay.
    fn announce_end(&self, machine: &M, pages: &Range<Vpn>) {
        for notified in &self.notified {
            notified.end(machine, pages);
        }
    }

    /// What is mapped at `page`.
    fn vma_at(&self, machine: &M, page: Vpn, site: Site) -> Option<Vma> {
        if let Ok(found) = self.tree.find(page) {
            return found;
        }
        // Others change the mappings all the time: wait until they are done.
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
