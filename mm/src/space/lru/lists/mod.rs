//! The lists by which the used pages of one node are aged. This file takes no locks.
//!
//! ```text
//! add ──> inactive ──(touched twice)──> active ──(inactive is too short)──> inactive ──> reclaimed
//! ```
//!
//! Anonymous pages and pages of files have an inactive and an active list each.
//!
//! A page enters a list at the head and leaves it at the tail. Each page of the node has a record,
//! which holds the page's links and its place, so no list needs memory of its own. The records of
//! 1024 pages are together in a chunk. [`Metadata`] says whether all chunks exist from the start,
//! or each chunk is made when one of its pages is first used.
//!
//! CPUs collect new pages in batches, and a page may be freed before its batch reaches the lists.
//! So a page may be removed before it is added. The page's record counts such removals, and each
//! later addition cancels one of them. When no call is under way and all batches are empty, a page
//! is on a list if and only if it was added once more than it was removed.
//!
//! A CPU that reclaims *isolates* pages: it takes them off their list, looks at them without the
//! lock, and puts back those that stay in memory. While a page is isolated, another CPU may unmap
//! and free it, and the page may be allocated and added again. So each isolation has a number, its
//! *stamp*. A page is put back only if its record still has this stamp.

use alloc::vec::Vec;

use super::balance::Balance;
use super::kind::{Kind, List};
use crate::page::Metadata;
use crate::space::error::NoMemory;
use crate::units::Pfn;

/// The largest number of pages that are isolated at a time (Linux: `SWAP_CLUSTER_MAX`).
pub(crate) const ISOLATED_MAX: usize = 32;

/// The place of a page: on a list, or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The page is on no list. The field `next` of the record's links is the number of times that
    /// the page was removed before it was added; each addition that follows cancels one of these
    /// removals.
    Nowhere,
    On(List),
    /// Reclaim has taken the page off a list of this kind to look at it (the page is isolated). The
    /// field `next` of the record's links holds the stamp, which is the number of the isolation.
    Isolated(Kind),
}

/// The pages before and after a page on its list, as indices within the node.
#[derive(Clone, Copy)]
struct Links {
    prev: u32,
    next: u32,
}

/// The place of a page, and what is known about its use. `Links` is a separate type, so that the
/// record of a page takes nine bytes and not twelve.
#[derive(Clone, Copy)]
struct State(u8);

/// The index that stands for "no page". No page of a node has this index, because zones end below
/// it.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// The number of pages whose records are allocated together, as a chunk.
pub(crate) const CHUNK: u32 = 1024;

/// For each of the 1024 pages of a chunk: its links in the lists, and its state.
#[derive(Clone)]
struct Chunk {
    links: [Links; CHUNK as usize],
    states: [State; CHUNK as usize],
}

impl Chunk {
    const BLANK: Self = Self {
        links: [Links { prev: 0, next: 0 }; CHUNK as usize],
        states: [State::new(Place::Nowhere, Past::NEW); CHUNK as usize],
    };
}

/// The LRU lists of one NUMA node, and the record of each of its pages.
pub(crate) struct Lists {
    first: Pfn,
    pages: u32,
    /// A chunk is a vector of one element, because the allocation of a `Vec` can return an error
    /// when memory is short. That of a `Box` cannot.
    chunks: Vec<Vec<Chunk>>,
    ends: [Ends; List::ALL.len()],
    /// The number of isolated pages of each kind.
    isolated: [u32; Kind::ALL.len()],
    stamp: u32,
    /// The data by which reclaim chooses between anonymous pages and pages of files.
    pub(crate) balance: Balance,
}

/// What the LRU lists have recorded about the earlier use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// True if an earlier pass of reclaim found that the page had been touched (Linux:
    /// `PG_referenced`).
    pub(crate) referenced: bool,
    /// True if the page was once on an active list, and has not been freed since (Linux:
    /// `PG_workingset`).
    pub(crate) was_active: bool,
}

impl Past {
    /// The past of a page that has just been put to use: reclaim has not found it touched, and it
    /// was never active.
    pub(crate) const NEW: Self = Self {
        referenced: false,
        was_active: false,
    };
}

/// A page that was isolated, and what the page's record in the LRU lists said at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) pfn: Pfn,
    stamp: u32,
    /// The list from which the page was isolated.
    pub(crate) from: List,
    pub(crate) past: Past,
}

/// What happens to an isolated page when its isolation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The page goes to the head of this list.
    Stays {
        list: List,
        /// True if the page was found touched, so that the next touch makes it active.
        referenced: bool,
    },
    /// The caller has unmapped the page and is going to free it.
    Leaves,
}

/// A batch of pages that reclaim has taken off one list together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    taken: [Taken; ISOLATED_MAX],
    len: usize,
    /// The age of the node's LRU lists when reclaim took these pages off the lists; see
    /// [`Balance`].
    pub(crate) age: u64,
}

impl Run {
    pub(crate) fn get(&self) -> &[Taken] {
        &self.taken[..self.len]
    }

    /// Returns any one page of the run. A caller uses the page as the initial value of an array's
    /// elements.
    pub(crate) fn any(&self) -> Taken {
        self.taken[0]
    }
}

impl State {
    const REFERENCED: u8 = 0x10;
    const WAS_ACTIVE: u8 = 0x20;
    const PLACE: u8 = 0xf;
    const NOWHERE: u8 = 0;
    const ISOLATED: u8 = 1;
    /// The value for a page on the first LRU list. The values from `ISOLATED` up to this one,
    /// without this one, are for isolated pages: one value for each kind of pages.
    const ON: u8 = Self::ISOLATED + Kind::File as u8 + 1;

    const fn new(place: Place, past: Past) -> Self {
        let place = match place {
            Place::Nowhere => Self::NOWHERE,
            Place::Isolated(kind) => Self::ISOLATED + kind as u8,
            Place::On(list) => Self::ON + list as u8,
        };
        let referenced = if past.referenced { Self::REFERENCED } else { 0 };
        let was_active = if past.was_active { Self::WAS_ACTIVE } else { 0 };
        Self(place | referenced | was_active)
    }

    const fn place(self) -> Place {
        match self.0 & Self::PLACE {
            Self::NOWHERE => Place::Nowhere,
            on if on >= Self::ON => Place::On(List::ALL[(on - Self::ON) as usize]),
            isolated => Place::Isolated(Kind::ALL[(isolated - Self::ISOLATED) as usize]),
        }
    }

    const fn past(self) -> Past {
        Past {
            referenced: self.0 & Self::REFERENCED != 0,
            was_active: self.0 & Self::WAS_ACTIVE != 0,
        }
    }
}

impl Lists {
    /// Makes empty LRU lists for the `pages` frames from `first`.
    pub(crate) fn new(first: Pfn, pages: u32, metadata: Metadata) -> Result<Self, NoMemory> {
        let mut chunks = Vec::new();
        let count = pages.div_ceil(CHUNK) as usize;
        chunks.try_reserve_exact(count).map_err(|_| NoMemory)?;
        for _ in 0..count {
            let mut chunk = Vec::new();
            if metadata == Metadata::Eager {
                chunk.try_reserve_exact(1).map_err(|_| NoMemory)?;
                chunk.push(Chunk::BLANK);
            }
            chunks.push(chunk);
        }
        let empty = Ends {
            head: NONE,
            tail: NONE,
            len: 0,
        };
        Ok(Self {
            first,
            pages,
            chunks,
            ends: [empty; List::ALL.len()],
            isolated: [0; Kind::ALL.len()],
            stamp: 0,
            balance: Balance::default(),
        })
    }

    /// Adds to `list` a page that was just put to use, unless it was removed before this addition.
    /// If the chunk with the page's record does not exist and the global allocator has no memory
    /// for it, the page is not aged.
    pub(crate) fn add(&mut self, pfn: Pfn, list: List) {
        let Some(page) = self.prepared(pfn) else {
            return;
        };
        debug_assert_eq!(
            self.place(page),
            Place::Nowhere,
            "a page is added once for each use"
        );
        let early = &mut self.links(page).next;
        if *early > 0 {
            *early -= 1;
        } else {
            self.push(page, list, Past::NEW);
        }
    }

    /// Removes a page that the caller is about to free, whether the page is on a list, isolated or
    /// on no list. If the page has not been added yet, its addition will have no effect.
    pub(crate) fn remove(&mut self, pfn: Pfn) {
        let Some(page) = self.prepared(pfn) else {
            return;
        };
        match self.place(page) {
            Place::Nowhere => {
                self.links(page).next += 1;
                return;
            }
            Place::On(list) => self.unlink(page, list),
            Place::Isolated(kind) => self.isolated[kind as usize] -= 1,
        }
        self.leave(page);
    }

    /// Isolates up to `max` pages, from the tail of `list`.
    pub(crate) fn isolate(&mut self, list: List, max: usize) -> Run {
        self.stamp = self.stamp.wrapping_add(1);
        let stamp = self.stamp;
        let blank = Taken {
            pfn: Pfn(0),
            stamp,
            from: list,
            past: Past::NEW,
        };
        let mut run = Run {
            taken: [blank; ISOLATED_MAX],
            len: 0,
            age: self.balance.age,
        };
        while run.len < max.min(ISOLATED_MAX) && self.ends[list as usize].tail != NONE {
            let page = self.ends[list as usize].tail;
            let past = self.state(page).past();
            self.unlink(page, list);
            *self.state(page) = State::new(Place::Isolated(list.kind()), past);
            self.links(page).next = stamp;
            self.isolated[list.kind() as usize] += 1;
            run.taken[run.len] = Taken {
                pfn: Pfn(self.first.0 + page),
                stamp,
                from: list,
                past,
            };
            run.len += 1;
        }
        run
    }

    /// Ends the isolation of a page. A page that stays is put on its list, unless another CPU has
    /// removed it while it was isolated.
    pub(crate) fn conclude(&mut self, taken: Taken, fate: Fate) {
        let Fate::Stays { list, referenced } = fate else {
            self.remove(taken.pfn);
            return;
        };
        let Some(page) = self.number(taken.pfn) else {
            return;
        };
        let Place::Isolated(kind) = self.place(page) else {
            return;
        };
        if self.links(page).next == taken.stamp {
            self.isolated[kind as usize] -= 1;
            let was_active = taken.past.was_active || taken.from.is_active();
            let past = Past {
                referenced,
                was_active,
            };
            self.push(page, list, past);
        }
    }

    /// Returns the number of pages of `list`.
    pub(crate) fn len(&self, list: List) -> u32 {
        self.ends[list as usize].len
    }

    /// Returns how many pages of `kind` are isolated (off their list while reclaim looks at them).
    pub(crate) fn isolated(&self, kind: Kind) -> u32 {
        self.isolated[kind as usize]
    }

    /// Returns the number of pages that were added and not removed, minus the number of pages that
    /// were removed before they were added.
    pub(crate) fn total(&self) -> i64 {
        let listed: i64 = self.ends.iter().map(|ends| i64::from(ends.len)).sum();
        let early_in = |chunk: &Chunk| -> i64 {
            let records = chunk.links.iter().zip(&chunk.states);
            let nowhere = records.filter(|(_, state)| state.place() == Place::Nowhere);
            nowhere.map(|(links, _)| i64::from(links.next)).sum()
        };
        let early: i64 = self.chunks.iter().flatten().map(early_in).sum();
        let isolated: i64 = self.isolated.into_iter().map(i64::from).sum();
        listed + isolated - early
    }

    fn number(&self, pfn: Pfn) -> Option<u32> {
        let page = pfn.0.checked_sub(self.first.0)?;
        (page < self.pages).then_some(page)
    }

    /// Returns the index of a page within the node, and makes the chunk with the page's record if
    /// it does not exist yet. Returns `None` if the page is of another node, or if memory is too
    /// short for the chunk.
    fn prepared(&mut self, pfn: Pfn) -> Option<u32> {
        let page = self.number(pfn)?;
        let chunk = &mut self.chunks[(page / CHUNK) as usize];
        if chunk.is_empty() {
            chunk.try_reserve_exact(1).ok()?;
            chunk.push(Chunk::BLANK);
        }
        Some(page)
    }

    /// Returns the chunk with the record of a page that was [prepared](Lists::prepared).
    fn chunk(&mut self, page: u32) -> &mut Chunk {
        &mut self.chunks[(page / CHUNK) as usize][0]
    }

    fn links(&mut self, page: u32) -> &mut Links {
        &mut self.chunk(page).links[(page % CHUNK) as usize]
    }

    fn state(&mut self, page: u32) -> &mut State {
        &mut self.chunk(page).states[(page % CHUNK) as usize]
    }

    fn place(&mut self, page: u32) -> Place {
        self.state(page).place()
    }

    fn leave(&mut self, page: u32) {
        *self.state(page) = State::new(Place::Nowhere, Past::NEW);
        *self.links(page) = Links { prev: 0, next: 0 };
    }

    fn push(&mut self, page: u32, list: List, past: Past) {
        let ends = &mut self.ends[list as usize];
        let next = ends.head;
        ends.head = page;
        ends.len += 1;
        match next {
            NONE => ends.tail = page,
            next => self.links(next).prev = page,
        }
        *self.links(page) = Links { prev: NONE, next };
        *self.state(page) = State::new(Place::On(list), past);
    }

    fn unlink(&mut self, page: u32, list: List) {
        let Links { prev, next } = *self.links(page);
        match prev {
            NONE => self.ends[list as usize].head = next,
            prev => self.links(prev).next = next,
        }
        match next {
            NONE => self.ends[list as usize].tail = prev,
            next => self.links(next).prev = prev,
        }
        self.ends[list as usize].len -= 1;
    }
}

#[cfg(test)]
mod tests;
