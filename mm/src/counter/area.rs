//! Per-CPU memory that groups of counters take and give back (Linux: the percpu allocator).
//!
//! Memory comes in chunks. In a chunk each CPU has a row, and each group a place in every row: so
//! groups share the cache lines of one CPU and nobody shares a line with another CPU, and whoever
//! wants the sums of many groups reads chunk by chunk and row by row: that is memory in its order.
//!
//! Lock: one, around the list of free places.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::error::InitError;
use crate::machine::{LINE_WORDS, LocalWord, Lock, Machine};
use crate::site::{LockClass, Site, Work};

/// Places in a chunk. With four counters a row is 2 KiB on 64-bit hosts.
pub(super) const PLACES: usize = 64;
/// Words of a block, the unit in which rows are aligned.
const BLOCK: usize = 16;

/// Per-CPU memory for groups of one width.
pub struct Area<M: Machine> {
    width: usize,
    cpus: u32,
    free: M::Lock<Free<M>>,
}

/// The places nobody has.
struct Free<M: Machine> {
    places: Vec<Place<M>>,
    /// How many chunks there are.
    chunks: usize,
    /// The number of the next one.
    next: u64,
}

/// A row's words, away from those of its neighbours.
#[repr(align(128))]
struct Block<M: Machine>([M::LocalWord; BLOCK]);

/// Rows of all CPUs, one after the other.
pub(super) struct Chunk<M: Machine> {
    blocks: Box<[Block<M>]>,
    /// Of no other chunk of the area.
    number: u64,
}

/// The words of all groups of a chunk on one CPU.
pub(super) struct Row<'a, M: Machine>(&'a [Block<M>]);

/// A group's words on every CPU.
pub(super) struct Place<M: Machine> {
    chunk: Arc<Chunk<M>>,
    first: usize,
    /// Counters of the group.
    width: usize,
    /// Here and not behind the pointer: an addition waits for as few loads in a row as can be.
    blocks_per_row: usize,
}

impl<M: Machine> Area<M> {
    /// Room for groups of `width` counters on every CPU of `machine`. Memory is taken when the
    /// first group is made.
    ///
    /// # Errors
    /// [`InitError::Width`] if `width` is 0 or more than 8.
    pub fn new(machine: &M, width: usize) -> Result<Self, InitError> {
        let max = LINE_WORDS;
        if !(1..=max).contains(&width) {
            return Err(InitError::Width {
                counters: width,
                max,
            });
        }
        let home = machine.this_cpu();
        let free = Free {
            places: Vec::new(),
            chunks: 0,
            next: 0,
        };
        Ok(Self {
            width,
            cpus: machine.topology().cpus(),
            free: machine.lock(LockClass::CounterArea, home, free),
        })
    }

    /// Counters of each group.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// CPUs there is room for.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Bytes of one group on all CPUs (Linux: what `alloc_percpu` hands out).
    #[must_use]
    pub fn bytes_per_group(&self) -> usize {
        self.width * size_of::<M::LocalWord>() * self.cpus as usize
    }

    /// Groups that have a place now: a one-sided tree has none before it grows.
    pub fn groups(&self, machine: &M) -> usize {
        self.free.with(machine, Site::CounterInit, |free| {
            free.chunks * PLACES - free.places.len()
        })
    }

    /// A place of zeros.
    pub(super) fn take(&self, machine: &M) -> Result<Place<M>, InitError> {
        let found = self.free.with(machine, Site::CounterInit, |free| {
            if let Some(place) = free.places.pop() {
                return Ok(Ok(place));
            }
            let reserved = free.places.try_reserve(PLACES);
            reserved.map_err(|_| InitError::OutOfMemory)?;
            free.next += 1;
            Ok(Err(free.next))
        })?;
        match found {
            Ok(place) => {
                // Clean again, by whoever needs it: giving back stays cheap.
                self.clear(machine, &place);
                Ok(place)
            }
            Err(number) => self.grow(machine, number),
        }
    }

    /// Makes a chunk outside the lock; several may do so at once, none is lost.
    fn grow(&self, machine: &M, number: u64) -> Result<Place<M>, InitError> {
        let chunk = Arc::new(Chunk::new(machine, self.width, self.cpus, number)?);
        let place = |nth: usize| Place {
            chunk: Arc::clone(&chunk),
            first: nth * self.width,
            width: self.width,
            blocks_per_row: blocks_per_row(self.width),
        };
        self.free.with(machine, Site::CounterInit, |free| {
            // The last one is taken first: groups made in a row have places in a row.
            free.places.extend((1..PLACES).rev().map(place));
            free.chunks += 1;
        });
        machine.spend(Work::ScanCpu, self.cpus);
        Ok(place(0))
    }

    fn clear(&self, machine: &M, place: &Place<M>) {
        machine.spend(Work::ScanCpu, self.cpus);
        for cpu in 0..self.cpus as usize {
            for counter in 0..self.width {
                place.word(cpu, counter).set(machine, 0);
            }
        }
    }

    pub(super) fn put(&self, machine: &M, place: Place<M>) {
        self.free.with(machine, Site::CounterDestroy, |free| {
            free.places.push(place);
        });
    }
}

/// Blocks of each CPU in a chunk for groups of `width`.
const fn blocks_per_row(width: usize) -> usize {
    (width * PLACES).div_ceil(BLOCK)
}

impl<M: Machine> Chunk<M> {
    fn new(machine: &M, width: usize, cpus: u32, number: u64) -> Result<Self, InitError> {
        let blocks_per_row = blocks_per_row(width);
        let mut blocks = Vec::new();
        blocks
            .try_reserve_exact(blocks_per_row * cpus as usize)
            .map_err(|_| InitError::OutOfMemory)?;
        for cpu in machine.topology().ids() {
            let block = || Block(core::array::from_fn(|_| machine.local_word(cpu, 0)));
            blocks.extend((0..blocks_per_row).map(|_| block()));
        }
        Ok(Self {
            blocks: blocks.into(),
            number,
        })
    }
}

impl<M: Machine> Row<'_, M> {
    /// The sum of `width` words from `first` on.
    #[inline]
    pub(super) fn total(&self, machine: &M, first: usize, width: usize) -> i64 {
        let (block, word) = (first / BLOCK, first % BLOCK);
        let sum = |words: &[M::LocalWord]| {
            let words = words.iter().map(|word| word.read(machine));
            words.fold(0, i64::wrapping_add)
        };
        match self.0[block].0.get(word..word + width) {
            Some(words) => sum(words),
            // It goes on in the next block.
            None => {
                let here = &self.0[block].0[word..];
                let there = &self.0[block + 1].0[..width - here.len()];
                sum(here).wrapping_add(sum(there))
            }
        }
    }
}

impl<M: Machine> Place<M> {
    /// The word of `counter` on `cpu`.
    #[inline]
    pub(super) fn word(&self, cpu: usize, counter: usize) -> &M::LocalWord {
        // The words behind are another group's.
        assert!(counter < self.width, "no such counter");
        let word = self.first + counter;
        let row = cpu * self.blocks_per_row;
        &self.chunk.blocks[row + word / BLOCK].0[word % BLOCK]
    }

    /// The sum of the group's words on `cpu`.
    #[inline]
    pub(super) fn total(&self, machine: &M, cpu: usize) -> i64 {
        self.row(cpu).total(machine, self.first, self.width)
    }

    /// The words of all groups of the chunk on `cpu`.
    #[inline]
    pub(super) fn row(&self, cpu: usize) -> Row<'_, M> {
        Row(&self.chunk.blocks[cpu * self.blocks_per_row..][..self.blocks_per_row])
    }

    /// Counters of the group.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Where its words begin in a row.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Its chunk.
    pub(super) fn chunk(&self) -> &Arc<Chunk<M>> {
        &self.chunk
    }

    /// Its number among all places of the area, in the order of memory; at least 1.
    pub(super) fn number(&self) -> u64 {
        self.chunk.number * PLACES as u64 + (self.first / self.width) as u64
    }
}

impl<M: Machine> fmt::Debug for Area<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Area")
            .field("width", &self.width)
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}
