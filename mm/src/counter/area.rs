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
use crate::machine::{Field, LINE_WORDS, LocalWord, Lock, Machine};
use crate::room::{self, NoRoom};
use crate::site::{LockClass, Site, Work};

/// Places in a chunk. With four counters a row is 2 KiB on 64-bit hosts.
pub(super) const PLACES: usize = 64;
/// Words of a block, the unit in which rows are aligned.
const BLOCK: usize = 16;
/// Runs of equal length; those that follow have twice as many chunks each.
const RUNS_OF_A_LENGTH: usize = 4;
/// Runs there can be: 16,380 chunks, of a million groups.
const RUNS: usize = 48;

/// A width that is summed without a loop.
const QUAD: usize = 4;

/// Per-CPU memory for groups of one width.
pub struct Area<M: Machine> {
    width: usize,
    cpus: u32,
    free: M::Lock<Free<M>>,
}

/// The places nobody has.
struct Free<M: Machine> {
    /// All are made with the area, because an `Arc` aborts if there is no memory for it. Only the area
    /// refers to a run that has no memory yet, so it can give the run some.
    runs: Box<[Arc<Run<M>>]>,
    /// With room for every place there is: giving back needs no memory.
    places: Vec<Place<M>>,
    /// Runs that have memory or are getting it, a bit each.
    taken: u64,
}

/// A row's words, away from those of its neighbours.
#[repr(align(128))]
struct Block<M: Machine>([M::LocalWord; BLOCK]);

/// Chunks that come together. The more there are, the more come at once: at most a fifth of all is
/// there too early.
struct Run<M: Machine> {
    /// Chunk by chunk, the rows of all CPUs, one after the other; nothing before they are needed.
    blocks: Vec<Block<M>>,
    /// For each place, whether its group was dropped and not ended.
    lost: Vec<M::Field>,
}

/// The words of all groups of a chunk on one CPU.
pub(super) struct Row<'a, M: Machine>(&'a [Block<M>]);

/// A group's words on every CPU. Dropped without [`Area::put`] it is found again when places run out.
pub(super) struct Place<M: Machine> {
    run: Arc<Run<M>>,
    /// Its first word on CPU 0, of all words of the run.
    first: usize,
    /// The same of the words of its chunk.
    first_in_row: u32,
    /// The first block of its chunk.
    base: u32,
    /// Counters of the group.
    width: u32,
    /// Here and not behind the pointer: an addition waits for as few loads in a row as can be.
    blocks_per_row: u32,
    number: u32,
    /// 1 if a group has it, else 0. It is no `bool`, because the compiler would keep the variant of
    /// [`AnyCounters`](super::AnyCounters) in the spare values of one, and an addition would load this word to tell which it is.
    held: u32,
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
        let run = |_| {
            let (blocks, lost) = (Vec::new(), Vec::new());
            Arc::new(Run { blocks, lost })
        };
        let free = Free {
            runs: (0..RUNS).map(run).collect(),
            places: Vec::new(),
            taken: 0,
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
            self.recover(free);
            let places: usize = free.runs.iter().map(|run| run.lost.len()).sum();
            places - free.places.len()
        })
    }

    /// A place of zeros.
    pub(super) fn take(&self, machine: &M) -> Result<Place<M>, InitError> {
        let found = self.free.with(machine, Site::CounterInit, |free| {
            if free.places.is_empty() {
                self.recover(free);
            }
            if let Some(place) = free.places.pop() {
                return Ok(Ok(place));
            }
            let run = free.taken.trailing_ones() as usize;
            if run == RUNS {
                return Err(InitError::OutOfMemory);
            }
            free.taken |= 1 << run;
            let room = places_of(free.taken);
            Ok(Err((run, room, free.places.capacity() < room)))
        })?;
        match found {
            Ok(mut place) => {
                place.held = 1;
                // Clean again, by whoever needs it: giving back stays cheap.
                self.clear(machine, &place);
                Ok(place)
            }
            Err(grow) => self.grow(machine, grow),
        }
    }

    /// Makes the memory of a run outside the lock, and a longer list of free places if there has to be
    /// one; several may do so at once, none is lost.
    fn grow(
        &self,
        machine: &M,
        (run, room, longer): (usize, usize, bool),
    ) -> Result<Place<M>, InitError> {
        let made = Run::new(machine, self.width, self.cpus, chunks_of(run)).and_then(|memory| {
            let places = if longer {
                room::list_of(room).map_err(|NoRoom| InitError::OutOfMemory)?
            } else {
                Vec::new()
            };
            Ok((memory, places))
        });
        let (memory, mut places) = match made {
            Ok(made) => made,
            Err(error) => {
                self.free.with(machine, Site::CounterInit, |free| {
                    free.taken &= !(1 << run);
                });
                return Err(error);
            }
        };
        let first = first_of(run);
        let mut place = self.free.with(machine, Site::CounterInit, |free| {
            let empty = Arc::get_mut(&mut free.runs[run]);
            *empty.expect("nobody has a place in a run without memory") = memory;
            room::replace(&mut free.places, &mut places);
            // The last one is taken first: groups made in a row have places in a row.
            let others = (first + 1..first_of(run + 1)).rev();
            let others = others.map(|number| self.place(&free.runs, number));
            free.places.extend(others);
            self.place(&free.runs, first)
        });
        place.held = 1;
        // The shorter list is dropped with no lock held.
        drop(places);
        machine.spend(Work::ScanCpu, self.cpus);
        Ok(place)
    }

    /// A place that nobody has.
    fn place(&self, runs: &[Arc<Run<M>>], number: usize) -> Place<M> {
        let (run, nth) = run_of(number);
        let per_row = blocks_per_row(self.width);
        let base = nth / PLACES * per_row * self.cpus as usize;
        Place {
            run: Arc::clone(&runs[run]),
            first: base * BLOCK + nth % PLACES * self.width,
            first_in_row: small(nth % PLACES * self.width),
            base: small(base),
            width: small(self.width),
            blocks_per_row: small(per_row),
            number: small(number),
            held: 0,
        }
    }

    /// Finds the places of groups that were dropped and not ended.
    fn recover(&self, free: &mut Free<M>) {
        for (run, memory) in free.runs.iter().enumerate() {
            for (number, lost) in (first_of(run)..).zip(&memory.lost) {
                if lost.get() != 0 {
                    lost.set(0);
                    free.places.push(self.place(&free.runs, number));
                }
            }
        }
    }

    fn clear(&self, machine: &M, place: &Place<M>) {
        machine.spend(Work::ScanCpu, self.cpus);
        for cpu in 0..self.cpus as usize {
            for counter in 0..self.width {
                place.word(cpu, counter).set(machine, 0);
            }
        }
    }

    /// Takes a place back. Needs no memory.
    pub(super) fn put(&self, machine: &M, mut place: Place<M>) {
        place.held = 0;
        self.free.with(machine, Site::CounterDestroy, |free| {
            debug_assert!(
                free.places.len() < free.places.capacity(),
                "the list has room for every place"
            );
            free.places.push(place);
        });
    }
}

/// Places of these runs.
fn places_of(runs: u64) -> usize {
    let of = |run: usize| (runs >> run & 1) as usize * chunks_of(run) * PLACES;
    (0..RUNS).map(of).sum()
}

/// Chunks of a run.
const fn chunks_of(run: usize) -> usize {
    1 << (run / RUNS_OF_A_LENGTH)
}

/// The number of a run's first place.
const fn first_of(run: usize) -> usize {
    // Runs of a length have as many chunks together as all shorter ones, and those of the first once more.
    let (longer, same) = (run / RUNS_OF_A_LENGTH, run % RUNS_OF_A_LENGTH);
    let chunks = RUNS_OF_A_LENGTH * ((1 << longer) - 1) + same * (1 << longer);
    chunks * PLACES
}

/// The run of a place, and its number there.
const fn run_of(number: usize) -> (usize, usize) {
    let chunk = number / PLACES;
    let longer = (chunk / RUNS_OF_A_LENGTH + 1).ilog2() as usize;
    let run = longer * RUNS_OF_A_LENGTH;
    let same = (number - first_of(run)) / (PLACES << longer);
    (run + same, number - first_of(run + same))
}

/// The number of a place, or of a block: a run has fewer than four billion.
fn small(number: usize) -> u32 {
    u32::try_from(number).expect("a run is as large as memory at most")
}

/// Blocks of each CPU in a chunk for groups of `width`.
const fn blocks_per_row(width: usize) -> usize {
    (width * PLACES).div_ceil(BLOCK)
}

impl<M: Machine> Run<M> {
    /// One with memory.
    fn new(machine: &M, width: usize, cpus: u32, chunks: usize) -> Result<Self, InitError> {
        let per_row = blocks_per_row(width);
        let (mut blocks, mut lost) = (Vec::new(), Vec::new());
        blocks
            .try_reserve_exact(per_row * cpus as usize * chunks)
            .and_then(|()| lost.try_reserve_exact(PLACES * chunks))
            .map_err(|_| InitError::OutOfMemory)?;
        for _ in 0..chunks {
            for cpu in machine.topology().ids() {
                let block = || Block(core::array::from_fn(|_| machine.local_word(cpu, 0)));
                blocks.extend((0..per_row).map(|_| block()));
            }
        }
        lost.extend((0..PLACES * chunks).map(|_| machine.field(0)));
        Ok(Self { blocks, lost })
    }
}

impl<M: Machine> Row<'_, M> {
    /// The sum of `width` words from `first` on.
    #[inline]
    pub(super) fn total(&self, machine: &M, first: usize, width: usize) -> i64 {
        if width == QUAD {
            // The pages of an address space are counted by four, of which none is cut in two.
            let (quads, _) = self.0[first / BLOCK].0.as_chunks::<QUAD>();
            let [a, b, c, d] = &quads[first % BLOCK / QUAD];
            let read = |word: &M::LocalWord| word.read(machine);
            let (front, back) = (read(a).wrapping_add(read(b)), read(c).wrapping_add(read(d)));
            return front.wrapping_add(back);
        }
        self.total_of_any(machine, first, width)
    }

    fn total_of_any(&self, machine: &M, first: usize, width: usize) -> i64 {
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
        assert!(counter < self.width as usize, "no such counter");
        let word = self.first + counter;
        let row = cpu * self.blocks_per_row as usize;
        &self.run.blocks[row + word / BLOCK].0[word % BLOCK]
    }

    /// The sum of the group's words on `cpu`.
    #[inline]
    pub(super) fn total(&self, machine: &M, cpu: usize) -> i64 {
        self.row(cpu).total(machine, self.first(), self.width())
    }

    /// The words of all groups of the chunk on `cpu`.
    #[inline]
    pub(super) fn row(&self, cpu: usize) -> Row<'_, M> {
        let per_row = self.blocks_per_row as usize;
        let row = self.base as usize + cpu * per_row;
        Row(&self.run.blocks[row..][..per_row])
    }

    /// Counters of the group.
    pub(super) fn width(&self) -> usize {
        self.width as usize
    }

    /// Where its words begin in a row.
    pub(super) fn first(&self) -> usize {
        self.first_in_row as usize
    }

    /// Whether both are in the same chunk.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.base == other.base
    }

    /// Its number among all places of the area, in the order of memory; at least 1.
    pub(super) fn number(&self) -> u64 {
        u64::from(self.number) + 1
    }
}

impl<M: Machine> Drop for Place<M> {
    fn drop(&mut self) {
        // No lock can be taken without a machine, so the next owner that finds no free place looks for it.
        if self.held != 0 {
            let (_, nth) = run_of(self.number as usize);
            self.run.lost[nth].set(1);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_each_other_without_a_gap() {
        let mut first = 0;
        for run in 0..RUNS {
            assert_eq!(first_of(run), first);
            let next = first + chunks_of(run) * PLACES;
            for number in [first, first + 1, next - 1] {
                assert_eq!(run_of(number), (run, number - first));
            }
            first = next;
        }
        assert_eq!(first, 16_380 * PLACES);
    }
}
