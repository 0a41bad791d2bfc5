//! The counters that the bench measures: every kind of Plimsoll's counters, the floor, which is an
//! atomic addition to a word that no other thread uses, and the same addition by a restartable
//! sequence.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_host::cpu::Entered;
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::counter::{
    Area, Batch, Counters, Flat, InitError, Items, OneSidedTree, Shape, Shared, Tree,
};
use plimsoll_mm::machine::{LocalWord, Machine};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::Card;

use crate::catalog::machines;
use crate::error::Error;

/// A counter to which several threads can add.
pub trait Subject: Send + Sync {
    /// The name of this counter in the tables.
    fn name(&self) -> String;

    /// Prepares the calling thread for its additions. `thread` is 0 or 1: the index of the thread
    /// in the measurement. With Plimsoll's counters, the thread plays a CPU of a machine until the
    /// returned value is dropped.
    fn enter(&self, _thread: usize) -> Option<Entered> {
        None
    }

    /// Adds `delta` to the counter. The timed loop inlines this function.
    fn add(&self, delta: i64);

    /// The approximate sum, if the counter has one. It does not read every CPU's part of the
    /// counter.
    fn approximate_sum(&self) -> Option<i64> {
        None
    }

    /// The sum of all CPUs' parts of the counter. It is exact if no other thread adds during the
    /// call.
    fn precise_sum(&self) -> i64;

    /// Adds each of `deltas` to the counter, one after the other. The benchmark measures the time
    /// of this call.
    fn add_all(&self, deltas: &[i64]) {
        for &delta in deltas {
            self.add(delta);
        }
    }

    /// Takes the approximate sum, which does not read every CPU's part, `times` times. The caller
    /// measures the mean time.
    fn approximate_sums(&self, times: u32) {
        for _ in 0..times {
            std::hint::black_box(self.approximate_sum());
        }
    }

    /// Takes the precise sum, which reads every CPU's part, `times` times. The caller measures the
    /// mean time.
    fn precise_sums(&self, times: u32) {
        for _ in 0..times {
            std::hint::black_box(self.precise_sum());
        }
    }
}

/// Makes fresh counters. The first is the floor, in which each thread adds to a word of its own by
/// an atomic instruction. In the second, each thread does so by a restartable sequence, if this
/// computer has such sequences. Then follow Plimsoll's counters on a machine of 64 CPUs and on a
/// server of 384 CPUs. The last two are counters that use no such sequences.
pub(super) fn ours() -> Result<Vec<Box<dyn Subject>>, Error> {
    let small = Host::with_topology(Topology::flat(64));
    let large = machines::load("epyc-9654-2s", Card::Mid)?.topology;
    let portable = Host::with_fronts(large.clone(), Fronts::Off, OwnerLocks::Exchanged);
    let large = Host::with_topology(large);
    let cannot = |why: InitError| Error::Invalid(why.to_string());
    let mut all: Vec<Box<dyn Subject>> = vec![Box::new(Floor::new(2))];
    if small.fronts() == Fronts::Restartable {
        all.push(Box::new(OwnWords::new(&small)));
    }
    all.extend(
        Maker::new(&small)
            .map_err(cannot)?
            .each(None)
            .map_err(cannot)?,
    );
    let far = first_of_another_cache(large.topology());
    all.extend(
        Maker::new(&large)
            .map_err(cannot)?
            .each(far)
            .map_err(cannot)?,
    );
    let maker = Maker::new(&large).map_err(cannot)?;
    all.push(maker.local("one-sided, grown, local").map_err(cannot)?);
    let near = [CpuId(0), CpuId(1)];
    let maker = Maker::new(&portable).map_err(cannot)?;
    let atomic = maker.one_sided().map_err(cannot)?;
    all.push(maker.of("one-sided, grown, atomic", near, atomic));
    let local = maker.local("one-sided, grown, atomic, local");
    all.push(local.map_err(cannot)?);
    Ok(all)
}

/// The first CPU that does not share a last-level cache with CPU 0. `None` if all CPUs share one
/// cache.
fn first_of_another_cache(topology: &Topology) -> Option<CpuId> {
    let llc = |cpu| topology.place(cpu).llc;
    topology.ids().find(|&cpu| llc(cpu) != llc(CpuId(0)))
}

/// Makes Plimsoll's counters, which the benchmark measures, for the CPUs of the machine `host`.
struct Maker<'a> {
    host: &'a Host,
    area: Arc<Area<Host>>,
    published: Arc<Shape>,
    along: Arc<Shape>,
}

impl<'a> Maker<'a> {
    fn new(host: &'a Host) -> Result<Self, InitError> {
        let topology = host.topology();
        let cpus = topology.cpus();
        let too_many = |_| InitError::Cpus {
            shape: 1 << 20,
            machine: cpus,
        };
        let fan_in = OneSidedTree::<Host>::FAN_IN;
        let along = Shape::of_topology(topology, Batch::RSS, fan_in).map_err(too_many)?;
        let published = Shape::published(cpus, Batch::RSS).map_err(too_many)?;
        Ok(Self {
            host,
            area: Arc::new(Area::new(host, WIDTH)?),
            published: Arc::new(published),
            along: Arc::new(along),
        })
    }

    /// Creates one counter of each kind. Two threads, which play CPUs 0 and 1, add to each counter.
    ///
    /// If `far` is a CPU, also creates three trees:
    ///
    /// * The first is the tree of the published Linux patch. The threads play CPUs 0 and 64,
    ///   because CPUs whose numbers differ by 64 share an item (an inner node) of this tree.
    /// * The second is Plimsoll's tree. The threads play CPU 0 and `far`. They share no item,
    ///   because only neighbouring CPUs share an item of Plimsoll's tree.
    /// * The third is Plimsoll's tree again. The threads play no CPU: each addition asks the kernel
    ///   on which CPU its thread runs.
    fn each(&self, far: Option<CpuId>) -> Result<Vec<Box<dyn Subject>>, InitError> {
        let (host, area) = (self.host, &self.area);
        let line = OneSidedTree::init_many(host, area, &self.along)?;
        let near = [CpuId(0), CpuId(1)];
        let mut all = vec![
            self.of("shared", near, Shared::init_many(host, WIDTH)?),
            self.of("flat", near, Flat::init_many(host, area)?),
            self.of("tree", near, self.tree()?),
            self.of("one-sided, new", near, line),
            self.of("one-sided, grown", near, self.one_sided()?),
        ];
        if let Some(far) = far {
            let same_item = [CpuId(0), CpuId(64)];
            all.push(self.of("tree, item shared", same_item, self.tree()?));
            all.push(self.of("one-sided, apart", [CpuId(0), far], self.one_sided()?));
            all.push(self.of("one-sided, not entered", None, self.one_sided()?));
        }
        Ok(all)
    }

    fn tree(&self) -> Result<Tree<Host>, InitError> {
        let lines = Tree::<Host>::items_lines(&self.published, WIDTH);
        let items = Items::new(self.host, lines)?;
        Tree::init_many(self.host, &self.area, &self.published, items)
    }

    fn one_sided(&self) -> Result<OneSidedTree<Host>, InitError> {
        let lines = OneSidedTree::<Host>::items_lines(&self.along);
        let items = Items::new(self.host, lines)?;
        OneSidedTree::init_many_grown(self.host, &self.area, &self.along, items)
    }

    /// Creates Plimsoll's tree. The threads, which play CPUs 0 and 1, add through a `LocalTree`.
    fn local(&self, name: &'static str) -> Result<Box<dyn Subject>, InitError> {
        Ok(Box::new(Local(Of {
            name,
            host: self.host.clone(),
            plays: Some([CpuId(0), CpuId(1)]),
            counters: self.one_sided()?,
        })))
    }

    fn of<C: Counters<Host> + Send + Sync + 'static>(
        &self,
        name: &'static str,
        plays: impl Into<Option<[CpuId; 2]>>,
        counters: C,
    ) -> Box<dyn Subject> {
        Box::new(Of {
            name,
            host: self.host.clone(),
            plays: plays.into(),
            counters,
        })
    }
}

/// The number of counters in a group: as many as a process has. The benchmark adds to only one
/// counter of the group.
const WIDTH: usize = 4;
/// The index, in its group, of the counter that the benchmark measures.
const COUNTER: usize = 1;

/// A group of Plimsoll's counters, of which the benchmark measures one.
struct Of<C> {
    name: &'static str,
    host: Host,
    /// Each of the two threads acts as one of these CPUs of `host`. `None` means that each addition
    /// asks the kernel on which CPU the thread runs.
    plays: Option<[CpuId; 2]>,
    counters: C,
}

impl<C: Counters<Host> + Send + Sync> Subject for Of<C> {
    fn name(&self) -> String {
        format!("{}, {} CPUs", self.name, self.host.topology().cpus())
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        self.plays.map(|plays| self.host.enter(plays[thread]))
    }

    #[inline]
    fn add(&self, delta: i64) {
        self.counters.add_growing(&self.host, COUNTER, delta);
    }

    #[inline]
    fn approximate_sum(&self) -> Option<i64> {
        Some(self.counters.approximate_sum(&self.host, COUNTER))
    }

    #[inline]
    fn precise_sum(&self) -> i64 {
        self.counters.precise_sum(&self.host, COUNTER)
    }
}

/// A group of one-sided counters, to one of which threads add through a `LocalTree`.
struct Local(Of<OneSidedTree<Host>>);

impl Subject for Local {
    fn name(&self) -> String {
        self.0.name()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        self.0.enter(thread)
    }

    fn add(&self, delta: i64) {
        self.add_all(&[delta]);
    }

    fn add_all(&self, deltas: &[i64]) {
        let Of { host, counters, .. } = &self.0;
        let here = counters.local(host, host.this_cpu());
        for &delta in deltas {
            here.add(host, COUNTER, delta);
        }
    }

    fn approximate_sum(&self) -> Option<i64> {
        self.0.approximate_sum()
    }

    fn precise_sum(&self) -> i64 {
        self.0.precise_sum()
    }
}

/// Words of the CPUs 0 and 1 of a machine. Each of the two threads adds to the word of the CPU that
/// it plays, by a restartable sequence. A one-sided counter adds to a cell in the same way.
struct OwnWords {
    host: Host,
    words: [PaddedWord; 2],
}

#[repr(align(128))]
struct PaddedWord(<Host as Machine>::LocalWord);

impl OwnWords {
    fn new(host: &Host) -> Self {
        Self {
            host: host.clone(),
            words: [0, 1].map(|cpu| PaddedWord(host.local_word(CpuId(cpu), 0))),
        }
    }
}

impl Subject for OwnWords {
    fn name(&self) -> String {
        "own word, by a sequence".to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        SLOT.set(thread);
        Some(self.host.enter([CpuId(0), CpuId(1)][thread]))
    }

    #[inline]
    fn add(&self, delta: i64) {
        let slot = SLOT.get();
        let cpu = [CpuId(0), CpuId(1)][slot];
        let word = &self.words[slot].0;
        let add = |word: &<Host as Machine>::LocalWord| word.add_here(&self.host, cpu, delta);
        let again = || word.admits(&self.host, cpu) && add(word).is_some();
        if add(word).is_none() && !again() {
            // The kernel has moved the thread from the home of this CPU. No other thread adds to the
            // word, so the count stays exact.
            word.add(&self.host, delta);
        }
    }

    fn precise_sum(&self) -> i64 {
        let words = self.words.iter();
        words.map(|word| word.0.read(&self.host)).sum()
    }
}

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// The floor, with which all counters are compared: the cost of an atomic addition to a word that
/// no other thread uses. Each thread has a slot in cache lines of its own, and stores the slot's
/// index.
struct Floor(Box<[PaddedCounter]>);

#[repr(align(128))]
struct PaddedCounter(AtomicI64);

impl Floor {
    fn new(slots: usize) -> Self {
        Self(
            (0..slots)
                .map(|_| PaddedCounter(AtomicI64::new(0)))
                .collect(),
        )
    }
}

impl Subject for Floor {
    fn name(&self) -> String {
        "floor: own atomic".to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        SLOT.set(thread);
        None
    }

    // Relaxed: no other memory access has to be ordered with this addition.
    #[inline]
    fn add(&self, delta: i64) {
        self.0[SLOT.get()].0.fetch_add(delta, Relaxed);
    }

    fn precise_sum(&self) -> i64 {
        self.0.iter().map(|slot| slot.0.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_counts_what_two_threads_add() {
        for subject in ours().expect("the counters can be made") {
            for thread in [0, 1] {
                let _entered = subject.enter(thread);
                subject.add_all(&[1, 40, 500]);
            }
            assert_eq!(subject.precise_sum(), 2 * 541, "{}", subject.name());
        }
    }

    #[test]
    fn the_bench_has_a_row_for_additions_by_sequences_and_one_without_them() {
        let all = ours().expect("the counters can be made");
        let has = |name: &str| all.iter().any(|subject| subject.name() == name);
        let sequences = Fronts::Restartable.is_available();
        assert_eq!(has("own word, by a sequence"), sequences);
        assert!(has("one-sided, grown, atomic, 384 CPUs"));
    }
}
