//! A sparse array. Entries are created at their first use and never removed, so they are found
//! without a lock.
//!
//! The array is a tree of fan-out 64 over the bits of the index, like the upper levels of a page
//! table. No node is freed while the array lives.

use alloc::vec::Vec;

use crate::machine::{Machine, Once};
use crate::space::error::NoMemory;

const FAN_BITS: u32 = 6;
const FAN: usize = 1 << FAN_BITS;
const FAN_MASK: u64 = FAN as u64 - 1;

/// A sparse array, whose entries are created at their first use and never removed.
pub(super) struct Sparse<M: Machine, T> {
    root: M::Once<Node<M, T>>,
    /// The number of index bits below those that select a place in the root.
    shift: u32,
}

enum Node<M: Machine, T> {
    Inner(Vec<M::Once<Node<M, T>>>),
    Last(Vec<M::Once<T>>),
}

impl<M: Machine, T> Sparse<M, T> {
    /// Makes an empty array for indexes below `1 << bits`.
    pub(super) fn new(machine: &M, bits: u32) -> Self {
        Self {
            root: machine.once(),
            shift: bits.div_ceil(FAN_BITS).saturating_sub(1) * FAN_BITS,
        }
    }

    /// Returns entry `index`, if it exists.
    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<&T> {
        let mut node = self.root.get()?;
        let mut shift = self.shift;
        loop {
            let place = place(index, shift);
            match node {
                Node::Inner(below) => node = below.get(place)?.get()?,
                Node::Last(entries) => return entries.get(place)?.get(),
            }
            shift -= FAN_BITS;
        }
    }

    /// Returns entry `index`. If it does not exist, creates it with `make`. If several CPUs create
    /// it at the same time, all of them get the entry of the CPU that was first.
    pub(super) fn get_or_make(
        &self,
        machine: &M,
        index: u64,
        make: impl FnOnce() -> T,
    ) -> Result<&T, NoMemory> {
        let mut shift = self.shift;
        let mut node = set_once(&self.root, || Node::new(machine, shift))?;
        loop {
            let place = place(index, shift);
            match node {
                Node::Inner(below) => {
                    shift -= FAN_BITS;
                    node = set_once(&below[place], || Node::new(machine, shift))?;
                }
                Node::Last(entries) => return set_once(&entries[place], || Ok(make())),
            }
        }
    }

    /// Returns the first existing entry at or after `index`, together with the entry's own index.
    pub(super) fn next(&self, index: u64) -> Option<(u64, &T)> {
        if index >> self.shift >= FAN as u64 {
            return None;
        }
        self.root.get()?.first(index, self.shift)
    }

    /// Returns the last existing entry below `index`, together with the entry's own index.
    pub(super) fn prev(&self, index: u64) -> Option<(u64, &T)> {
        let last = index.checked_sub(1)?.min(((FAN as u64) << self.shift) - 1);
        self.root.get()?.last(last, self.shift)
    }
}

/// Returns the place of `index` in a node that has `shift` index bits below its level.
#[inline]
const fn place(index: u64, shift: u32) -> usize {
    (index >> shift & FAN_MASK) as usize
}

fn set_once<T, O: Once<T>>(
    once: &O,
    make: impl FnOnce() -> Result<T, NoMemory>,
) -> Result<&T, NoMemory> {
    if once.get().is_none() {
        // If another CPU has set `once` first, this drops the new value.
        drop(once.set(make()?));
    }
    once.get().ok_or(NoMemory)
}

impl<M: Machine, T> Node<M, T> {
    fn new(machine: &M, shift: u32) -> Result<Self, NoMemory> {
        if shift == 0 {
            Ok(Self::Last(row(machine)?))
        } else {
            Ok(Self::Inner(row(machine)?))
        }
    }

    fn first(&self, from: u64, shift: u32) -> Option<(u64, &T)> {
        let (own, mut from) = (place(from, shift), from);
        for place in own..FAN {
            let found = match self {
                Self::Last(entries) => entries[place].get().map(|entry| (from, entry)),
                Self::Inner(below) => below[place]
                    .get()
                    .and_then(|node| node.first(from, shift - FAN_BITS)),
            };
            if found.is_some() {
                return found;
            }
            from = ((from >> shift) + 1) << shift;
        }
        None
    }

    fn last(&self, from: u64, shift: u32) -> Option<(u64, &T)> {
        let mut from = from;
        for place in (0..=place(from, shift)).rev() {
            let found = match self {
                Self::Last(entries) => entries[place].get().map(|entry| (from, entry)),
                Self::Inner(below) => below[place]
                    .get()
                    .and_then(|node| node.last(from, shift - FAN_BITS)),
            };
            if found.is_some() {
                return found;
            }
            from = (from >> shift << shift).wrapping_sub(1);
        }
        None
    }
}

fn row<M: Machine, T>(machine: &M) -> Result<Vec<M::Once<T>>, NoMemory> {
    let mut row = Vec::new();
    row.try_reserve_exact(FAN).map_err(|_| NoMemory)?;
    row.extend((0..FAN).map(|_| machine.once()));
    Ok(row)
}
