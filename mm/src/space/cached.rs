//! Files whose pages are reclaimed (Linux: the page cache): looking a page up, reading it, and
//! dropping it when memory is short.
//!
//! A file whose pages may be reclaimed is *enlisted*. A page of an enlisted file is on the lists by
//! which pages are aged. The page leaves memory when reclaim drops it, or when the file is emptied.
//! `mm` never writes a page back to its file. A process may have written to a page that was mapped
//! shared, so such a page stays in memory.
//!
//! A CPU takes a page out of the index of its file under the lock of the file, and the same CPU
//! then frees the page. A page has a *use* for each entry of a page table that maps the page, and
//! for each CPU that has looked it up (see `lru/shares.rs`). Reclaim takes a page out only if the
//! page has no use, and a CPU that looks a page up adds a use under the same lock. So no CPU uses a
//! page that was freed.
//!
//! Locks: a CPU that holds `Object` takes no other lock here. A CPU that allocates a page, frees it
//! or puts it on the lists holds no lock but `Mmap`.

use alloc::sync::Arc;

use super::index::{Missing, Spares};
use super::lru::{Aged, Shadow, Share};
use super::memory::Memory;
use super::object::{Object, ObjectKind, PageError};
use super::page_table::{Page, PageKind};
use super::rmap::{EnlistError, OfFile, Owner};
use crate::machine::{Lock, Machine, Once};
use crate::page::{FREE_BATCH, Request};
use crate::site::{Site, Work};
use crate::units::{Order, Pfn, Vpn, count_of};

/// The outcome of a read of a page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The page was in memory.
    Cached,
    /// The page was not in memory; its contents have to be read from the file.
    Missed,
}

/// A page of a file that a CPU has looked up.
pub(super) struct Found {
    pub(super) pfn: Pfn,
    /// True if the look-up has counted a use of the page (Linux: a page reference). The CPU must
    /// later drop this use, or pass it on to the page table's entry that maps the page.
    pub(super) is_pinned: bool,
    /// True if the page was not in memory before the look-up.
    is_new: bool,
}

impl Found {
    /// Returns the result of a look-up that found `pfn`. The uses of this page are not counted,
    /// because it belongs to no file whose pages may be reclaimed.
    pub(super) const fn unpinned(pfn: Pfn) -> Self {
        Self {
            pfn,
            is_pinned: false,
            is_new: false,
        }
    }
}

/// A page that is about to be put into the index of a file.
struct New {
    index: u64,
    owner: u64,
    missing: Missing,
}

impl<M: Machine> Memory<'_, M> {
    /// Makes the pages of `file` reclaimable. A reference to the file is kept until
    /// [`Memory::release_file`] is called. Call this before the file has pages. If the
    /// [`Spaces`](super::Spaces) were made without [aging](super::Spaces::aging), this has no
    /// effect. It has no effect on shared memory either, whose pages always stay in memory: reclaim
    /// moves only anonymous pages to swap.
    ///
    /// # Errors
    /// [`EnlistError`] if the file cannot be enlisted. In that case, nothing has changed.
    ///
    /// # Panics
    /// If the file has pages already.
    pub fn enlist_file(&self, file: &Arc<Object<M>>) -> Result<(), EnlistError> {
        let Some(rmap) = &self.spaces.rmap else {
            return Ok(());
        };
        if file.kind() != ObjectKind::File {
            return Ok(());
        }
        let present = file.present(self.machine);
        assert_eq!(present, 0, "a file is enlisted before it has pages");
        rmap.enlist_file(self.machine, file)
    }

    /// Reads the page of `file` at `index` without mapping it, as the system call `read` does
    /// (Linux: `filemap_read`). If the page is not in memory, allocates it as `request` says.
    ///
    /// # Errors
    /// [`PageError`] if no page can be allocated, or if the global allocator has no memory.
    pub fn read_file(
        &self,
        file: &Object<M>,
        index: u64,
        request: Request,
    ) -> Result<Read, PageError> {
        let found = self.look_up(file, index, request)?;
        if found.is_pinned
            && let Some(share) = self.share(found.pfn)
        {
            share.note_read(self.machine);
            share.unpin(self.machine);
        }
        Ok(if found.is_new {
            Read::Missed
        } else {
            Read::Cached
        })
    }

    /// Frees all pages of `file`, and drops the reference that was kept since
    /// [`Memory::enlist_file`] (Linux: `truncate_inode_pages`). The caller must make sure that no
    /// address space maps the pages and no CPU reads them. A file that was enlisted must not be
    /// used again afterwards.
    ///
    /// # Panics
    /// If a page of the file is still in use.
    pub fn release_file(&self, file: &Object<M>) {
        let machine = self.machine;
        let Some(&number) = file.number.get() else {
            return file.empty(machine, self.manager.pages());
        };
        let all = file
            .pages
            .with(machine, Site::ObjectEmpty, |map| map.take());
        let mut batch = [Pfn(0); FREE_BATCH];
        let mut len = 0;
        all.for_each(|pfn| {
            let share = self.share(pfn);
            let uses = share.map_or(0, |share| share.uses(machine));
            assert_eq!(uses, 0, "no page of the file is in use");
            batch[len] = pfn;
            len += 1;
            if len == FREE_BATCH {
                self.free_cached(&batch);
                len = 0;
            }
        });
        self.free_cached(&batch[..len]);
        if let Some(rmap) = &self.spaces.rmap {
            rmap.give_back(machine, number);
        }
    }

    /// Looks up the page of `object` at `index`, and allocates it if it is not in memory. If the
    /// object is an enlisted file, whose pages can be reclaimed, adds a use to the page (Linux: a
    /// page reference).
    pub(super) fn look_up(
        &self,
        object: &Object<M>,
        index: u64,
        request: Request,
    ) -> Result<Found, PageError> {
        let (Some(&number), Some(aged)) = (object.number.get(), self.spaces.lru.aged()) else {
            let pfn = object.page(self.machine, self.manager.pages(), index, request)?;
            return Ok(Found::unpinned(pfn));
        };
        let there = object.pages.with(self.machine, Site::ObjectPage, |map| {
            let there = map.get(index);
            let pinned = there.inspect(|&pfn| self.pin(aged, pfn));
            pinned.ok_or_else(|| (map.missing(index), map.shadow(index)))
        });
        match there {
            Ok(pfn) => Ok(Found {
                pfn,
                is_pinned: true,
                is_new: false,
            }),
            Err((missing, shadow)) => {
                let file = self.start_of(aged, shadow);
                let owner = Owner::pack_file(number, index, file);
                let new = New {
                    index,
                    owner,
                    missing,
                };
                self.bring_in(object, aged, new, request)
            }
        }
    }

    /// Allocates a page while no lock is held, and puts it into the index of the file and on the
    /// lists by which pages are aged. If another CPU puts a page at the same index first, uses that
    /// page and frees the page that was allocated here.
    #[cold]
    fn bring_in(
        &self,
        object: &Object<M>,
        aged: &Aged<M>,
        mut new: New,
        mut request: Request,
    ) -> Result<Found, PageError> {
        let (machine, pages) = (self.machine, self.manager.pages());
        request.order = Order::ZERO;
        let ours = pages.alloc(machine, request);
        let ours = ours.map_err(PageError::OutOfMemory)?;
        if aged.prepare(machine, pages, ours).is_err() {
            self.give_back(&[ours]);
            return Err(PageError::NoMemory);
        }
        // Once the page is in the index, other CPUs may map it. So the page's owner and this CPU's
        // use of the page are recorded first.
        if let Some(share) = aged.share(pages, ours) {
            share.begin(machine);
        }
        aged.set_owner(machine, pages, ours, new.owner);
        // The loop ends: it repeats only if nodes of the index are missing again, because another
        // CPU has meanwhile emptied the file or made the tree of its index higher.
        let there = loop {
            let Ok(mut spares) = Spares::new(new.missing) else {
                break Err(PageError::NoMemory);
            };
            let inserted = object.pages.with(machine, Site::ObjectPage, |map| {
                let there = map.insert(new.index, ours, &mut spares)?;
                if there != ours {
                    self.pin(aged, there);
                }
                Ok(there)
            });
            match inserted {
                Ok(there) => break Ok(there),
                Err(more) => new.missing = more,
            }
        };
        if there == Ok(ours) {
            self.spaces.lru.add(machine, pages, ours);
        } else {
            self.give_back_cached(&[ours]);
        }
        Ok(Found {
            pfn: there?,
            is_pinned: true,
            is_new: there == Ok(ours),
        })
    }

    /// Returns the state with which a page of a file comes into memory. `shadow` is what an earlier
    /// page at this index has left in the file, if that page was dropped.
    fn start_of(&self, aged: &Aged<M>, shadow: Option<Shadow>) -> OfFile {
        let swaps = self.spaces.swap.free() > 0;
        OfFile {
            stays: false,
            begins_active: shadow.is_some_and(|shadow| aged.refault(self.machine, shadow, swaps)),
        }
    }

    fn pin(&self, aged: &Aged<M>, pfn: Pfn) {
        let share = aged.share(self.manager.pages(), pfn);
        // The page's share (the record of its uses) was made before the page was put into the
        // index.
        if let Some(share) = share {
            share.pin(self.machine);
        }
    }

    fn share(&self, pfn: Pfn) -> Option<&Share<M>> {
        self.spaces.lru.aged()?.share(self.manager.pages(), pfn)
    }

    /// Returns the share of `pfn` (the record of its uses) if `pfn` is a page of a file whose pages
    /// may be reclaimed. The caller knows that the page has a use, because an entry of a page table
    /// maps the page or mapped it until now.
    fn share_of_mapped(&self, pfn: Pfn) -> Option<&Share<M>> {
        let aged = self.spaces.lru.aged()?;
        let pages = self.manager.pages();
        // The page is in use, so no CPU frees the page, and its owner does not change.
        let owner = Owner::unpack(aged.owner_of(pages, pfn))?;
        owner.file.and_then(|_| aged.share(pages, pfn))
    }

    /// Drops the use (Linux: the page reference) that a look-up has added to a page. The page was
    /// not mapped.
    pub(super) fn drop_found(&self, found: &Found) {
        if found.is_pinned
            && let Some(share) = self.share(found.pfn)
        {
            share.unpin(self.machine);
        }
    }

    /// Records that an entry of a page table now maps the page that a CPU has looked up. The use of
    /// the page that the look-up counted now belongs to the entry. The caller holds the lock of the
    /// page table. `mapper` says which address space and virtual page the entry is for, packed as
    /// an [`Owner`]. `mapper` is 0 if reclaim leaves that address space's pages alone.
    pub(super) fn note_mapped(&self, found: &Found, kind: PageKind, mapper: u64) {
        let (Some(aged), true) = (self.spaces.lru.aged(), found.is_pinned) else {
            return;
        };
        let pages = self.manager.pages();
        if let Some(share) = aged.share(pages, found.pfn) {
            share.set_mapper(mapper);
        }
        // A process may write to the page through a shared mapping at any time, and `mm` cannot
        // write the page back to the file. Mark the page's owner, so that reclaim never drops the
        // page.
        if kind == PageKind::Shared
            && let Some(owner) = Owner::unpack(aged.owner_of(pages, found.pfn))
            && let Some(packed) = owner.that_stays()
        {
            aged.set_owner(self.machine, pages, found.pfn, packed);
        }
    }

    /// Drops a use of `page`, a reference by an entry of a page table. The caller has emptied the
    /// entry, and then flushed translations to the page. Does nothing unless `page` is a page of a
    /// file whose pages may be reclaimed.
    pub(super) fn drop_unmapped(&self, page: Page) {
        if matches!(page.kind, PageKind::File | PageKind::Shared)
            && let Some(share) = self.share_of_mapped(page.pfn)
        {
            share.unpin(self.machine);
        }
    }

    /// Takes `pfn` out of `file`, if the page is still at `index`, is not in use and was never
    /// mapped shared. Puts `shadow`, the record of when the page left memory, in place of the page.
    /// Returns whether the page was taken out. If so, the caller owns the page.
    pub(crate) fn drop_cached(
        &self,
        file: &Object<M>,
        index: Vpn,
        pfn: Pfn,
        shadow: Shadow,
    ) -> bool {
        let Some(aged) = self.spaces.lru.aged() else {
            return false;
        };
        let pages = self.manager.pages();
        file.pages.with(self.machine, Site::Reclaim, |map| {
            let share = aged.share(pages, pfn);
            let is_unused = share.is_some_and(|share| share.uses(self.machine) == 0);
            let owner = Owner::unpack(aged.owner_of(pages, pfn));
            let file = owner.and_then(|owner| owner.file);
            let may_leave = is_unused && file.is_some_and(|file| !file.stays);
            may_leave && map.leave(index.0, pfn, shadow)
        })
    }

    /// Takes pages off the lists by which they are aged, and frees them. The caller has taken them
    /// out of their files.
    fn free_cached(&self, pfns: &[Pfn]) {
        if pfns.is_empty() {
            return;
        }
        let lru = &self.spaces.lru;
        lru.remove(self.machine, self.manager.pages(), pfns);
        self.give_back_cached(pfns);
    }

    /// Frees pages that were pages of files. The caller has taken them out of their files, and off
    /// the lists by which pages are aged.
    pub(crate) fn give_back_cached(&self, pfns: &[Pfn]) {
        if let Some(aged) = self.spaces.lru.aged() {
            // Forget the owner. Otherwise, if the frame later holds a page of a file whose pages
            // are not reclaimed, unmapping that page would drop a use that no CPU has counted.
            for &pfn in pfns {
                aged.set_owner(self.machine, self.manager.pages(), pfn, 0);
            }
        }
        self.machine.spend(Work::Release, count_of(pfns.len()));
        self.give_back(pfns);
    }
}
