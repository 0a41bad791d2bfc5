//! The mappings of the threads of one process, as Linux keeps and locks them.
//!
//! Each thread maps memory of the same kind, and the kernel places a new mapping into the highest
//! gap in which it fits, so the mappings touch. Linux merges anonymous mappings that touch into one
//! mapping (`vma_merge`). So most of the time, many threads cause faults in one mapping. Each
//! thread writes the mapping's reference count twice for each fault (`vma_start_read`,
//! `vma_end_read`).
//!
//! A thread that maps or unmaps memory changes such a shared mapping: it extends or splits the
//! mapping. Before the change, the thread locks the mapping and waits until no other thread is in a
//! fault of the mapping (`vma_start_write`). The mapping stays locked until the thread releases the
//! mmap_lock, or turns the mmap_lock into a reader's lock. Another thread that causes a fault in
//! the meantime takes the mmap_lock as a reader. So this thread waits behind all tasks that already
//! wait for the mmap_lock.
//!
//! The first fault of a mapping gives the mapping an `anon_vma`, and needs the mmap_lock for this.
//! Two mappings that touch can merge unless they have two different `anon_vma`s.
//!
//! In Linux, a fault that was locked out because another CPU was changing the mapping tries once
//! more without the mmap_lock. In the simulation, the fault takes the mmap_lock at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{Machine, Word};
use plimsoll_mm::site::Work;
use plimsoll_sim::Sim;

/// A writer adds this number to the reference count of a mapping. The number is larger than any
/// number of threads that are in faults at the same time.
const WRITER: i64 = 1 << 30;

/// The interval, in nanoseconds, at which a waiting writer checks whether the last fault has left
/// the mapping.
const LOOK_AGAIN_NS: u32 = 200;

/// The mappings of a process. The addresses of the process are divided into places, each as large
/// as the memory that one thread maps. The place with the highest addresses has the index 0.
#[derive(Default)]
pub(super) struct Vmas {
    places: RefCell<Vec<Option<Rc<Vma>>>>,
    /// The mappings that the holder of the mmap_lock has locked.
    locked: RefCell<Vec<Rc<Vma>>>,
    anon_vmas: Cell<u32>,
}

/// One mapping, which covers one or more places.
struct Vma {
    /// How many threads are in a fault of this mapping (Linux: `vm_refcnt`).
    readers: <Sim as Machine>::Word,
    /// True while a writer changes the mapping.
    locked: Cell<bool>,
    /// The number that identifies the mapping's `anon_vma`, if the mapping has one.
    anon_vma: Cell<Option<u32>>,
}

/// A mapping in which the caller can handle a fault, until it calls [`Entered::leave`].
pub(super) struct Entered(Rc<Vma>);

impl Vmas {
    /// Maps the highest free place and returns the place's index. The caller holds the mmap_lock
    /// exclusively, and must call [`Vmas::unlock_all`] before it releases the mmap_lock.
    pub(super) fn map(&self, sim: &Sim) -> usize {
        let free = self.places.borrow().iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.borrow_mut().push(None);
            self.places.borrow().len() - 1
        });
        let above = place.checked_sub(1).and_then(|above| self.at(above));
        let below = self.at(place + 1);
        for vma in above.iter().chain(&below) {
            self.lock(sim, vma);
        }
        sim.spend(Work::MapEdit, 1);
        let vma = match (above, below) {
            (Some(above), Some(below)) if above.merges_with(&below) => {
                above
                    .anon_vma
                    .set(above.anon_vma.get().or(below.anon_vma.get()));
                self.replace_run(place + 1, &below, &above);
                above
            }
            (Some(vma), _) | (None, Some(vma)) => vma,
            (None, None) => self.made(sim),
        };
        self.places.borrow_mut()[place] = Some(vma);
        place
    }

    /// Takes `place` (the index of a range of addresses) out of its mapping. If the mapping covers
    /// places both above and below `place`, it becomes two mappings. The caller holds the mmap_lock
    /// as in [`Vmas::map`].
    pub(super) fn unmap(&self, sim: &Sim, place: usize) {
        let vma = self.at(place).expect("the place is mapped");
        self.lock(sim, &vma);
        let is_same = |other: Option<Rc<Vma>>| other.is_some_and(|other| Rc::ptr_eq(&other, &vma));
        let above = place
            .checked_sub(1)
            .is_some_and(|below| is_same(self.at(below)));
        let below = is_same(self.at(place + 1));
        // The removal is one change. If the mapping continues above or below the place, the split
        // on that side is one more change.
        sim.spend(Work::MapEdit, 1 + u32::from(above) + u32::from(below));
        self.places.borrow_mut()[place] = None;
        if above && below {
            let rest = self.made(sim);
            rest.anon_vma.set(vma.anon_vma.get());
            self.replace_run(place + 1, &vma, &rest);
        }
    }

    /// Unlocks all mappings that the holder of the mmap_lock has locked (Linux:
    /// `vma_end_write_all`).
    pub(super) fn unlock_all(&self) {
        for vma in self.locked.take() {
            vma.locked.set(false);
        }
    }

    /// Lets the caller handle a fault in the mapping of `place`. If the mapping has no `anon_vma`
    /// yet, calls `prepare`, which returns whether the caller is allowed to give the mapping an
    /// `anon_vma`. Returns `None` if `prepare` returns false, if a writer has locked the mapping,
    /// or if `place` now belongs to another mapping.
    pub(super) fn enter(
        &self,
        sim: &Sim,
        place: usize,
        prepare: impl FnOnce() -> bool,
    ) -> Option<Entered> {
        let entered = Entered::of(sim, self.at(place).expect("the place is mapped"))?;
        let vma = &entered.0;
        let is_current = self.at(place).is_some_and(|other| Rc::ptr_eq(&other, vma));
        if is_current && !vma.locked.get() {
            if vma.anon_vma.get().is_some() {
                return Some(entered);
            }
            if prepare() {
                self.prepare(vma);
                return Some(entered);
            }
        }
        entered.leave(sim);
        None
    }

    /// Gives the mapping of `place` an `anon_vma`, if it has none. The caller holds the mmap_lock.
    pub(super) fn prepare_at(&self, place: usize) {
        let vma = self.at(place).expect("the place is mapped");
        self.prepare(&vma);
    }

    fn prepare(&self, vma: &Vma) {
        if vma.anon_vma.get().is_none() {
            self.anon_vmas.set(self.anon_vmas.get() + 1);
            vma.anon_vma.set(Some(self.anon_vmas.get()));
        }
    }

    fn at(&self, place: usize) -> Option<Rc<Vma>> {
        self.places.borrow().get(place).cloned().flatten()
    }

    /// Makes `new` the mapping of all places (equally large address ranges) that `old` covers, from
    /// the place with the index `first` on.
    fn replace_run(&self, first: usize, old: &Rc<Vma>, new: &Rc<Vma>) {
        for place in self.places.borrow_mut().iter_mut().skip(first) {
            match place {
                Some(vma) if Rc::ptr_eq(vma, old) => *vma = Rc::clone(new),
                _ => return,
            }
        }
    }

    /// Makes a mapping and locks it. The mapping stays locked until [`Vmas::unlock_all`] is called.
    fn made(&self, sim: &Sim) -> Rc<Vma> {
        let vma = Rc::new(Vma::new(sim));
        self.lock(sim, &vma);
        vma
    }

    /// Locks `vma`, and waits until no thread is in a fault of this mapping (Linux:
    /// `vma_start_write`).
    fn lock(&self, sim: &Sim, vma: &Rc<Vma>) {
        if vma.locked.get() {
            return;
        }
        let mut readers = vma.readers.add(sim, WRITER, Ordering::Acquire) - WRITER;
        vma.locked.set(true);
        self.locked.borrow_mut().push(Rc::clone(vma));
        while readers > 0 {
            sim.spend(Work::Think, LOOK_AGAIN_NS);
            readers = vma.readers.load(sim, Ordering::Acquire) - WRITER;
        }
        vma.readers.add(sim, -WRITER, Ordering::Release);
    }
}

impl Vma {
    fn new(sim: &Sim) -> Self {
        Self {
            readers: sim.word(0),
            locked: Cell::new(false),
            anon_vma: Cell::new(None),
        }
    }

    /// Returns whether this mapping and the mapping `below` become one when a new mapping fills the
    /// gap between them.
    fn merges_with(&self, below: &Self) -> bool {
        match (self.anon_vma.get(), below.anon_vma.get()) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }
}

impl Entered {
    /// Counts one more fault of `vma`. Returns `None` if a writer waits until the faults of `vma`
    /// end.
    ///
    /// The count must not change while a writer waits, so Linux reads the count and then changes it
    /// by compare-and-exchange: two accesses of the line. If another CPU changes the count between
    /// the two accesses, the exchange fails. But the failed exchange has fetched the line, so a
    /// second exchange succeeds at once. The simulator would queue the second exchange behind all
    /// CPUs that wait for the line. So instead of the exchange, the simulation uses an addition,
    /// which cannot fail.
    fn of(sim: &Sim, vma: Rc<Vma>) -> Option<Self> {
        if vma.readers.load(sim, Ordering::Acquire) >= WRITER {
            return None;
        }
        vma.readers.add(sim, 1, Ordering::Acquire);
        Some(Self(vma))
    }

    /// Ends the fault.
    pub(super) fn leave(&self, sim: &Sim) {
        self.0.readers.add(sim, -1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::SimOptions;
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;

    fn machine() -> Sim {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        Sim::new(&profile, SimOptions::default())
    }

    /// For each place, the number of its mapping, or `None` if nothing is mapped in the place. The
    /// mappings are numbered in the order of the places.
    fn shape(vmas: &Vmas) -> Vec<Option<usize>> {
        let mut seen: Vec<*const Vma> = Vec::new();
        let mut number = |vma: &Rc<Vma>| {
            let vma = Rc::as_ptr(vma);
            let known = seen.iter().position(|other| *other == vma);
            known.unwrap_or_else(|| {
                seen.push(vma);
                seen.len() - 1
            })
        };
        let places = vmas.places.borrow();
        places
            .iter()
            .map(|other| other.as_ref().map(&mut number))
            .collect()
    }

    #[test]
    fn mappings_that_touch_are_one_and_a_hole_splits_it() {
        let (sim, vmas) = (machine(), Vmas::default());
        let change = |f: &dyn Fn() -> usize| {
            let place = f();
            vmas.unlock_all();
            place
        };
        let mapped: Vec<usize> = (0..4).map(|_| change(&|| vmas.map(&sim))).collect();
        assert_eq!(mapped, [0, 1, 2, 3]);
        assert_eq!(shape(&vmas), [Some(0); 4]);
        let unmap = |place| {
            vmas.unmap(&sim, place);
            place
        };
        change(&|| unmap(1));
        assert_eq!(shape(&vmas), [Some(0), None, Some(1), Some(1)]);
        assert_eq!(change(&|| vmas.map(&sim)), 1, "the highest hole");
        assert_eq!(shape(&vmas), [Some(0); 4], "the hole was filled");
    }

    #[test]
    fn mappings_with_different_anon_vmas_stay_apart() {
        let (sim, vmas) = (machine(), Vmas::default());
        for place in 0..3 {
            assert_eq!(vmas.map(&sim), place);
        }
        vmas.unmap(&sim, 1);
        vmas.unlock_all();
        for place in [0, 2] {
            let entered = vmas.enter(&sim, place, || true).expect("is not locked");
            entered.leave(&sim);
        }
        vmas.map(&sim);
        vmas.unlock_all();
        assert_eq!(shape(&vmas), [Some(0), Some(0), Some(1)]);
    }

    /// After a merge or a split, the mappings keep the `anon_vma`, so their next faults need no
    /// mmap_lock.
    #[test]
    fn an_anon_vma_survives_a_merge_and_a_split() {
        let (sim, vmas) = (machine(), Vmas::default());
        for place in 0..3 {
            assert_eq!(vmas.map(&sim), place);
        }
        vmas.unmap(&sim, 1);
        vmas.unlock_all();
        // Before the merge, only the lower mapping has an `anon_vma`.
        vmas.prepare_at(2);
        assert_eq!(vmas.map(&sim), 1);
        vmas.unlock_all();
        assert_eq!(shape(&vmas), [Some(0); 3]);
        let has_one = |place| {
            let entered = vmas.enter(&sim, place, || false);
            entered.map(|section| section.leave(&sim)).is_some()
        };
        assert!(has_one(0), "the merged mapping has it");
        vmas.unmap(&sim, 1);
        vmas.unlock_all();
        assert_eq!(shape(&vmas), [Some(0), None, Some(1)]);
        assert!(has_one(0) && has_one(2), "both parts have it");
    }

    #[test]
    fn a_split_is_one_more_change_for_each_side_on_which_the_mapping_goes_on() {
        let sim = machine();
        let changes: Rc<Cell<[u64; 3]>> = Rc::default();
        let seen = Rc::clone(&changes);
        sim.spawn(plimsoll_mm::units::CpuId(0), move |sim| {
            let vmas = Vmas::default();
            (0..4).for_each(|_| {
                vmas.map(sim);
            });
            let unmap = |place| {
                let spent = || sim.stats().work_ns[Work::MapEdit as usize];
                let before = spent();
                vmas.unmap(sim, place);
                vmas.unlock_all();
                spent() - before
            };
            seen.set([unmap(1), unmap(3), unmap(2)]);
        });
        sim.run();
        let [middle, end, alone] = changes.get();
        assert!(alone > 0);
        assert_eq!([middle, end], [3 * alone, 2 * alone]);
    }

    /// CPU 1 is in a fault of the lower of two mappings for 1 ms, while CPU 0 fills the gap between
    /// the mappings. The two mappings become one, so CPU 0 has to wait for that fault.
    #[test]
    fn a_writer_waits_for_the_faults_of_both_mappings_that_it_merges() {
        let sim = machine();
        let vmas = Rc::new(Vmas::default());
        for place in 0..3 {
            assert_eq!(vmas.map(&sim), place);
        }
        vmas.unmap(&sim, 1);
        vmas.unlock_all();
        vmas.prepare_at(2);
        let shared = Rc::clone(&vmas);
        sim.spawn(plimsoll_mm::units::CpuId(1), move |sim| {
            let entered = shared.enter(sim, 2, || true).expect("is not locked");
            sim.spend(Work::Think, 1_000_000);
            entered.leave(sim);
        });
        sim.spawn(plimsoll_mm::units::CpuId(0), move |sim| {
            sim.spend(Work::Think, 10_000);
            vmas.map(sim);
            vmas.unlock_all();
            assert!(sim.now().0 >= 1_000_000, "{:?}", sim.now());
        });
        sim.run();
    }

    /// Two CPUs map and unmap while two other CPUs fault. A fault that `enter` has let in counts as
    /// a reader of the mapping that covers the faulting address. No writer changes this mapping
    /// before the fault has ended.
    #[test]
    fn a_fault_that_was_let_in_is_in_a_mapping_that_does_not_change() {
        let profile = Profile::load("phone-8", Card::Mid).expect("built in");
        let sim = Sim::new(&profile, SimOptions::default());
        let vmas = Rc::new(Vmas::default());
        for place in 0..6 {
            assert_eq!(vmas.map(&sim), place);
        }
        vmas.unlock_all();
        let writing = Rc::new(Cell::new(false));
        let faults = Rc::new(Cell::new(0));
        for cpu in 0..4_u32 {
            let (vmas, writing) = (Rc::clone(&vmas), Rc::clone(&writing));
            let faults = Rc::clone(&faults);
            sim.spawn(plimsoll_mm::units::CpuId(cpu), move |sim| {
                for round in 0..400_u32 {
                    if cpu < 2 {
                        // The flag `writing` stands for the mmap_lock.
                        while writing.replace(true) {
                            sim.sleep(plimsoll_mm::units::Nanos(500));
                        }
                        vmas.unmap(sim, 1 + 2 * cpu as usize);
                        vmas.unlock_all();
                        vmas.map(sim);
                        vmas.unlock_all();
                        writing.set(false);
                        sim.spend(Work::Think, 300 + 37 * (round % 11));
                        continue;
                    }
                    let place = [0, 2, 4, 5][round as usize % 4];
                    if let Some(entered) = vmas.enter(sim, place, || true) {
                        let stays = || {
                            let now = vmas.at(place).expect("it is never unmapped");
                            Rc::ptr_eq(&now, &entered.0)
                        };
                        assert!(stays(), "it has the place");
                        sim.spend(Work::Think, 200 + 53 * (round % 7));
                        assert!(stays(), "a writer waits until it has left");
                        entered.leave(sim);
                        faults.set(faults.get() + 1);
                    }
                    sim.spend(Work::Think, 100 + 41 * (round % 5));
                }
            });
        }
        sim.run();
        assert!(faults.get() > 20, "{}", faults.get());
    }

    #[test]
    fn a_fault_of_a_mapping_that_changes_is_locked_out() {
        let (sim, vmas) = (machine(), Vmas::default());
        vmas.map(&sim);
        assert!(vmas.enter(&sim, 0, || true).is_none(), "it is being made");
        vmas.unlock_all();
        assert!(
            vmas.enter(&sim, 0, || false).is_none(),
            "it has no anon_vma"
        );
        vmas.prepare_at(0);
        assert!(vmas.enter(&sim, 0, || false).is_some());
    }
}
