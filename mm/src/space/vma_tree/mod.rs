//! The mappings of an address space, in order (Linux: the maple tree of `mm_struct`).
//!
//! A B+ tree of nodes of four cache lines ([`node`]). Writers come one at a time: whoever has the
//! [`Editor`], which belongs under the lock of the mappings, may change the tree (`edit`) and look for
//! free space (`gap`), which is kept in the nodes. Readers need no lock: they read, then ask whether the tree has
//! changed meanwhile, and if so read again. A cursor (`cursor`) holds an address, not a place, so it
//! goes on whatever is removed around it.
//!
//! Locks: none.

mod cursor;
mod edit;
mod gap;
mod node;

use core::fmt;
use core::hint;

pub use self::cursor::Cursor;
pub use self::edit::Editor;
use self::node::{ID_BITS, LEAF_MAX, NO_KEY, NONE, Node, Nodes};
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
    #[must_use]
    pub const fn contains(&self, page: Vpn) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }
}

/// See the module.
pub struct VmaTree<M: Machine> {
    nodes: Nodes<M>,
    /// Odd while somebody changes the tree.
    version: M::Field,
    /// The root's number, and above it the number of levels below.
    root: M::Field,
}

/// A reader met changes every time it tried; take the lock of the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// There is no memory for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Why a mapping cannot be added or changed. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmaError {
    /// It has no pages, too many, ends too high, or its id is too large.
    Invalid(Vma),
    /// This one is in the way.
    Overlaps(Vma),
    /// No mapping begins there.
    NotMapped(Vpn),
    /// There is no memory for a node.
    NoMemory,
}

impl<M: Machine> VmaTree<M> {
    /// No mapping, and the right to add some.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(machine: &M) -> Result<(Self, Editor), NoMemory> {
        let nodes = Nodes::new(machine);
        nodes.make(machine, 0)?;
        let tree = Self {
            nodes,
            version: machine.field(0),
            root: machine.field(0),
        };
        tree.node(0).set_links(NONE, NONE);
        Ok((tree, Editor::new()))
    }

    /// The mapping that `page` is in.
    ///
    /// # Errors
    /// [`Busy`].
    #[inline]
    pub fn find(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| Some(self.look_down(page)?.filter(|vma| vma.contains(page))))
    }

    /// The first mapping that ends above `page` (Linux: `find_vma`).
    ///
    /// # Errors
    /// [`Busy`].
    #[inline]
    pub fn next(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| self.look_up(page))
    }

    /// The last mapping that begins at or below `page`.
    ///
    /// # Errors
    /// [`Busy`].
    #[inline]
    pub fn prev(&self, page: Vpn) -> Result<Option<Vma>, Busy> {
        self.read(|| self.look_down(page))
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
        for _ in 0..TRIES {
            let before = self.version.get();
            if before & 1 == 0
                && let Some(seen) = look()
                && self.version.get() == before
            {
                return Ok(seen);
            }
            hint::spin_loop();
        }
        Err(Busy)
    }

    /// The leaf responsible for `page`.
    #[inline]
    fn leaf(&self, page: u64) -> Option<&Node<M>> {
        let root = self.root.get();
        let (levels, mut id) = (root >> 32, (root & 0xffff_ffff) as u32);
        for _ in 0..levels {
            let node = self.nodes.get(id)?;
            id = node.child(node.route(page));
        }
        self.nodes.get(id)
    }

    /// The last mapping that begins at or below `page`.
    #[inline]
    fn look_down(&self, page: Vpn) -> Option<Option<Vma>> {
        let leaf = self.leaf(page.0)?;
        match leaf.rank(page.0.min(NO_KEY - 1)) {
            0 => self.last_of(leaf.links().0),
            rank => Some(Some(vma(leaf.entry(rank - 1)))),
        }
    }

    /// The first mapping that ends above `page`.
    #[inline]
    fn look_up(&self, page: Vpn) -> Option<Option<Vma>> {
        let leaf = self.leaf(page.0)?;
        let rank = leaf.rank(page.0.min(NO_KEY - 1));
        let below = if rank == 0 {
            self.last_of(leaf.links().0)?
        } else {
            Some(vma(leaf.entry(rank - 1)))
        };
        if let Some(below) = below.filter(|below| below.end > page) {
            return Some(Some(below));
        }
        if rank < LEAF_MAX && leaf.key(rank) != NO_KEY {
            return Some(Some(vma(leaf.entry(rank))));
        }
        match leaf.links().1 {
            NONE => Some(None),
            after => Some(Some(vma(self.nodes.get(after)?.entry(0)))),
        }
    }

    /// The last entry of leaf `id`, if there is such a leaf.
    #[inline]
    fn last_of(&self, id: u32) -> Option<Option<Vma>> {
        if id == NONE {
            return Some(None);
        }
        let leaf = self.nodes.get(id)?;
        let last = leaf.count().checked_sub(1)?;
        Some(Some(vma(leaf.entry(last))))
    }

    /// A node that is known to exist.
    #[inline]
    fn node(&self, id: u32) -> &Node<M> {
        self.nodes
            .get(id)
            .expect("the editor follows links to nodes in use only")
    }

    /// The root's number and how many levels are below it.
    fn top(&self) -> (u32, usize) {
        let root = self.root.get();
        ((root & 0xffff_ffff) as u32, (root >> 32) as usize)
    }
}

fn vma((start, end, id): (u64, u64, u32)) -> Vma {
    Vma {
        start: Vpn(start),
        end: Vpn(end),
        id,
    }
}

impl<M: Machine> fmt::Debug for VmaTree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmaTree")
            .field("levels", &self.top().1)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for VmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(Vma { start, end, id }) => {
                write!(f, "pages {start} to {end} with id {id} are no mapping")
            }
            Self::Overlaps(Vma { start, end, .. }) => {
                write!(f, "pages {start} to {end} are mapped already")
            }
            Self::NotMapped(page) => write!(f, "no mapping begins at page {page}"),
            Self::NoMemory => f.write_str("no memory for the tree of mappings"),
        }
    }
}

impl core::error::Error for VmaError {}

impl From<NoMemory> for VmaError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}
