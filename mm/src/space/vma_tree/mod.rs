//! The mappings of an address space, in order (Linux: the maple tree of `mm_struct`).
//!
//! The mappings are in a B+ tree, whose nodes take eight cache lines each (`node`). There is one
//! writer at a time, which holds the [`Editor`]. The lock of the mappings should guard the editor.
//! The writer may change the tree (`edit`, and `split` for adding and removing nodes). The writer
//! may also search for free space (`gap`), whose sizes the nodes record (`mend`). Readers need no
//! lock. A reader reads, then checks whether the tree has changed since it began, and if so reads
//! again. A cursor (`cursor`) holds a page number rather than a place in the tree, so the cursor
//! stays valid when mappings are removed.
//!
//! `machines/host/examples/mappings.rs` shows all of this in use.
//!
//! The tree itself has no lock.

mod cursor;
mod edit;
mod error;
mod gap;
mod mend;
mod node;
mod nodes;
mod path;
mod split;
mod whole;

use core::fmt;
use core::hint;

pub use self::cursor::{Cursor, Finder};
pub use self::edit::Editor;
pub use self::error::{Busy, NoMemory, VmaError};
use self::node::{ID_BITS, NONE, Node};
use self::nodes::Nodes;
use crate::machine::{Field, Machine};
use crate::units::Vpn;

/// The largest number of times that a reader tries to read the tree. A try fails if the tree
/// changes during the read.
const TRIES: u32 = 16;

/// One mapping: the pages from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vma {
    /// The first page of the mapping.
    pub start: Vpn,
    /// The first page after the mapping.
    pub end: Vpn,
    /// The id that the owner of the tree gave the mapping, at most [`Vma::ID_MAX`].
    pub id: u32,
}

impl Vma {
    /// The largest id that a mapping can have.
    pub const ID_MAX: u32 = (1 << ID_BITS) - 1;
    /// The length of the longest possible mapping, in pages: 4 PiB.
    pub const LEN_MAX: u64 = (1 << (64 - ID_BITS)) - 1;
    /// The highest page number at which a mapping may end.
    pub const END_MAX: Vpn = Vpn(1 << 52);

    /// Returns the number of pages in the mapping.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Returns whether `page` is in the mapping.
    #[inline]
    #[must_use]
    pub const fn contains(&self, page: Vpn) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }
}

/// The mappings of an address space, in order. Readers need no lock.
pub struct VmaTree<M: Machine> {
    /// The version of the tree. It is odd while the tree is being changed.
    version: M::Field,
    /// The low 32 bits are the id of the root node. The bits above are the number of levels below
    /// the root.
    root: M::Field,
    nodes: Nodes<M>,
}

/// The largest page number that a search uses. It is above all mappings, and less than the value of
/// an unused key.
const PAGE_MAX: u64 = Vma::END_MAX.0;

impl<M: Machine> VmaTree<M> {
    /// Makes a tree without mappings, and the editor that changes it.
    ///
    /// # Errors
    /// [`NoMemory`] if there is not enough memory for the first node.
    pub fn new(machine: &M) -> Result<(Self, Editor), NoMemory> {
        let nodes = Nodes::new(machine);
        let root = nodes.make(machine, 0)?;
        let tree = Self {
            version: machine.field(0),
            root: machine.field(u64::from(root)),
            nodes,
        };
        tree.node(root).set_links(NONE, NONE);
        Ok((tree, Editor::new()))
    }

    /// Returns the mapping that contains `page`.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try.
    #[inline]
    pub fn find(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        Ok(self.prev(page)?.filter(|vma| vma.contains(page)))
    }

    /// Returns the first mapping that ends above `page` (Linux: `find_vma`).
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try.
    #[inline]
    pub fn next(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| Some(self.look_up(page)?.map(|place| place.vma)))
    }

    /// Returns the last mapping that begins at or below `page`.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try.
    #[inline]
    pub fn prev(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| Some(self.look_down(page)?.map(|place| place.vma)))
    }

    /// Returns the version of the tree, which changes with every change of the tree. Anything read
    /// from the tree remains valid while the version is the same.
    #[inline]
    #[must_use]
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Returns the memory of all nodes in use, in bytes.
    #[must_use]
    pub fn bytes(&self, editor: &Editor) -> usize {
        editor.nodes() as usize * size_of::<Node<M>>()
    }

    /// Runs `look` again and again until the tree does not change during a run, at most [`TRIES`]
    /// times. `look` returns `None` if it finds a state that only a change under way can explain.
    #[inline]
    fn read<R>(&self, look: impl Fn() -> Option<R>) -> Result<R, Busy> {
        match self.try_read(&look) {
            Some(seen) => Ok(seen),
            None => self.read_slow(look),
        }
    }

    #[cold]
    fn read_slow<R>(&self, look: impl Fn() -> Option<R>) -> Result<R, Busy> {
        for _ in 1..TRIES {
            hint::spin_loop();
            if let Some(seen) = self.try_read(&look) {
                return Ok(seen);
            }
        }
        Err(Busy)
    }

    #[inline]
    fn try_read<R>(&self, look: impl Fn() -> Option<R>) -> Option<R> {
        let version = self.version.get();
        let seen = if version & 1 == 0 { look() } else { None };
        // Fields are read with Acquire ordering, so the reads of `look` come before this read of
        // the version. A reader that has read a part of a change finds the version of that change
        // here, or a later version.
        seen.filter(|_| self.version.get() == version)
    }

    /// Returns the last mapping that begins at or below `page`, together with its leaf and its
    /// slot.
    #[inline]
    fn look_down(&self, page: Vpn) -> Option<Option<Place<'_, M>>> {
        let page = page.0.min(PAGE_MAX);
        let leaf = self.leaf(page)?;
        match leaf.rank(page) {
            0 => self.last_of(leaf.links().0),
            rank => Some(Some(Place::of(leaf, rank - 1))),
        }
    }

    /// Returns the first mapping that ends above `page`, together with its leaf and its slot.
    #[inline]
    fn look_up(&self, page: Vpn) -> Option<Option<Place<'_, M>>> {
        let page = page.0.min(PAGE_MAX);
        let leaf = self.leaf(page)?;
        let rank = leaf.rank(page);
        let below = if rank == 0 {
            self.last_of(leaf.links().0)?
        } else {
            Some(Place::of(leaf, rank - 1))
        };
        if let Some(below) = below
            && below.vma.end.0 > page
        {
            return Some(Some(below));
        }
        if leaf.is_used(rank) {
            return Some(Some(Place::of(leaf, rank)));
        }
        self.first_of(leaf.links().1)
    }

    /// Returns the leaf responsible for `page`.
    #[inline]
    fn leaf(&self, page: u64) -> Option<&Node<M>> {
        let (id, levels) = self.top();
        let mut node = self.nodes.get(id)?;
        for _ in 0..levels {
            node = self.nodes.get(node.child(node.route(page)).0)?;
        }
        Some(node)
    }

    /// Returns the last entry of leaf `id`, or `Some(None)` if `id` is [`NONE`], which stands for
    /// no leaf.
    #[cold]
    fn last_of(&self, id: u32) -> Option<Option<Place<'_, M>>> {
        if id == NONE {
            return Some(None);
        }
        let leaf = self.nodes.get(id)?;
        Some(Some(Place::of(leaf, leaf.count().checked_sub(1)?)))
    }

    /// Returns the first entry of leaf `id`, or `Some(None)` if `id` is [`NONE`], which stands for
    /// no leaf.
    fn first_of(&self, id: u32) -> Option<Option<Place<'_, M>>> {
        if id == NONE {
            return Some(None);
        }
        Some(Some(Place::of(self.nodes.get(id)?, 0)))
    }

    /// Returns node `id`, which must exist.
    #[inline]
    fn node(&self, id: u32) -> &Node<M> {
        self.nodes
            .get(id)
            .expect("the editor follows links to nodes in use only")
    }

    /// Returns the id of the root node, and the number of levels below the root.
    #[inline]
    fn top(&self) -> (u32, usize) {
        let root = self.root.get();
        ((root & 0xffff_ffff) as u32, (root >> 32) as usize)
    }
}

/// A mapping, with the leaf and slot in which it was found.
struct Place<'t, M: Machine> {
    vma: Vma,
    leaf: &'t Node<M>,
    slot: usize,
}

impl<'t, M: Machine> Place<'t, M> {
    #[inline]
    fn of(leaf: &'t Node<M>, slot: usize) -> Self {
        Self {
            vma: leaf.vma(slot),
            leaf,
            slot,
        }
    }
}

impl<M: Machine> fmt::Debug for VmaTree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmaTree")
            .field("levels", &self.top().1)
            .finish_non_exhaustive()
    }
}
