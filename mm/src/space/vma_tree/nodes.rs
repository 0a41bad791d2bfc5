//! The nodes of a tree of mappings. Each node is found by its id.
//!
//! A node's id consists of the index of a chunk and the index within this chunk, so finding a node
//! takes a shift and two loads. A node is never freed while the tree exists. So a reader that
//! follows an outdated id still finds a node, though perhaps the wrong one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::array;

use super::NoMemory;
use super::node::{NONE, Node};
use crate::machine::{Machine, Once};

/// The number of low bits of a node's id that hold the node's place in its chunk. The bits above
/// hold the number of the chunk.
const PLACE_BITS: u32 = 27;
const CHUNKS: usize = 1 << (u32::BITS - PLACE_BITS);
/// The number of nodes of the first chunk. Each later chunk has twice as many nodes as the chunk
/// before.
const FIRST_CHUNK: u32 = 1;
/// The number of the last chunk that may exist. The chunks up to this one have 2²⁵ − 1 nodes, none
/// of which has the id [`NONE`].
const LAST_CHUNK: u32 = 24;

/// The nodes of a tree. A node's id gives the chunk that the node is in, and the node's place in
/// the chunk.
pub(super) struct Nodes<M: Machine>([M::Once<Box<[Node<M>]>>; CHUNKS]);

impl<M: Machine> Nodes<M> {
    pub(super) fn new(machine: &M) -> Self {
        Self(array::from_fn(|_| machine.once()))
    }

    /// Returns node `id`, if it was ever allocated.
    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&Node<M>> {
        let chunk = self.0[(id >> PLACE_BITS) as usize].get()?;
        chunk.get((id & ((1 << PLACE_BITS) - 1)) as usize)
    }

    /// Returns the id of the `nth` node. If that node is the first one in its chunk, allocates the
    /// chunk. The caller has made the nodes before it.
    pub(super) fn make(&self, machine: &M, nth: u32) -> Result<u32, NoMemory> {
        let nth = nth + FIRST_CHUNK;
        let (top, chunk) = (nth.ilog2(), nth.ilog2() - FIRST_CHUNK.ilog2());
        if chunk > LAST_CHUNK {
            return Err(NoMemory);
        }
        let id = chunk << PLACE_BITS | (nth ^ 1 << top);
        if self.get(id).is_none() {
            self.make_chunk(machine, chunk as usize, 1 << top)?;
        }
        Ok(id)
    }

    fn make_chunk(&self, machine: &M, chunk: usize, len: usize) -> Result<(), NoMemory> {
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(len).map_err(|_| NoMemory)?;
        nodes.extend((0..len).map(|_| Node::new(machine)));
        let set = self.0[chunk].set(nodes.into_boxed_slice());
        debug_assert!(set.is_ok(), "one writer at a time: no other CPU makes it");
        Ok(())
    }
}

const _: () = assert!(NONE >> PLACE_BITS > LAST_CHUNK, "no node is none");
