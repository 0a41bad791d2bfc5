//! Per-CPU memory that groups of counters take and give back (Linux: the percpu allocator).
//!
//! Memory comes in chunks. In a chunk each CPU has a row, and each group a place in every row: so
//! groups share the cache lines of one CPU and nobody shares a line with another CPU, and whoever
//! wants the sums of many groups reads row by row.
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
const PLACES: usize = 64;
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
}

/// A row's words, away from those of its neighbours.
#[repr(align(128))]
struct Block<M: Machine>([M::LocalWord; BLOCK]);

/// Rows of all CPUs, one after the other.
struct Chunk<M: Machine> {
    blocks: Box<[Block<M>]>,
}

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
        let (places, chunks) = (Vec::new(), 0);
        Ok(Self {
            width,
            cpus: machine.topology().cpus(),
            free: machine.lock(LockClass::CounterArea, home, Free { places, chunks }),
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
        let found = self
            .free
            .with(machine, Site::CounterInit, |free| match free.places.pop() {
                Some(place) => Ok(Some(place)),
                None => free
                    .places
                    .try_reserve(PLACES)
                    .map(|()| None)
                    .map_err(|_| InitError::OutOfMemory),
            })?;
        match found {
            Some(place) => {
                // Clean again, by whoever needs it: giving back stays cheap.
                self.clear(machine, &place);
                Ok(place)
            }
            None => self.grow(machine),
        }
    }

    /// Makes a chunk outside the lock; several may do so at once, none is lost.
    fn grow(&self, machine: &M) -> Result<Place<M>, InitError> {
        let chunk = Arc::new(Chunk::new(machine, self.width, self.cpus)?);
        let place = |nth: usize| Place {
            chunk: Arc::clone(&chunk),
            first: nth * self.width,
            width: self.width,
            blocks_per_row: blocks_per_row(self.width),
        };
        self.free.with(machine, Site::CounterInit, |free| {
            free.places.extend((1..PLACES).map(place));
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
    fn new(machine: &M, width: usize, cpus: u32) -> Result<Self, InitError> {
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
        })
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
}

impl<M: Machine> fmt::Debug for Area<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Area")
            .field("width", &self.width)
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}
