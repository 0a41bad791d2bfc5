//! The lists by which the used pages of all nodes are aged, with a lock for each node and a batch
//! for each CPU.
//!
//! ```text
//! add ──> this CPU's batch ──(31)──> inactive <──> active
//!                                        └──> isolate ──> conclude: put back, or leave
//! ```
//!
//! The *owner* of an anonymous page is the place where the page is mapped. The CPU that maps the
//! page writes the owner under the lock of the page table, so no two CPUs write it at once. The
//! owner of a page of a file is the page's place in the file, which is written before the page is
//! in the file's index. CPUs read an owner without a lock, so the owner may be outdated. A CPU that
//! unmaps a page therefore first checks, under the lock of the page table, that the page is still
//! mapped where its owner says.
//!
//! Locks: `LruBatch` or `Lru`. A CPU that holds one of these locks takes no other lock. A CPU takes
//! the pages out of its batch before it takes the lock of their node.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::balance::{Balance, Shadow};
use super::kind::{Kind, List};
use super::lists::{CHUNK, Fate, ISOLATED_MAX, Lists, Run, Taken};
use super::shares::{Share, Shares};
use crate::machine::{CpuLock, Field, Lock, Machine, Once};
use crate::page::{Metadata, PageAllocator};
use crate::site::{LockClass, Site, Work};
use crate::space::error::NoMemory;
use crate::space::rmap::Owner;
use crate::units::{CpuId, NodeId, Pfn, count_of};

/// The number of pages in a full batch of a CPU (Linux: `PAGEVEC_SIZE`).
const BATCH: usize = 31;

/// For every NUMA node, the LRU lists by which its used pages are aged.
pub(crate) struct Aged<M: Machine> {
    nodes: Box<[Node<M>]>,
    batches: Box<[M::CpuLock<Batch>]>,
}

/// The owners (records of where pages are mapped) of a chunk, which is 1024 consecutive pages of a
/// node.
type Owners<M> = Box<[<M as Machine>::Field]>;

/// The LRU lists of one NUMA node.
struct Node<M: Machine> {
    lists: M::Lock<Lists>,
    /// The first frame of the node.
    first: Pfn,
    /// For each frame of the node, the packed owner of its page, which says where the page is
    /// mapped. The owner is 0 if the page cannot be reclaimed. The fields are allocated in chunks
    /// of 1024.
    owners: Box<[M::Once<Owners<M>>]>,
    pages: u32,
    /// Copies of the lengths of the LRU lists, to be read without the lock.
    lengths: [M::Field; List::ALL.len()],
    /// For each kind of pages, a copy of the number of isolated pages (those taken off their list
    /// while reclaim looks at them), to be read without the lock.
    isolated: [M::Field; Kind::ALL.len()],
    shares: Shares<M>,
}

/// Used pages that a CPU has not yet put on an LRU list.
#[derive(Clone, Copy)]
struct Batch {
    pfns: [Pfn; BATCH],
    len: usize,
}

impl Batch {
    const EMPTY: Self = Self {
        pfns: [Pfn(0); BATCH],
        len: 0,
    };

    fn get(&self) -> &[Pfn] {
        &self.pfns[..self.len]
    }
}

impl<M: Machine> Aged<M> {
    /// Makes empty LRU lists for the memory of `pages`: one set of lists for each NUMA node, even
    /// for a node without CPUs.
    pub(crate) fn new(machine: &M, pages: &PageAllocator<M>) -> Result<Self, NoMemory> {
        let topology = machine.topology();
        let mut nodes = Vec::new();
        for node in (0..pages.nodes()).map(NodeId) {
            let frames = pages.frames_of(node);
            nodes.push(Node::new(machine, node, frames, pages.metadata())?);
        }
        let batch = |cpu| machine.cpu_lock(LockClass::LruBatch, cpu, Batch::EMPTY);
        Ok(Self {
            nodes: nodes.into(),
            batches: topology.ids().map(batch).collect(),
        })
    }

    /// Adds a page to this CPU's batch. When the batch is full, puts its pages on the LRU lists.
    pub(crate) fn add(&self, machine: &M, pages: &PageAllocator<M>, pfn: Pfn) {
        let full = self.batches[machine.this_cpu().index()].with(machine, Site::LruAdd, |batch| {
            batch.pfns[batch.len] = pfn;
            batch.len += 1;
            (batch.len == BATCH).then(|| core::mem::replace(batch, Batch::EMPTY))
        });
        if let Some(full) = full {
            self.hand_in(machine, pages, &full);
        }
    }

    /// Puts the pages of this CPU's batch on the LRU lists (Linux: `lru_add_drain`).
    pub(crate) fn drain(&self, machine: &M, pages: &PageAllocator<M>) {
        let batch = &self.batches[machine.this_cpu().index()];
        let batch = batch.with(machine, Site::LruAdd, |batch| {
            core::mem::replace(batch, Batch::EMPTY)
        });
        self.hand_in(machine, pages, &batch);
    }

    fn hand_in(&self, machine: &M, pages: &PageAllocator<M>, batch: &Batch) {
        self.each_run(pages, batch.get(), |node, run| {
            node.with(machine, Site::LruAdd, |lists| {
                machine.spend(Work::LruMove, count_of(run.len()));
                for &pfn in run {
                    lists.add(pfn, start_of(node.owner(pfn)));
                }
            });
        });
    }

    /// Removes from the LRU lists pages that are about to be freed. Takes the lock of a node once
    /// for up to 31 pages of that node.
    pub(crate) fn remove(&self, machine: &M, pages: &PageAllocator<M>, pfns: &[Pfn]) {
        self.each_run(pages, pfns, |node, run| {
            node.with(machine, Site::LruRemove, |lists| {
                machine.spend(Work::LruRemove, count_of(run.len()));
                run.iter().for_each(|&pfn| lists.remove(pfn));
            });
        });
    }

    /// Divides `pfns` into runs of up to 31 pages that are on the LRU lists of the same NUMA node,
    /// and calls `f` for each run. Skips frames that are in no zone.
    fn each_run(
        &self,
        pages: &PageAllocator<M>,
        pfns: &[Pfn],
        mut f: impl FnMut(&Node<M>, &[Pfn]),
    ) {
        let place = |pfn: &Pfn| pages.node_of(*pfn).map(|node| self.place(node));
        for run in pfns.chunk_by(|one, next| place(one) == place(next)) {
            let Some(place) = place(&run[0]) else {
                continue;
            };
            run.chunks(BATCH).for_each(|run| f(&self.nodes[place], run));
        }
    }

    /// Records `owner` as the owner of `pfn`. The owner is the packed place where the page is
    /// mapped, or the page's place in a file. It is 0 if the page cannot be reclaimed. For an
    /// anonymous page, the caller holds the lock of the page table that maps the page.
    pub(crate) fn set_owner(&self, machine: &M, pages: &PageAllocator<M>, pfn: Pfn, owner: u64) {
        if let Some(node) = pages.node_of(pfn) {
            self.nodes[self.place(node)].set_owner(machine, pfn, owner);
        }
    }

    /// Returns the packed owner of `pfn`, a page that was isolated from `node`. The owner says
    /// where the page is mapped, or where it is in a file, and may be outdated.
    pub(crate) fn owner(&self, node: NodeId, pfn: Pfn) -> u64 {
        self.nodes[self.place(node)].owner(pfn)
    }

    /// Isolates up to `max` pages from the tail of a list. Takes the node's lock once (Linux:
    /// `isolate_lru_folios`).
    pub(crate) fn isolate(&self, machine: &M, node: NodeId, list: List, max: u32) -> Run {
        let node = &self.nodes[self.place(node)];
        node.with(machine, Site::LruIsolate, |lists| {
            let run = lists.isolate(list, (max as usize).min(ISOLATED_MAX));
            machine.spend(Work::LruMove, count_of(run.get().len()));
            run
        })
    }

    /// Ends the isolation of `pages`: puts them back on LRU lists, except those that the caller is
    /// going to free. Takes the node's lock once (Linux: `move_folios_to_lru`).
    pub(crate) fn conclude(&self, machine: &M, node: NodeId, pages: &[(Taken, Fate)]) {
        let node = &self.nodes[self.place(node)];
        node.with(machine, Site::LruPutBack, |lists| {
            machine.spend(Work::LruMove, count_of(pages.len()));
            for &(taken, fate) in pages {
                if !taken.from.is_active() {
                    // The age of the node grows by one for each page that leaves memory, and for
                    // each page that becomes active. The age tells how long a page has been out of
                    // memory.
                    let ages = match fate {
                        Fate::Leaves => true,
                        Fate::Stays { list, .. } => list.is_active(),
                    };
                    lists.balance.age += u64::from(ages);
                }
                lists.conclude(taken, fate);
            }
        });
    }

    /// Adds to the recent cost of this `kind` of pages the cost of reclaiming from one batch of
    /// pages. `batch` has the numbers of pages scanned, written and freed: see
    /// [`Balance::note_batch`] (Linux: `lru_note_cost`).
    pub(crate) fn note_cost(&self, machine: &M, node: NodeId, kind: Kind, batch: (u64, u64, u64)) {
        let node = &self.nodes[self.place(node)];
        node.with(machine, Site::LruPutBack, |lists| {
            let pages = reclaimable(lists);
            lists.balance.note_batch(kind, batch, pages);
        });
    }

    /// Returns the [`Balance`] of `node`, by which reclaim chooses between the kinds of pages.
    pub(crate) fn balance(&self, machine: &M, node: NodeId) -> Balance {
        let node = &self.nodes[self.place(node)];
        node.with(machine, Site::LruIsolate, |lists| lists.balance)
    }

    /// Records that a run of reclaim on `node` has ended.
    pub(crate) fn note_end(&self, machine: &M, node: NodeId) {
        let node = &self.nodes[self.place(node)];
        node.with(machine, Site::LruPutBack, |lists| lists.balance.note_end());
    }

    /// Records that a page of a file is back in memory after it had left (Linux:
    /// `workingset_refault`). Returns whether the page begins on the active list. `swaps` is true
    /// if anonymous pages can be reclaimed.
    pub(crate) fn refault(&self, machine: &M, shadow: Shadow, swaps: bool) -> bool {
        let node = &self.nodes[self.place(NodeId(shadow.node))];
        node.with(machine, Site::LruAdd, |lists| {
            let anon = u64::from(lists.len(List::Inactive)) + u64::from(lists.len(List::Active));
            let file = u64::from(lists.len(List::ActiveFile));
            let working = file + if swaps { anon } else { 0 };
            let pages = reclaimable(lists);
            lists.balance.refault(shadow, working, pages)
        })
    }

    /// Makes the record of the uses of `pfn`, a page of a file, if this record does not exist yet.
    /// The caller must hold no lock, because this method may call the global allocator.
    pub(crate) fn prepare(
        &self,
        machine: &M,
        pages: &PageAllocator<M>,
        pfn: Pfn,
    ) -> Result<(), NoMemory> {
        let Some(node) = pages.node_of(pfn) else {
            return Ok(());
        };
        let node = &self.nodes[self.place(node)];
        node.shares
            .prepare(machine, pfn.0.wrapping_sub(node.first.0), node.pages)
    }

    /// Returns the record of the uses of `pfn` (its share), if this is or was a page of a file
    /// whose pages may be reclaimed.
    pub(crate) fn share(&self, pages: &PageAllocator<M>, pfn: Pfn) -> Option<&Share<M>> {
        let node = &self.nodes[self.place(pages.node_of(pfn)?)];
        node.shares.get(pfn.0.wrapping_sub(node.first.0))
    }

    /// Returns the packed owner of `pfn`, which says where the page is mapped, or where it is in a
    /// file. The owner may be outdated.
    pub(crate) fn owner_of(&self, pages: &PageAllocator<M>, pfn: Pfn) -> u64 {
        let node = pages.node_of(pfn);
        node.map_or(0, |node| self.nodes[self.place(node)].owner(pfn))
    }

    /// Returns the index of the node whose LRU lists hold the pages of `node`.
    pub(crate) fn number_of(&self, node: NodeId) -> u32 {
        count_of(self.place(node))
    }

    /// Returns the number of pages on a list of `node`. The number may be outdated.
    pub(crate) fn len(&self, node: NodeId, list: List) -> u64 {
        self.nodes[self.place(node)].lengths[list as usize].get()
    }

    /// Returns the number of isolated pages of `node` that have this kind. The number may be
    /// outdated.
    pub(crate) fn isolated(&self, node: NodeId, kind: Kind) -> u64 {
        self.nodes[self.place(node)].isolated[kind as usize].get()
    }

    /// Returns the number of used pages: those on LRU lists, those isolated by reclaim, and those
    /// in batches of CPUs. The number is exact when no call is under way.
    pub(crate) fn total(&self, machine: &M) -> i64 {
        let listed = |node: &Node<M>| node.with(machine, Site::Control, |lists| lists.total());
        let waiting =
            |batch: &M::CpuLock<Batch>| batch.with(machine, Site::Control, |batch| batch.len);
        let waiting: usize = self.batches.iter().map(waiting).sum();
        self.nodes.iter().map(listed).sum::<i64>() + i64::from(count_of(waiting))
    }

    fn place(&self, node: NodeId) -> usize {
        node.index().min(self.nodes.len() - 1)
    }
}

impl<M: Machine> Node<M> {
    fn new(
        machine: &M,
        node: NodeId,
        frames: Range<u32>,
        metadata: Metadata,
    ) -> Result<Self, NoMemory> {
        let topology = machine.topology();
        let near = |cpu: &CpuId| topology.place(*cpu).node == node;
        let home = topology.ids().find(near).unwrap_or(CpuId(0));
        let (first, pages) = (Pfn(frames.start), frames.end - frames.start);
        let mut owners = Vec::new();
        let chunks = pages.div_ceil(CHUNK);
        owners
            .try_reserve_exact(chunks as usize)
            .map_err(|_| NoMemory)?;
        for chunk in 0..chunks {
            owners.push(match metadata {
                Metadata::Eager => Once::of(owners_of(machine, pages, chunk)?),
                Metadata::WhenSplit => machine.once(),
            });
        }
        let lists = Lists::new(first, pages, metadata)?;
        Ok(Self {
            lists: machine.lock(LockClass::Lru, home, lists),
            first,
            owners: owners.into(),
            pages,
            lengths: core::array::from_fn(|_| machine.field(0)),
            isolated: core::array::from_fn(|_| machine.field(0)),
            shares: Shares::new(machine, pages)?,
        })
    }

    /// Runs `f` under the lock of the LRU lists, and then updates the copies of their lengths and
    /// of the numbers of isolated pages.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut Lists) -> R) -> R {
        self.lists.with(machine, site, |lists| {
            let result = f(lists);
            for list in List::ALL {
                self.lengths[list as usize].set(u64::from(lists.len(list)));
            }
            for kind in Kind::ALL {
                self.isolated[kind as usize].set(u64::from(lists.isolated(kind)));
            }
            result
        })
    }

    fn owner(&self, pfn: Pfn) -> u64 {
        let page = pfn.0.wrapping_sub(self.first.0);
        let chunk = self.owners.get((page / CHUNK) as usize);
        let field = chunk
            .and_then(Once::get)
            .and_then(|chunk| chunk.get((page % CHUNK) as usize));
        field.map_or(0, Field::get)
    }

    /// Sets the owner of a page. If the chunk for the owner does not exist yet, makes it. If memory
    /// is too short for the chunk, does nothing, so the page cannot be reclaimed. With
    /// [`Metadata::Eager`], all chunks exist from the start.
    fn set_owner(&self, machine: &M, pfn: Pfn, owner: u64) {
        let page = pfn.0.wrapping_sub(self.first.0);
        let Some(once) = self.owners.get((page / CHUNK) as usize) else {
            return;
        };
        if once.get().is_none()
            && let Ok(chunk) = owners_of(machine, self.pages, page / CHUNK)
        {
            // If another CPU has made the chunk first, use that CPU's chunk and drop this one.
            drop(once.set(chunk));
        }
        let field = once
            .get()
            .and_then(|chunk| chunk.get((page % CHUNK) as usize));
        if let Some(field) = field {
            field.set(owner);
        }
    }
}

/// Returns the LRU list on which a page begins. `owner` is the page's owner, packed into an
/// integer.
fn start_of(owner: u64) -> List {
    match Owner::unpack(owner).map(|owner| owner.file) {
        None => List::Unevictable,
        Some(None) => List::Inactive,
        Some(Some(file)) if file.begins_active => List::ActiveFile,
        Some(Some(_)) => List::InactiveFile,
    }
}

/// Returns the number of pages on the inactive and active LRU lists, whose pages can be reclaimed.
fn reclaimable(lists: &Lists) -> u64 {
    let kinds = Kind::ALL.into_iter();
    let of = |list| u64::from(lists.len(list));
    kinds
        .map(|kind| of(kind.inactive()) + of(kind.active()))
        .sum()
}

/// Makes the owners (records of where pages are mapped) for the pages of the chunk with the index
/// `chunk`, on a node of `pages` pages.
fn owners_of<M: Machine>(machine: &M, pages: u32, chunk: u32) -> Result<Owners<M>, NoMemory> {
    let len = (pages - chunk * CHUNK).min(CHUNK);
    let mut owners = Vec::new();
    owners
        .try_reserve_exact(len as usize)
        .map_err(|_| NoMemory)?;
    owners.extend((0..len).map(|_| machine.field(0)));
    Ok(owners.into())
}
