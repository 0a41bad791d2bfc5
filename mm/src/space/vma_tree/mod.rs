//! The mappings of an address space, in order (Linux: the maple tree of `mm_struct`).
//!
//! A B+ tree of nodes of eight cache lines (`node`). Writers come one at a time: whoever has the
//! [`Editor`], which belongs under the lock of the mappings, may change the tree (`edit`, and `split`
//! where nodes come and go) and look for free space (`gap`), which is kept in the nodes (`mend`).
//! Readers need no lock: they read, then ask whether the tree has changed meanwhile, and if so read
//! again. A cursor (`cursor`) holds an address, not a place, so it goes on whatever is removed around it.
//!
//! `machines/host/examples/mappings.rs` shows all of it in use.
//!
//! Locks: none.

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

/// How often a reader tries again before it gives up.
const TRIES: u32 = 16;

/// One mapping: pages from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vma {
    /// Its first page.
    pub start: Vpn,
    /// The first page behind it.
    pub end: Vpn,
    /// What the owner of the tree knows it by, at most [`Vma::ID_MAX`].
    pub id: u32,
}

impl Vma {
    /// The largest id.
    pub const ID_MAX: u32 = (1 << ID_BITS) - 1;
    /// The longest mapping, in pages: 4 PiB.
    pub const LEN_MAX: u64 = (1 << (64 - ID_BITS)) - 1;
    /// The highest address, in pages, that a mapping may end at.
    pub const END_MAX: Vpn = Vpn(1 << 52);

    /// How many pages it has.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether `page` is in it.
    #[inline]
    #[must_use]
    pub const fn contains(&self, page: Vpn) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }
}

/// See the module.
pub struct VmaTree<M: Machine> {
    /// Odd while somebody changes the tree.
    version: M::Field,
    /// The root's number, and above it the number of levels below.
    root: M::Field,
    nodes: Nodes<M>,
}

/// The largest page number that is looked for: beyond all mappings, below what an unused key holds.
const PAGE_MAX: u64 = Vma::END_MAX.0;

impl<M: Machine> VmaTree<M> {
    /// No mapping, and the right to add some.
    ///
    /// # Errors
    /// [`NoMemory`].
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

    /// The mapping that `page` is in.
    ///
    /// # Errors
    /// [`Busy`].
    #[inline]
    pub fn find(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        Ok(self.prev(page)?.filter(|vma| vma.contains(page)))
    }

    /// The first mapping that ends above `page` (Linux: `find_vma`).
    ///
    /// # Errors
    /// [`Busy`].
    #[inline]
    pub fn next(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| Some(self.look_up(page)?.map(|place| place.vma)))
    }

    /// The last mapping that begins at or below `page`.
    ///
    /// # Errors
    /// [`Busy`].
    #[inline]
    pub fn prev(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| Some(self.look_down(page)?.map(|place| place.vma)))
    }

    /// Changes whenever the tree does: what was read from it is still true while this is the same.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Bytes of memory of all nodes that are in use.
    #[must_use]
    pub fn bytes(&self, editor: &Editor) -> usize {
        editor.nodes() as usize * size_of::<Node<M>>()
    }

    /// Runs `look` until the tree has not changed meanwhile. `look` gives up with `None` where
    /// it meets what can only be a change under way.
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
        // What was read last is ordered before this: fields are read with acquire. Whoever read
        // something of a change finds that change's version here, or a later one.
        seen.filter(|_| self.version.get() == version)
    }

    /// The last mapping that begins at or below `page`.
    #[inline]
    fn look_down(&self, page: Vpn) -> Option<Option<Place<'_, M>>> {
        let page = page.0.min(PAGE_MAX);
        let leaf = self.leaf(page)?;
        match leaf.rank(page) {
            0 => self.last_of(leaf.links().0),
            rank => Some(Some(Place::of(leaf, rank - 1))),
        }
    }

    /// The first mapping that ends above `page`.
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

    /// The leaf responsible for `page`.
    #[inline]
    fn leaf(&self, page: u64) -> Option<&Node<M>> {
        let (id, levels) = self.top();
        let mut node = self.nodes.get(id)?;
        for _ in 0..levels {
            node = self.nodes.get(node.child(node.route(page)).0)?;
        }
        Some(node)
    }

    /// The last entry of leaf `id`, if there is such a leaf.
    #[cold]
    fn last_of(&self, id: u32) -> Option<Option<Place<'_, M>>> {
        if id == NONE {
            return Some(None);
        }
        let leaf = self.nodes.get(id)?;
        Some(Some(Place::of(leaf, leaf.count().checked_sub(1)?)))
    }

    /// The first entry of leaf `id`, if there is such a leaf.
    fn first_of(&self, id: u32) -> Option<Option<Place<'_, M>>> {
        if id == NONE {
            return Some(None);
        }
        Some(Some(Place::of(self.nodes.get(id)?, 0)))
    }

    /// A node that is known to exist.
    #[inline]
    fn node(&self, id: u32) -> &Node<M> {
        self.nodes
            .get(id)
            .expect("the editor follows links to nodes in use only")
    }

    /// The root's number and how many levels are below it.
    #[inline]
    fn top(&self) -> (u32, usize) {
        let root = self.root.get();
        ((root & 0xffff_ffff) as u32, (root >> 32) as usize)
    }
}

/// A mapping and where it was found.
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
