//! Emptying the address space of a process that is to die, before or during its exit (Linux:
//! `__oom_reap_task_mm`).
//!
//! A helper (the OOM reaper, or a caller of `process_mrelease`) unmaps only private memory, which
//! no other address space uses. [`Flag::Unstable`] ensures that no process touches that memory
//! afterwards. Helpers empty the space in one of several orders (`reaping`).
//!
//! Locks: `Mmap` as a reader, then the locks that `zap` takes.

use core::ops::Range;

use super::frontier::{Claimer, Left, NotJoined};
use super::gather::Gather;
use super::memory::Memory;
use super::page_table::{ENTRIES, Spot, TABLE_BITS, first_page};
pub use super::reaping::Reaping;
use super::vma_tree::{Cursor, Vma};
use super::zap::Whose;
use super::{AddressSpace, Flag, MappingKind, Refused};
use crate::event::{Event, Phase};
use crate::machine::{Machine, RwLock};
use crate::site::Site;
use crate::units::Vpn;

/// The outcome of an attempt, such as the OOM reaper's, to empty an address space that is to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// No page table is left for this CPU to empty. Other CPUs may still be emptying tables.
    All,
    /// A holder of translations (Linux: an MMU notifier) refused to give up the translations to
    /// some pages. Everything else was emptied.
    Partly,
    /// The CPU stopped, because a writer waits to change the mappings. More is left to empty.
    GaveWay,
    /// Another CPU was changing the mappings, or too many CPUs were already emptying the space.
    /// Nothing was emptied.
    Busy,
}

impl Reaped {
    /// Combines this outcome with `next`, the outcome of a later step. Returns this outcome, or
    /// `next` if this outcome is `All`.
    const fn and(self, next: Self) -> Self {
        match self {
            Self::All => next,
            before => before,
        }
    }
}

/// The number of pages that [`Reaping::DescendingChunks`] empties before it checks for a waiting
/// writer: 1 GiB.
const CHUNK: u64 = (ENTRIES as u64) << TABLE_BITS;

/// The reason why a CPU stops reaping before the end of its range.
enum Stop {
    Refused,
    GaveWay,
}

impl<M: Machine> AddressSpace<M> {
    /// Empties the private memory of the space, as the OOM reaper does. Returns [`Reaped::Busy`] at
    /// once if another CPU is changing the mappings.
    pub fn try_reap(&self, memory: Memory<'_, M>) -> Reaped {
        self.try_reap_after(memory, || ())
    }

    /// Empties the private memory of the space like [`AddressSpace::try_reap`]. Also calls `starts`
    /// once the lock of the mappings is held. It does not call `starts` if [`Flag::Skip`] says that
    /// nothing is left to empty.
    pub(crate) fn try_reap_after(&self, memory: Memory<'_, M>, starts: impl FnOnce()) -> Reaped {
        let machine = memory.machine;
        machine.emit(Event::Begin(Phase::Reap));
        let reaped = self.mappings.try_read(machine, Site::Reap, |_| {
            if !self.has(machine, Flag::Skip) {
                starts();
            }
            self.reap(memory, Site::Reap)
        });
        let reaped = reaped.map_or(Reaped::Busy, |(reaped, left)| {
            self.conclude(memory, reaped, left, Site::Reap)
        });
        machine.emit(Event::End(Phase::Reap));
        reaped
    }

    /// Empties the private memory of the space at the request of a caller (Linux:
    /// `process_mrelease`). Waits while another CPU changes the mappings. Returns `None` if
    /// `killed` returned true during this wait.
    pub fn release(&self, memory: Memory<'_, M>, killed: impl Fn() -> bool) -> Option<Reaped> {
        let machine = memory.machine;
        machine.emit(Event::Begin(Phase::Release));
        let reaped = self
            .mappings
            .read_killable(machine, Site::Release, killed, |_| {
                self.reap(memory, Site::Release)
            });
        let reaped =
            reaped.map(|(reaped, left)| self.conclude(memory, reaped, left, Site::Release));
        machine.emit(Event::End(Phase::Release));
        reaped
    }

    /// If this CPU was the last that emptied page tables of the space, finishes the work on the
    /// space, such as freeing its page tables. Returns `reaped`.
    fn conclude(&self, memory: Memory<'_, M>, reaped: Reaped, left: Left, site: Site) -> Reaped {
        if left == Left::Finish {
            self.finish(memory, site);
        }
        reaped
    }

    fn reap(&self, memory: Memory<'_, M>, site: Site) -> (Reaped, Left) {
        let machine = memory.machine;
        if self.has(machine, Flag::Skip) {
            return (Reaped::All, Left::Nothing);
        }
        self.raise(machine, Flag::Unstable);
        self.table.catch_up(machine);
        let reaped = match memory.spaces.reaping() {
            Reaping::Ascending => self.reap_each(memory, site, Cursor::forward),
            Reaping::DescendingByVma => self.reap_each(memory, site, Cursor::backward),
            Reaping::DescendingChunks => self.reap_chunks(memory, site),
            Reaping::MeetInTheMiddle => return self.reap_claimable(memory, site),
        };
        (reaped, Left::Nothing)
    }

    /// Reaps mapping by mapping, each from its start. Collects the unmapped pages of each mapping
    /// in a separate [`Gather`].
    fn reap_each<'s, E>(
        &'s self,
        memory: Memory<'_, M>,
        site: Site,
        step: impl Fn(&mut Cursor<'s, M>) -> Result<Option<Vma>, E>,
    ) -> Reaped {
        let mut reaped = Reaped::All;
        let descends = memory.spaces.reaping() != Reaping::Ascending;
        let mut cursor = if descends {
            Cursor::end(&self.tree)
        } else {
            Cursor::at(&self.tree, Vpn(0))
        };
        while let Ok(Some(vma)) = step(&mut cursor) {
            if MappingKind::of(&vma).is_reapable()
                && self.reap_apart(memory, vma.start..vma.end, site).is_err()
            {
                reaped = Reaped::Partly;
            }
        }
        reaped
    }

    fn reap_chunks(&self, memory: Memory<'_, M>, site: Site) -> Reaped {
        let mut reaped = Reaped::All;
        let mut cursor = Cursor::end(&self.tree);
        while let Ok(Some(vma)) = cursor.backward() {
            if !MappingKind::of(&vma).is_reapable() {
                continue;
            }
            match self.reap_by_chunks(memory, &vma, site) {
                Ok(()) => {}
                Err(Stop::Refused) => reaped = Reaped::Partly,
                Err(Stop::GaveWay) => return Reaped::GaveWay,
            }
        }
        reaped
    }

    fn reap_by_chunks(&self, memory: Memory<'_, M>, vma: &Vma, site: Site) -> Result<(), Stop> {
        let mut outcome = Ok(());
        let mut end = vma.end;
        while end > vma.start {
            let start = Vpn(((end.0 - 1) / CHUNK * CHUNK).max(vma.start.0));
            if self.reap_apart(memory, start..end, site).is_err() {
                outcome = Err(Stop::Refused);
            }
            if self.mappings.writer_waits(memory.machine) {
                return Err(Stop::GaveWay);
            }
            end = start;
        }
        outcome
    }

    /// Empties `pages` of one mapping, and collects the unmapped pages in a separate [`Gather`].
    fn reap_apart(
        &self,
        memory: Memory<'_, M>,
        pages: Range<Vpn>,
        site: Site,
    ) -> Result<(), Refused> {
        let mut gather = Gather::of_dying(memory, self);
        let outcome = self.announced(memory.machine, &pages, || {
            self.unmap_range(&mut gather, pages.clone(), site);
        });
        gather.finish();
        outcome
    }

    /// Asks every holder of translations (Linux: MMU notifier) to give up its translations to
    /// `pages`, and then runs `f`. If a holder refuses, does not run `f`.
    fn announced(&self, machine: &M, pages: &Range<Vpn>, f: impl FnOnce()) -> Result<(), Refused> {
        for (told, notified) in self.notified.iter().enumerate() {
            if let Err(refused) = notified.start(machine, pages, false) {
                self.notified[..told]
                    .iter()
                    .for_each(|before| before.end(machine, pages));
                return Err(refused);
            }
        }
        f();
        self.notified
            .iter()
            .for_each(|notified| notified.end(machine, pages));
        Ok(())
    }

    /// Reaps page table by page table from one end of the space, until no table is left to claim or
    /// the helper gives way to a writer. Begins with the tables that other helpers could not empty.
    fn reap_claimable(&self, memory: Memory<'_, M>, site: Site) -> (Reaped, Left) {
        let machine = memory.machine;
        let mut walker = match self.frontier.join(machine) {
            Ok(walker) => walker,
            Err(NotJoined::TooLate) => return (Reaped::All, Left::Nothing),
            Err(NotJoined::TooMany) => return (Reaped::Busy, Left::Nothing),
        };
        let mut gather = Gather::of_dying(memory, self);
        machine.emit(Event::Begin(Phase::Unmap));
        let reaped = self.reap_claims(&mut gather, &mut walker, site);
        machine.emit(Event::End(Phase::Unmap));
        gather.finish();
        (reaped, self.frontier.leave(machine))
    }

    fn reap_claims(&self, gather: &mut Gather<'_, M>, walker: &mut Claimer, site: Site) -> Reaped {
        let machine = gather.memory().machine;
        let mut reaped = Reaped::All;
        let mut handed_back = self.frontier.take_back(machine, site);
        while let Some(tables) = handed_back.next() {
            reaped = reaped.and(self.reap_tables(gather, &tables, site));
            if self.mappings.writer_waits(machine) {
                for tables in handed_back {
                    self.frontier.hand_back(machine, site, tables);
                }
                return Reaped::GaveWay;
            }
        }
        while let Some(claim) = self.claim(machine, walker) {
            reaped = reaped.and(self.reap_tables(gather, &claim.tables, site));
            self.conclude_claim(gather, &claim, walker.share());
            // If `Skip` is raised, no helper will come back for the tables that are left. So do not
            // give way to a thread that waits to change the mappings.
            if self.mappings.writer_waits(machine) && !self.has(machine, Flag::Skip) {
                return Reaped::GaveWay;
            }
        }
        reaped
    }

    /// Empties claimed page tables. Hands back the tables to which a holder of translations (Linux:
    /// an MMU notifier) refuses to give up its translations.
    fn reap_tables(&self, gather: &mut Gather<'_, M>, tables: &Range<u64>, site: Site) -> Reaped {
        let machine = gather.memory().machine;
        let (mut reaped, mut from) = (Reaped::All, tables.start);
        while let Some(spot) = self.table.next(from).filter(|spot| spot.index < tables.end) {
            from = spot.index + 1;
            if self.reap_table(gather, spot, site).is_err() {
                self.frontier.hand_back(machine, site, spot.index..from);
                reaped = Reaped::Partly;
            }
        }
        reaped
    }

    /// Empties the private entries of a table, and frees the table if no entry is left.
    fn reap_table(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        site: Site,
    ) -> Result<(), Refused> {
        let machine = gather.memory().machine;
        let mut outcome = Ok(());
        let mut cursor = Cursor::at(&self.tree, spot.start());
        while let Ok(Some(vma)) = cursor.forward() {
            if vma.start >= first_page(spot.index + 1) {
                break;
            }
            if MappingKind::of(&vma).is_reapable() {
                outcome = outcome.and(self.reap_part(gather, spot, &vma, site));
            }
        }
        if let Some(frame) = self.take_table(machine, spot, site) {
            gather.add_table_flushing(frame);
        }
        outcome
    }

    fn reap_part(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        vma: &Vma,
        site: Site,
    ) -> Result<(), Refused> {
        let machine = gather.memory().machine;
        let (start, end) = (spot.start(), first_page(spot.index + 1));
        let pages = vma.start.max(start)..vma.end.min(end);
        self.announced(machine, &pages, || {
            self.unmap_table(gather, spot, spot.clip(&pages), site, Whose::Mine);
        })
    }
}
