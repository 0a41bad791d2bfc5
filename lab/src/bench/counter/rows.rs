//! The counters that the bench measures: every kind of Plimsoll's counters, and floors, which do no
//! more than a counter must (see [`ours`]).

use std::sync::Arc;

use plimsoll_host::cpu::Entered;
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::counter::{
    Area, Batch, Counters, Flat, InitError, Items, OneSidedTree, Shape, Shared, Tree,
};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::Card;

use super::Subject;
use super::floors::{Floor, OwnWords};
use crate::catalog::machines;
use crate::error::Error;

/// Makes fresh counters. The first ones are floors:
///
/// * In the first, each thread adds to a word of its own by an atomic instruction.
/// * In the second, it also passes whole batches on to a line that both threads share. A tree of
///   counters must do so if the CPUs of both threads share an item. To find out whether a batch is
///   full, the thread needs the new value of its word, so it uses another atomic instruction.
/// * Two more, if this computer has restartable sequences, do the same by a sequence.
///
/// Then follow Plimsoll's counters on a machine of 64 CPUs and on a server of 384 CPUs. The last two
/// are counters that use no sequences.
pub(super) fn ours() -> Result<Vec<Box<dyn Subject>>, Error> {
    let small = Host::with_topology(Topology::flat(64));
    let large = machines::load("epyc-9654-2s", Card::Mid)?.topology;
    let portable = Host::with_fronts(large.clone(), Fronts::Off, OwnerLocks::Exchanged);
    let large = Host::with_topology(large);
    let cannot = |why: InitError| Error::Invalid(why.to_string());
    let passing = OwnWords::<true>::new("own atomic, batches of 32 to a shared line", &portable);
    let mut all: Vec<Box<dyn Subject>> = vec![Box::new(Floor::new(2)), Box::new(passing)];
    if small.fronts() == Fronts::Restartable {
        let passing = OwnWords::<true>::new("own word, batches of 32 to a shared line", &small);
        let own = OwnWords::<false>::new("own word, by a sequence", &small);
        all.push(Box::new(own));
        all.push(Box::new(passing));
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
    let near = [CpuId(0), CpuId(1)];
    let local = maker.local("one-sided, grown, local", near);
    all.push(local.map_err(cannot)?);
    if let Some(far) = far {
        let local = maker.local("one-sided, grown, local, apart", [CpuId(0), far]);
        all.push(local.map_err(cannot)?);
    }
    let maker = Maker::with_batch(&large, LARGE).map_err(cannot)?;
    let local = maker.local("one-sided, grown, local, batch 256", near);
    all.push(local.map_err(cannot)?);
    let maker = Maker::new(&portable).map_err(cannot)?;
    let atomic = maker.one_sided().map_err(cannot)?;
    all.push(maker.of("one-sided, grown, atomic", near, atomic));
    let local = maker.local("one-sided, grown, atomic, local", near);
    all.push(local.map_err(cannot)?);
    Ok(all)
}

/// The batch of one of the rows. It shows what a counter costs if its owner accepts an error that is
/// eight times as large as with [`Batch::RSS`].
const LARGE: Batch = match Batch::new(256) {
    Ok(batch) => batch,
    Err(_) => unreachable!(),
};

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
        Self::with_batch(host, Batch::RSS)
    }

    fn with_batch(host: &'a Host, batch: Batch) -> Result<Self, InitError> {
        let topology = host.topology();
        let cpus = topology.cpus();
        let too_many = |_| InitError::Cpus {
            shape: 1 << 20,
            machine: cpus,
        };
        let fan_in = OneSidedTree::<Host>::FAN_IN;
        let along = Shape::of_topology(topology, batch, fan_in).map_err(too_many)?;
        let published = Shape::published(cpus, batch).map_err(too_many)?;
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

    /// Creates Plimsoll's tree. The threads, which play the CPUs `plays`, add through a `LocalTree`.
    fn local(&self, name: &'static str, plays: [CpuId; 2]) -> Result<Box<dyn Subject>, InitError> {
        Ok(Box::new(Local(Of {
            name,
            host: self.host.clone(),
            plays: Some(plays),
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
        assert_eq!(has("own word, batches of 32 to a shared line"), sequences);
        assert!(has("one-sided, grown, atomic, 384 CPUs"));
    }

    /// The approximate sum is in the middle of its bound, which the batch and the number of items
    /// determine. So it tells the rows apart.
    #[test]
    fn local_rows_have_the_items_and_the_batch_of_their_names() {
        let all = ours().expect("the counters can be made");
        for (name, cells, items) in [
            ("one-sided, grown, local, 384 CPUs", 2 * 31, 512 - 32),
            (
                "one-sided, grown, local, apart, 384 CPUs",
                2 * 31,
                2 * (512 - 32),
            ),
            (
                "one-sided, grown, local, batch 256, 384 CPUs",
                2 * 255,
                4096 - 256,
            ),
            (
                "one-sided, grown, atomic, local, 384 CPUs",
                2 * 31,
                512 - 32,
            ),
        ] {
            let subject = all.iter().find(|subject| subject.name() == name);
            let subject = subject.expect(name);
            for thread in [0, 1] {
                let _entered = subject.enter(thread);
                subject.add(1);
            }
            let middle = (cells + items) / 2;
            assert_eq!(subject.approximate_sum(), Some(middle), "{name}");
        }
    }
}
