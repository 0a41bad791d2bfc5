//! Laws (tests for threads, model checkers and the simulator) of the parts that address spaces
//! share: pages of an object, swap slots, the lists of used pages, and the batches of memory in
//! which gathers (Linux: `mmu_gather`) record pages.

use alloc::vec;
use core::array;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::dying::Dying;
use super::{Body, FewPages, Law, few_pages};
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::Request;
use crate::page::watermark::Urgency;
use crate::space::batches::{BATCHES_MAX, Batches, Share};
use crate::space::lru::Lru;
use crate::space::object::{Object, ObjectKind};
use crate::space::reap::Reaping;
use crate::space::swap::{SwapArea, SwapSlot};
use crate::units::{Order, Pfn};

/// The state of a test: an object (a file or shared memory) of which two CPUs touch the same page.
pub struct Touched<M: Machine> {
    few: FewPages<M>,
    object: Object<M>,
    /// For each CPU, the number of the frame that it got by its touch, or −1 before the touch.
    seen: [M::Word; 2],
}

impl<M: Machine> fmt::Debug for Touched<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Touched").finish_non_exhaustive()
    }
}

impl<M: Machine> Touched<M> {
    const INDEX: u64 = 7;

    fn new(machine: &M) -> Self {
        Self {
            few: few_pages(machine, Design::OURS),
            object: Object::new(machine, ObjectKind::Shared),
            seen: array::from_fn(|_| machine.word(-1)),
        }
    }

    fn touch(&self, machine: &M) {
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let pfn = self
            .object
            .page(machine, &self.few.pages, Self::INDEX, request)
            .expect("a fresh arena has pages");
        self.seen[machine.this_cpu().index()].swap(machine, i64::from(pfn.0), AcqRel);
    }

    /// Asserts that both CPUs got the same page, and that no other page stays allocated.
    fn is_one_page(&self, machine: &M) {
        let [first, second] = self.seen.each_ref().map(|word| word.load(machine, Acquire));
        assert!(first >= 0 && first == second, "{first} and {second}");
        assert_eq!(self.object.present(machine), 1);
        self.object.empty(machine, &self.few.pages);
        assert_eq!(self.object.present(machine), 0);
        self.few.is_whole(machine);
    }
}

/// Two CPUs touch a page of an object for the first time. Both get the same page.
#[must_use]
pub fn touching_at_once<M: Machine>() -> Law<M, Touched<M>> {
    let touch: Body<M, Touched<M>> = |machine, touched| touched.touch(machine);
    Law {
        name: "a page of an object is one page, whichever CPU touches it first",
        setup: Touched::new,
        bodies: vec![touch, touch],
        check: |machine, touched| touched.is_one_page(machine),
    }
}

/// The state of the tests of swap slots: three swap slots, and the number of CPUs that hold each.
/// One slot is taken from the start.
pub struct FewSlots<M: Machine> {
    area: SwapArea<M>,
    holders: [M::Word; 3],
    contested: SwapSlot,
    accepted: M::Word,
}

impl<M: Machine> fmt::Debug for FewSlots<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FewSlots").finish_non_exhaustive()
    }
}

impl<M: Machine> FewSlots<M> {
    fn new(machine: &M) -> Self {
        let area = SwapArea::new(machine, 3).expect("memory for three slots");
        let [contested, given @ ..] = [(); 3].map(|()| area.take(machine).expect("one of three"));
        // After this call, both CPUs find the same swap slot first on the list of free slots.
        area.give_back(machine, &given).expect("they were taken");
        Self {
            area,
            holders: array::from_fn(|_| machine.word(0)),
            contested,
            accepted: machine.word(0),
        }
    }

    /// Takes a swap slot, asserts that no other CPU holds it, and frees it.
    fn churns(&self, machine: &M) {
        let slot = self.area.take(machine).expect("there is one for each");
        let holders = &self.holders[slot.0 as usize];
        assert_eq!(
            holders.add(machine, 1, AcqRel),
            1,
            "{slot:?} has one holder"
        );
        holders.add(machine, -1, AcqRel);
        self.area.give_back(machine, &[slot]).expect("it was taken");
    }

    /// Frees the swap slot that the other CPU frees too, and counts the call if it succeeds.
    fn gives(&self, machine: &M) {
        if self.area.give_back(machine, &[self.contested]).is_ok() {
            self.accepted.add(machine, 1, AcqRel);
        }
    }

    fn is_free(&self, machine: &M, accepted: i64) {
        assert_eq!(self.accepted.load(machine, Acquire), accepted);
        let left = 1 - u32::from(accepted == 1);
        assert_eq!(self.area.used(machine), left, "no slot is lost");
        for _ in left..3 {
            assert!(self.area.take(machine).is_some(), "the others can be had");
        }
        assert_eq!(self.area.take(machine), None, "and no more");
    }
}

/// Two CPUs each take and free a swap slot at the same time. They never get the same slot.
#[must_use]
pub fn slots_are_not_shared<M: Machine>() -> Law<M, FewSlots<M>> {
    let churns: Body<M, FewSlots<M>> = |machine, few| few.churns(machine);
    Law {
        name: "a slot of swap has one holder, and none is lost",
        setup: FewSlots::new,
        bodies: vec![churns, churns],
        check: |machine, few| few.is_free(machine, 0),
    }
}

/// Two CPUs free the same swap slot at the same time. One of the two calls returns an error.
#[must_use]
pub fn slot_given_back_twice<M: Machine>() -> Law<M, FewSlots<M>> {
    let gives: Body<M, FewSlots<M>> = |machine, few| few.gives(machine);
    Law {
        name: "of two CPUs that give the same slot back at once, one gets an error",
        setup: FewSlots::new,
        bodies: vec![gives, gives],
        check: |machine, few| few.is_free(machine, 1),
    }
}

/// The state of a test: the lists of used pages, and a batch of pages that CPU 0 has not moved to
/// the lists yet. The batch is nearly full.
pub struct Aged<M: Machine> {
    few: FewPages<M>,
    lru: Lru<M>,
}

impl<M: Machine> fmt::Debug for Aged<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aged").finish_non_exhaustive()
    }
}

impl<M: Machine> Aged<M> {
    fn new(machine: &M) -> Self {
        let aged = Self {
            few: few_pages(machine, Design::OURS),
            lru: Lru::new(machine),
        };
        // After these additions, the batch of CPU 0 has room for only one more page.
        (0..30).for_each(|_| aged.add(machine));
        aged
    }

    fn add(&self, machine: &M) {
        self.lru.add(machine, &self.few.pages, Pfn(0));
    }

    /// Adds two used pages, the first of which fills this CPU's batch.
    fn adds(&self, machine: &M) {
        self.add(machine);
        self.add(machine);
    }

    /// Adds a page, moves this CPU's batch to the lists, and removes more pages than it added.
    fn drains(&self, machine: &M) {
        self.add(machine);
        self.lru.drain(machine, &self.few.pages);
        self.lru
            .remove(machine, &self.few.pages, &[Pfn(0), Pfn(1), Pfn(2)]);
    }

    /// Asserts that the LRU lists and the CPUs' batches together count `expected` used pages. Then
    /// moves all batches to the lists, and asserts the same again.
    fn is_exact(&self, machine: &M, expected: i64) {
        assert_eq!(self.lru.total(machine), expected);
        self.lru.drain(machine, &self.few.pages);
        assert_eq!(self.lru.total(machine), expected);
    }
}

/// One CPU fills its batch of used pages while another moves its own batch to the lists and removes
/// pages. No page is lost or counted twice.
#[must_use]
pub fn aging_at_once<M: Machine>() -> Law<M, Aged<M>> {
    Law {
        name: "no used page is lost or counted twice between the batches and the lists",
        setup: Aged::new,
        bodies: vec![|machine, aged| aged.adds(machine), |machine, aged| {
            aged.drains(machine);
        }],
        check: |machine, aged| aged.is_exact(machine, 30 + 2 + 1 - 3),
    }
}

/// The state of a test: batches of memory in which gathers (Linux: `mmu_gather`) record pages. All
/// batches but one are kept for dying address spaces.
pub struct FewBatches<M: Machine>(Batches<M>);

impl<M: Machine> fmt::Debug for FewBatches<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FewBatches").finish_non_exhaustive()
    }
}

impl<M: Machine> FewBatches<M> {
    const ALL: usize = BATCHES_MAX + 1;

    fn new(machine: &M) -> Self {
        let all = u32::try_from(Self::ALL).expect("a few");
        Self(Batches::new(machine, all).expect("memory for a few batches"))
    }

    fn exits(&self, machine: &M) {
        let got = self.churns(machine, Share::Dying);
        assert_eq!(got, 2, "there are enough for the dying");
    }

    fn unmaps(&self, machine: &M) {
        let got = self.churns(machine, Share::Living);
        assert!(got < 2, "all but one are kept for the dying");
    }

    fn is_whole(&self, machine: &M) {
        assert_eq!(self.0.spare(machine), Self::ALL, "no batch is lost");
    }

    /// Takes up to two batches for a gather (Linux: `mmu_gather`) and gives them back. `share` says
    /// whether the address space is dying. Returns the number of batches that the gather got.
    fn churns(&self, machine: &M, share: Share) -> usize {
        let taken = [(); 2].map(|()| self.0.take(machine, share));
        let got = taken.iter().flatten().count();
        self.0.give_back(machine, taken.into_iter().flatten());
        got
    }
}

/// One CPU empties a dying address space and another one unmaps pages of a living one; both take
/// batches for the records of these pages. The second CPU leaves enough batches to the first.
#[must_use]
pub fn batches_for_the_dying<M: Machine>() -> Law<M, FewBatches<M>> {
    Law {
        name: "the living leave batches to the dying, and no batch is lost",
        setup: FewBatches::new,
        bodies: vec![|machine, few| few.exits(machine), |machine, few| {
            few.unmaps(machine);
        }],
        check: |machine, few| few.is_whole(machine),
    }
}

/// A gather (Linux: `mmu_gather`) is full, because there was no memory for another batch of
/// records. The caller may still add one more record. The gather keeps this record even if another
/// gather gives a batch back just before.
#[must_use]
pub fn a_late_batch<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "a gather that was full keeps one more record, although there is a batch again",
        setup: |machine| Dying::bare(machine, Reaping::MeetInTheMiddle),
        bodies: vec![|machine, dying| dying.keeps_a_late_record(machine)],
        check: |_, _| {},
    }
}
