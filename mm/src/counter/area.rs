//! Per-CPU memory that groups of counters allocate and free (Linux: the percpu allocator). A group
//! has the counters of one owner, such as a process.
//!
//! Memory is allocated in chunks. In a chunk each CPU has a row, and each group has a place in
//! every row. So several groups share a cache line, but no two CPUs do. A reader that sums many
//! groups reads the memory in order, chunk by chunk and row by row.
//!
//! Lock: each area has one lock, which protects the list of free places.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::error::InitError;
use super::runs::{PLACES, RUNS, chunks_of, first_of, run_of};
use crate::machine::{Field, LINE_WORDS, LocalWord, Lock, Machine};
use crate::room::{self, NoRoom};
use crate::site::{LockClass, Site, Work};

/// The number of words in a [`Block`]. Every row (one CPU's words in a chunk of memory) starts at
/// the start of a block.
pub(super) const BLOCK: usize = 16;

/// The number of counters in the groups that [`Row::total`] sums without a loop.
const QUAD: usize = 4;

/// Per-CPU memory for groups that all have the same number of counters.
pub struct Area<M: Machine> {
    width: usize,
    cpus: u32,
    free: M::Lock<Free<M>>,
}

/// What the area's lock protects: all runs of memory, and the places (the memory for one group on
/// every CPU) that no group holds.
struct Free<M: Machine> {
    /// All runs. A run is one or more chunks of memory. The runs are all created together with the
    /// area, because allocating an `Arc` aborts when memory runs out. Until a run has memory for
    /// its rows, the area holds the only reference to the run. So the area can still change the run
    /// and add that memory.
    runs: Box<[Arc<Run<M>>]>,
    /// The free places; each is memory for one group of counters on every CPU. The list has room
    /// for all existing places, so returning a place never allocates.
    places: Vec<Place<M>>,
    /// The number of elements of `runs` that have memory. These elements come first.
    made: usize,
}

/// [`BLOCK`] words of one CPU, aligned so that they share no cache line with the words of other
/// CPUs.
#[repr(align(128))]
pub(super) struct Block<M: Machine>(pub(super) [M::LocalWord; BLOCK]);

/// Chunks of per-CPU memory that are allocated together. The more chunks an area has, the more
/// chunks its next run has. At most a fifth of an area's chunks are allocated before they are
/// needed.
struct Run<M: Machine> {
    /// The words of all CPUs, chunk by chunk, and CPU by CPU within a chunk. The vector is empty
    /// until a group of counters first needs memory of these chunks.
    blocks: Vec<Block<M>>,
    /// For each place (memory for one group of counters), 1 if the group was dropped without being
    /// destroyed, otherwise 0.
    lost: Vec<M::Field>,
}

/// The memory of a new [`Run`], which a CPU allocates while it does not hold the lock of the
/// [`Area`].
struct NewRun<M: Machine> {
    number: usize,
    memory: Run<M>,
    /// A longer list of free places. It has no capacity if the area's own list has room for the
    /// places of one more run.
    places: Vec<Place<M>>,
}

/// The result of looking for a free place (memory for one group of counters), while the CPU holds
/// the area's lock.
enum Found<M: Machine> {
    /// A free place whose words an earlier group may have used.
    Used(Place<M>),
    /// The first place of the [`Run`] that this CPU has just allocated. All words of the place are
    /// 0.
    Fresh(Place<M>),
    /// No place is free. The fields describe the run that must be allocated next.
    NoPlace { run: usize, is_list_too_short: bool },
}

/// One CPU's words in a chunk of memory: the words of all groups of counters that share the chunk.
pub(super) struct Row<'a, M: Machine>(&'a [Block<M>]);

/// The memory of one group of counters: its words on every CPU. If a place is dropped without
/// [`Area::put`], the area recovers it when no free place is left.
pub(super) struct Place<M: Machine> {
    run: Arc<Run<M>>,
    /// The index of the group's first word on CPU 0, among all words of the [`Run`].
    first: usize,
    /// The index of the group's first word within a row, which is one CPU's words in the chunk.
    first_in_row: u32,
    /// The index of the chunk's first [`Block`] among all blocks of the [`Run`].
    base: u32,
    /// The number of counters of the group.
    width: u32,
    /// The number of [`Block`]s in a row, which is one CPU's words in the chunk. It is stored here
    /// rather than in the run, to keep the chain of dependent loads in an addition short.
    blocks_per_row: u32,
    number: u32,
    /// 1 if a group holds the place, otherwise 0. The field is not a `bool`, because the compiler
    /// would store the variant of [`AnyCounters`](super::AnyCounters) in the unused values of a
    /// `bool`. Every addition would then load this word to find the variant.
    held: u32,
}

impl<M: Machine> Area<M> {
    /// Creates an area for groups of `width` counters on every CPU of `machine`. The area allocates
    /// per-CPU memory when a group first needs it.
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
            made: 0,
        };
        Ok(Self {
            width,
            cpus: machine.topology().cpus(),
            free: machine.lock(LockClass::CounterArea, home, free),
        })
    }

    /// Returns the number of counters of each group.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of CPUs that the area has memory for.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Returns the number of bytes that one group of counters occupies on all CPUs (Linux: the
    /// memory that `alloc_percpu` returns).
    #[must_use]
    pub(super) fn bytes_per_group(&self) -> usize {
        self.width * size_of::<M::LocalWord>() * self.cpus as usize
    }

    /// Returns the number of bytes of per-CPU memory that the area has allocated, for groups that
    /// exist and for free places. An area never returns memory before it is dropped.
    pub fn bytes(&self, machine: &M) -> usize {
        let places = self
            .free
            .with(machine, Site::CounterInit, |free| first_of(free.made));
        let row = blocks_per_row(self.width) * size_of::<Block<M>>();
        places / PLACES * row * self.cpus as usize
    }

    /// Returns the number of groups that use the area now. A [one-sided tree](super::OneSidedTree)
    /// uses no per-CPU memory before it grows from one cache line into a tree.
    pub fn groups(&self, machine: &M) -> usize {
        self.free.with(machine, Site::CounterInit, |free| {
            self.recover(free);
            let places: usize = free.runs.iter().map(|run| run.lost.len()).sum();
            places - free.places.len()
        })
    }

    /// Takes a free [`Place`], which is memory for one group of counters, and sets all its words to
    /// 0. If no place is free, allocates the memory of a run (one or more chunks) outside the lock.
    ///
    /// If several CPUs allocate memory at once, all of them allocate the same run. The first CPU
    /// adds its memory to the area, and the others free theirs and try again. If each CPU allocated
    /// a run of its own, many runs would be added at once, although the places of one run are
    /// enough for all these CPUs.
    pub(super) fn take(&self, machine: &M) -> Result<Place<M>, InitError> {
        let mut new = None;
        loop {
            let found = self.free.with(machine, Site::CounterInit, |free| {
                self.find(free, new.as_mut())
            });
            let mut place = match found {
                Found::Used(place) => {
                    // A place (the words of a group of counters) is cleared when it is taken. So
                    // returning a place stays cheap.
                    self.clear(machine, &place);
                    place
                }
                Found::Fresh(place) => {
                    machine.spend(Work::ScanCpu, self.cpus);
                    place
                }
                Found::NoPlace { run: RUNS, .. } => return Err(InitError::OutOfMemory),
                Found::NoPlace {
                    run,
                    is_list_too_short,
                } => {
                    new = Some(self.allocate(machine, run, is_list_too_short)?);
                    continue;
                }
            };
            place.held = 1;
            return Ok(place);
        }
    }

    /// Looks for a free place. If no place is free and `new` has the memory of the next run, adds
    /// that run. The caller holds the lock, so this function neither allocates nor frees memory:
    /// memory that is not needed stays in `new`.
    fn find(&self, free: &mut Free<M>, new: Option<&mut NewRun<M>>) -> Found<M> {
        if free.places.is_empty() {
            self.recover(free);
        }
        if let Some(place) = free.places.pop() {
            return Found::Used(place);
        }
        match new {
            Some(new) if new.number == free.made => Found::Fresh(self.add(free, new)),
            _ => Found::NoPlace {
                run: free.made,
                is_list_too_short: free.places.capacity() < first_of(free.made + 1),
            },
        }
    }

    /// Adds the memory `new` to the area. Returns the first place (memory for one group of
    /// counters) in this memory.
    fn add(&self, free: &mut Free<M>, new: &mut NewRun<M>) -> Place<M> {
        let run = &mut free.runs[new.number];
        let run = Arc::get_mut(run).expect("no group has a place in a run without memory");
        core::mem::swap(run, &mut new.memory);
        free.made += 1;
        room::replace(&mut free.places, &mut new.places);
        // Groups take places from the end of the list of free places. The list is filled in
        // descending order, so that groups created in succession get consecutive places.
        let (first, end) = (first_of(new.number), first_of(new.number + 1));
        let others = (first + 1..end).rev();
        let others = others.map(|number| self.place(&free.runs, number));
        free.places.extend(others);
        self.place(&free.runs, first)
    }

    /// Allocates the memory of a run, and a longer list of free places if the current one is too
    /// short. The caller must hold no lock.
    fn allocate(
        &self,
        machine: &M,
        number: usize,
        is_list_too_short: bool,
    ) -> Result<NewRun<M>, InitError> {
        let memory = Run::new(machine, self.width, self.cpus, chunks_of(number))?;
        let places = if is_list_too_short {
            room::list_of(first_of(number + 1)).map_err(|NoRoom| InitError::OutOfMemory)?
        } else {
            Vec::new()
        };
        Ok(NewRun {
            number,
            memory,
            places,
        })
    }

    /// Creates the handle of the place with this number; the caller ensures that no group holds the
    /// place.
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

    /// Finds the places of groups that were dropped without being destroyed, and makes them free
    /// again.
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
        for counter in 0..self.width {
            for word in place.words(self.cpus, counter) {
                word.set(machine, 0);
            }
        }
    }

    /// Puts a place back on the list of free places when its group is destroyed. Never allocates.
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

/// Converts an index or a count of places, blocks or counters to 32 bits. The value fits, because
/// an area has fewer than four billion of each.
fn small(number: usize) -> u32 {
    u32::try_from(number).expect("a run is as large as memory at most")
}

/// Returns the number of blocks in one CPU's row of a chunk, for groups of `width` counters.
const fn blocks_per_row(width: usize) -> usize {
    (width * PLACES).div_ceil(BLOCK)
}

impl<M: Machine> Run<M> {
    /// Allocates the memory of a run of `chunks` chunks.
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
    /// Returns the sum of `width` words, from word `first` of the row on.
    #[inline]
    pub(super) fn total(&self, machine: &M, first: usize, width: usize) -> i64 {
        if width == QUAD {
            // Most groups have four counters: one for each kind of a process's pages. A group of
            // four counters never crosses the boundary of a block.
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
            // The group's words continue in the next block.
            None => {
                let here = &self.0[block].0[word..];
                let there = &self.0[block + 1].0[..width - here.len()];
                sum(here).wrapping_add(sum(there))
            }
        }
    }
}

impl<M: Machine> Place<M> {
    /// Returns the word of `counter` on `cpu`.
    #[inline]
    pub(super) fn word(&self, cpu: usize, counter: usize) -> &M::LocalWord {
        // Check the index of the counter, because the words after this group's words belong to
        // another group.
        assert!(counter < self.width as usize, "no such counter");
        let word = self.first + counter;
        let row = cpu * self.blocks_per_row as usize;
        &self.run.blocks[row + word / BLOCK].0[word % BLOCK]
    }

    /// Returns blocks of words of `cpu`, of which the first has the group's first word. Also returns
    /// the index of this word in the block.
    pub(super) fn blocks_of(&self, cpu: usize) -> (&[Block<M>], usize) {
        let row = cpu * self.blocks_per_row as usize;
        (
            &self.run.blocks[row + self.first / BLOCK..],
            self.first % BLOCK,
        )
    }

    /// Returns the words of `counter` on the CPUs 0 to `cpus - 1`.
    #[inline]
    pub(super) fn words(&self, cpus: u32, counter: usize) -> impl Iterator<Item = &M::LocalWord> {
        assert!(counter < self.width as usize, "no such counter");
        let (first, word) = (self.first + counter, (self.first + counter) % BLOCK);
        let blocks = &self.run.blocks[first / BLOCK..];
        let per_row = self.blocks_per_row as usize;
        (0..cpus as usize).map(move |cpu| &blocks[cpu * per_row].0[word])
    }

    /// Returns the sum of all words that this group of counters has on `cpu`.
    #[inline]
    pub(super) fn total(&self, machine: &M, cpu: usize) -> i64 {
        self.row(cpu).total(machine, self.first(), self.width())
    }

    /// Returns the words of `cpu` in the chunk of 64 places to which this place belongs.
    #[inline]
    pub(super) fn row(&self, cpu: usize) -> Row<'_, M> {
        let per_row = self.blocks_per_row as usize;
        let row = self.base as usize + cpu * per_row;
        Row(&self.run.blocks[row..][..per_row])
    }

    /// Returns the number of counters of the group.
    pub(super) fn width(&self) -> usize {
        self.width as usize
    }

    /// Returns the index of this group's first word. The index is the same in each CPU's row.
    pub(super) fn first(&self) -> usize {
        self.first_in_row as usize
    }

    /// Returns whether both places (memory for one group of counters each) belong to the same
    /// chunk, and so share a row on each CPU.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.base == other.base
    }

    /// Returns the number of the place among all places of the area, in memory order, counting from
    /// 1.
    pub(super) fn number(&self) -> u64 {
        u64::from(self.number) + 1
    }
}

impl<M: Machine> Drop for Place<M> {
    fn drop(&mut self) {
        // `drop` gets no `Machine`, and so cannot take the lock. It marks the place, and
        // [`Area::recover`] finds the mark when no free place is left.
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
