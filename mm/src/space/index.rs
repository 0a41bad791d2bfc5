//! The index of the pages of an object, which is a file or shared memory. This is a tree of fan-out
//! 64 that maps an index in the object to a page frame. The tree is only as high as its largest
//! index needs (Linux: an `xarray`).
//!
//! When a page of a file is reclaimed, a shadow stays in its place, which says when the page left.
//!
//! Nodes are allocated as [`Spares`] while no lock is held, and inserted under the object's lock.
//! So this code never allocates while other CPUs wait for that lock.

use alloc::vec::Vec;
use core::mem;

use super::error::NoMemory;
use super::lru::Shadow;
use crate::units::Pfn;

const FAN_BITS: u32 = 6;
const FAN: usize = 1 << FAN_BITS;
const FAN_MASK: u64 = FAN as u64 - 1;
/// The value that stands for an empty place of a last-level node. Any other value is either the
/// number of a frame plus one, or a shadow, which stands for a page that left memory. A shadow has
/// the bit [`Shadow::MARK`] set.
const NONE: u64 = 0;

/// The index of an object (a file or shared memory): for each page index, the frame of its page, or
/// the shadow of a dropped page.
#[derive(Debug, Default)]
pub(super) struct Index {
    root: Option<Node>,
    /// The number of low bits of an index, which select places in the nodes below the root.
    shift: u32,
    len: u64,
}

/// A node of the tree that maps page indexes to frames. It has 64 places: for child nodes, or for
/// frames and shadows of dropped pages.
#[derive(Debug)]
enum Node {
    Inner(Vec<Option<Self>>),
    Last(Vec<u64>),
}

/// Nodes allocated ahead of one insertion.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Node>);

/// The nodes that an insertion needs and the tree lacks: the number of inner nodes, and whether the
/// last-level node, which holds the frame, is missing too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    inner: u32,
    last: bool,
}

impl Spares {
    /// Allocates the `missing` nodes. The caller must hold no lock.
    pub(super) fn new(missing: Missing) -> Result<Self, NoMemory> {
        let mut nodes = Vec::new();
        let count = missing.inner as usize + usize::from(missing.last);
        nodes.try_reserve_exact(count).map_err(|_| NoMemory)?;
        if missing.last {
            let mut frames = Vec::new();
            frames.try_reserve_exact(FAN).map_err(|_| NoMemory)?;
            frames.resize(FAN, NONE);
            nodes.push(Node::Last(frames));
        }
        for _ in 0..missing.inner {
            let mut below = Vec::new();
            below.try_reserve_exact(FAN).map_err(|_| NoMemory)?;
            below.resize_with(FAN, || None);
            nodes.push(Node::Inner(below));
        }
        Ok(Self(nodes))
    }

    /// Returns whether there are enough spare nodes for `missing`.
    fn serve(&self, missing: Missing) -> bool {
        let last = matches!(self.0.first(), Some(Node::Last(_)));
        (last || !missing.last) && self.0.len() - usize::from(last) >= missing.inner as usize
    }

    /// Takes a spare node for the level that has `shift` index bits below it. If `shift` is 0,
    /// takes the spare last-level node, otherwise a spare inner node.
    fn take(&mut self, shift: u32) -> Node {
        let node = if shift == 0 {
            self.0.drain(..1).next()
        } else {
            self.0.pop()
        };
        node.expect("nodes were counted under the same lock")
    }
}

impl Index {
    /// Returns the number of frames in the index.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the frame at `index`, if there is one.
    pub(super) fn get(&self, index: u64) -> Option<Pfn> {
        frame_of(self.there(index))
    }

    /// Returns the shadow (the record of when the page left memory) of the page that was at `index`
    /// before it left memory.
    pub(super) fn shadow(&self, index: u64) -> Option<Shadow> {
        Shadow::decode(self.there(index))
    }

    /// Replaces the frame at `index` by `shadow`, the record of when the page left memory, if that
    /// frame is `frame`. Returns whether it was replaced.
    pub(super) fn leave(&mut self, index: u64, frame: Pfn, shadow: Shadow) -> bool {
        let Some(place) = self.place_of(index) else {
            return false;
        };
        if frame_of(*place) != Some(frame) {
            return false;
        }
        *place = shadow.encode();
        self.len -= 1;
        true
    }

    fn place_of(&mut self, index: u64) -> Option<&mut u64> {
        let mut shift = self.shift;
        let mut node = self.root.as_mut().filter(|_| reaches(shift, index))?;
        loop {
            match node {
                Node::Inner(below) => node = below[place(index, shift)].as_mut()?,
                Node::Last(frames) => return Some(&mut frames[place(index, 0)]),
            }
            shift -= FAN_BITS;
        }
    }

    /// Returns the encoded value at `index`: a frame, a shadow, or [`NONE`].
    fn there(&self, index: u64) -> u64 {
        let Some(mut node) = self.root.as_ref().filter(|_| reaches(self.shift, index)) else {
            return NONE;
        };
        let mut shift = self.shift;
        loop {
            match node {
                Node::Inner(below) => match &below[place(index, shift)] {
                    Some(next) => node = next,
                    None => return NONE,
                },
                Node::Last(frames) => {
                    return frames[place(index, 0)];
                }
            }
            shift -= FAN_BITS;
        }
    }

    /// Returns the nodes that the tree lacks for a frame at `index`.
    pub(super) fn missing(&self, index: u64) -> Missing {
        let Some(root) = &self.root else {
            return Missing {
                inner: height(index) / FAN_BITS,
                last: true,
            };
        };
        // If the tree has too few levels for `index`, nodes are missing in two places: above the
        // current root, and on the path from the new root down to `index`.
        let raised = height(index).saturating_sub(self.shift) / FAN_BITS;
        if raised > 0 {
            return Missing {
                inner: 2 * raised - 1 + self.shift / FAN_BITS,
                last: true,
            };
        }
        let (mut node, mut shift) = (root, self.shift);
        while let Node::Inner(below) = node {
            match &below[place(index, shift)] {
                Some(next) => node = next,
                None => {
                    return Missing {
                        inner: shift / FAN_BITS - 1,
                        last: true,
                    };
                }
            }
            shift -= FAN_BITS;
        }
        Missing {
            inner: 0,
            last: false,
        }
    }

    /// Puts `frame` at `index`, unless there is a frame already. Returns the frame now at `index`.
    ///
    /// If the insertion needs nodes that `spares` does not have, changes nothing, and the error
    /// says which nodes the insertion needs.
    pub(super) fn insert(
        &mut self,
        index: u64,
        frame: Pfn,
        spares: &mut Spares,
    ) -> Result<Pfn, Missing> {
        let missing = self.missing(index);
        if !spares.serve(missing) {
            return Err(missing);
        }
        self.raise(index, spares);
        let mut shift = self.shift;
        let mut node = self.root.get_or_insert_with(|| spares.take(shift));
        loop {
            match node {
                Node::Inner(below) => {
                    let place = &mut below[place(index, shift)];
                    shift -= FAN_BITS;
                    node = place.get_or_insert_with(|| spares.take(shift));
                }
                Node::Last(frames) => {
                    let there = &mut frames[place(index, 0)];
                    if let Some(earlier) = frame_of(*there) {
                        return Ok(earlier);
                    }
                    *there = u64::from(frame.0) + 1;
                    self.len += 1;
                    return Ok(frame);
                }
            }
        }
    }

    /// Makes the tree high enough for `index`.
    fn raise(&mut self, index: u64, spares: &mut Spares) {
        if self.root.is_none() {
            self.shift = height(index);
        }
        while !reaches(self.shift, index) {
            self.shift += FAN_BITS;
            let mut node = spares.take(self.shift);
            if let Node::Inner(below) = &mut node {
                below[0] = self.root.take();
            }
            self.root = Some(node);
        }
    }

    /// Takes all frames out, and leaves this index empty.
    pub(super) fn take(&mut self) -> Self {
        mem::take(self)
    }

    /// Calls `f` with every frame, in ascending order of index.
    pub(super) fn for_each(&self, mut f: impl FnMut(Pfn)) {
        if let Some(root) = &self.root {
            root.for_each(&mut f);
        }
    }
}

impl Node {
    fn for_each(&self, f: &mut impl FnMut(Pfn)) {
        match self {
            // The recursion ends: there are at most eleven levels.
            Self::Inner(below) => below.iter().flatten().for_each(|node| node.for_each(f)),
            Self::Last(frames) => {
                let frames = frames.iter().filter_map(|&there| frame_of(there));
                frames.for_each(f);
            }
        }
    }
}

/// Returns the frame that `there`, a value in a last-level node, stands for. Returns `None` if the
/// value stands for no frame.
fn frame_of(there: u64) -> Option<Pfn> {
    let is_frame = there & Shadow::MARK == 0;
    let frame = there.checked_sub(1).filter(|_| is_frame)?;
    u32::try_from(frame).ok().map(Pfn)
}

/// Returns the place of `index` in a node. `shift` is the number of index bits that select places
/// in the levels below this node.
const fn place(index: u64, shift: u32) -> usize {
    (index >> shift & FAN_MASK) as usize
}

/// Returns how many bits of an index the levels below the root use, in the lowest tree that can
/// hold `index`.
const fn height(index: u64) -> u32 {
    let bits = u64::BITS - index.leading_zeros();
    if bits == 0 {
        0
    } else {
        (bits - 1) / FAN_BITS * FAN_BITS
    }
}

/// Returns whether a tree whose root has `shift` index bits below it can hold `index`.
const fn reaches(shift: u32, index: u64) -> bool {
    height(index) <= shift
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares an [`Index`] with a plain map. The test inserts random page numbers, some of
        /// them more than once.
        #[test]
        fn it_is_a_map(bits in prop::collection::vec((0..64_u32, any::<u64>(), 0..1000_u32), 0..60)) {
            let (mut map, mut index) = (BTreeMap::new(), Index::default());
            for (bits, number, frame) in bits {
                let at = number >> bits;
                prop_assert_eq!(index.get(at), map.get(&at).copied());
                let missing = index.missing(at);
                if missing.inner > 0 {
                    let few = Missing { inner: missing.inner - 1, ..missing };
                    let mut few = Spares::new(few).expect("there is memory");
                    prop_assert_eq!(index.insert(at, Pfn(frame), &mut few), Err(missing));
                }
                let mut spares = Spares::new(missing).expect("there is memory");
                let there = *map.entry(at).or_insert(Pfn(frame));
                prop_assert_eq!(index.insert(at, Pfn(frame), &mut spares), Ok(there));
                prop_assert!(spares.0.is_empty(), "no more were missing");
                prop_assert_eq!(index.len(), map.len() as u64);
            }
            let mut all = Vec::new();
            index.for_each(|frame| all.push(frame));
            prop_assert!(all.into_iter().eq(map.into_values()));
        }
    }

    #[test]
    fn a_frame_that_leaves_keeps_its_place_as_a_shadow() {
        let mut index = Index::default();
        let mut spares = Spares::new(index.missing(700)).expect("there is memory");
        assert_eq!(index.insert(700, Pfn(5), &mut spares), Ok(Pfn(5)));
        let shadow = Shadow {
            node: 3,
            age: 99,
            was_active: true,
        };
        assert!(!index.leave(700, Pfn(6), shadow), "it is another frame");
        assert!(!index.leave(1 << 40, Pfn(5), shadow), "nothing is there");
        assert!(index.leave(700, Pfn(5), shadow));
        assert_eq!((index.get(700), index.len()), (None, 0));
        assert_eq!(index.shadow(700), Some(shadow));
        index.for_each(|frame| panic!("{frame:?} is gone"));
        assert_eq!(index.insert(700, Pfn(0), &mut spares), Ok(Pfn(0)));
        assert_eq!((index.get(700), index.shadow(700)), (Some(Pfn(0)), None));
    }
}
