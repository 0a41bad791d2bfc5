//! Laws (tests for threads, model checkers and the simulator) of a tree of mappings, for its
//! readers while another CPU changes it.
//!
//! Mappings have numbers. A mapping's start, end and id all follow from its number, so a reader
//! notices a mapping that mixes two others. Even mappings exist from the beginning to the end; odd
//! ones are added and removed.

use alloc::vec;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::{Body, Law};
use crate::machine::{Lock, Machine, Word};
use crate::site::{LockClass, Site};
use crate::space::vma_tree::{Busy, Cursor, Editor, Vma, VmaTree};
use crate::units::{CpuId, Vpn};

/// The state of the tests in this file: a tree of a few mappings, some of which one CPU adds and
/// removes.
pub struct FewVmas<M: Machine> {
    tree: VmaTree<M>,
    editor: M::Lock<Editor>,
    /// 1 after a mapping with an odd number has been added.
    added: M::Word,
    /// The number of possible mappings, which have the indices from 0 on. It is odd, so that the
    /// highest index is even.
    numbers: u64,
}

impl<M: Machine> fmt::Debug for FewVmas<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FewVmas").finish_non_exhaustive()
    }
}

/// The number of pages from the start of one mapping to the start of the next.
const APART: u64 = 16;

fn vma(number: u64) -> Vma {
    let start = number * APART;
    let id = u32::try_from(number * 3 + 1).expect("few mappings");
    Vma {
        start: Vpn(start),
        end: Vpn(start + number % APART + 1),
        id,
    }
}

impl<M: Machine> FewVmas<M> {
    fn new(machine: &M, numbers: u64) -> Self {
        let (tree, mut editor) = VmaTree::new(machine).expect("memory for a node");
        for number in (0..numbers).step_by(2) {
            tree.insert(machine, &mut editor, vma(number))
                .expect("nothing is in the way");
        }
        Self {
            tree,
            editor: machine.lock(LockClass::Mmap, CpuId(0), editor),
            added: machine.word(0),
            numbers,
        }
    }

    fn add(&self, machine: &M, number: u64) {
        self.editor.with(machine, Site::Mmap, |editor| {
            self.tree
                .insert(machine, editor, vma(number))
                .expect("nothing is in the way");
        });
        // Release pairs with the Acquire in `sees_what_was_added`.
        self.added.store(machine, 1, Release);
    }

    fn remove(&self, machine: &M, number: u64) {
        self.editor.with(machine, Site::Munmap, |editor| {
            let gone = self.tree.erase(editor, vma(number).start);
            assert_eq!(gone, Ok(vma(number)));
        });
    }

    /// Asserts that a mapping with an even number is found unchanged. A reader may also get
    /// [`Busy`], which tells the reader to take the lock instead.
    fn finds_even(&self, number: u64) {
        let found = self.tree.find(vma(number).start);
        assert!(
            matches!(found, Ok(Some(found)) if found == vma(number)) || found == Err(Busy),
            "{:?} was there all the time; found {found:?}",
            vma(number)
        );
    }

    /// Asserts that a mapping with an odd number is found if its addition was published before the
    /// first look-up. Also asserts that a mapping that was found once is found again.
    fn sees_what_was_added(&self, machine: &M, number: u64) {
        // Acquire pairs with the Release in `add`.
        let was_added = self.added.load(machine, Acquire) == 1;
        let first = self.tree.find(vma(number).start);
        let again = self.tree.find(vma(number).start);
        for found in [first, again] {
            let whole = matches!(found, Ok(Some(found)) if found == vma(number));
            assert!(whole || matches!(found, Ok(None) | Err(Busy)), "{found:?}");
        }
        let found_first = was_added || matches!(first, Ok(Some(_)));
        assert!(
            !found_first || !matches!(again, Ok(None)),
            "the added mapping is there"
        );
    }

    /// Asserts that an upward walk visits every mapping with an even number, in order, and no
    /// mapping that has never existed.
    fn goes_up(&self) {
        let mut cursor = Cursor::at(&self.tree, Vpn(0));
        self.meets_all(|| cursor.forward(), |number| number);
    }

    /// Walks downwards from the highest mapping. Asserts that the walk visits every mapping with an
    /// even number, in order, and no mapping that has never existed.
    fn goes_down(&self) {
        let mut cursor = Cursor::end(&self.tree);
        let highest = self.numbers - 1;
        self.meets_all(|| cursor.backward(), |number| highest.abs_diff(number));
    }

    /// Checks the mappings that a walk visits: every mapping with an even number, in order. `step`
    /// takes the walk to the next mapping. `turn` converts a mapping's number to its position in
    /// the walk, counted as if all mappings existed; an even number has an even position.
    fn meets_all(
        &self,
        mut step: impl FnMut() -> Result<Option<Vma>, Busy>,
        turn: impl Fn(u64) -> u64,
    ) {
        let mut next = 0;
        // The loop ends: every round but the last passes another mapping.
        loop {
            let met = match step() {
                Ok(Some(met)) => met,
                Ok(None) => return assert_eq!(next, self.numbers, "all were met"),
                Err(Busy) => return,
            };
            let number = met.start.0 / APART;
            assert_eq!(met, vma(number), "torn");
            let turn = turn(number);
            assert!(turn == next || turn == next + 1, "{turn} follows {next}");
            assert!(turn == next || next % 2 == 1, "{next} was missed");
            next = turn + 1;
        }
    }

    /// Asserts that the tree is valid. It must hold the mappings with even numbers and the mappings
    /// whose numbers are in `odd`, and no others.
    fn is_whole(&self, machine: &M, odd: &[u64]) {
        self.editor.with(machine, Site::Mmap, |editor| {
            self.tree.assert_whole(editor);
            let expected = self.numbers.div_ceil(2) + odd.len() as u64;
            assert_eq!(u64::from(editor.mappings()), expected);
        });
        for number in 0..self.numbers {
            let is_there = number % 2 == 0 || odd.contains(&number);
            let expected = is_there.then(|| vma(number));
            assert_eq!(self.tree.find(vma(number).start), Ok(expected));
        }
    }
}

/// A mapping is added before another mapping, which therefore moves up in its leaf. Meanwhile a CPU
/// looks for the moved mapping. If the lookup succeeds, it finds this mapping unchanged.
#[must_use]
pub fn readers_against_moves<M: Machine>() -> Law<M, FewVmas<M>> {
    Law {
        name: "a mapping that is there is found, whole, while another one is added before it",
        setup: |machine| FewVmas::new(machine, 3),
        bodies: vec![|machine, few| few.add(machine, 1), |_, few| {
            few.finds_even(2);
        }],
        check: |machine, few| few.is_whole(machine, &[1]),
    }
}

/// A mapping is added while another CPU looks for it. As soon as the adding CPU has said that the
/// mapping exists, a lookup finds it, and so do later lookups.
#[must_use]
pub fn readers_against_additions<M: Machine>() -> Law<M, FewVmas<M>> {
    Law {
        name: "a mapping is found as soon as its addition is announced, and found again",
        setup: |machine| FewVmas::new(machine, 1),
        bodies: vec![|machine, few| few.add(machine, 1), |machine, few| {
            few.sees_what_was_added(machine, 1);
        }],
        check: |machine, few| few.is_whole(machine, &[1]),
    }
}

/// The number of mappings that can exist. It is so large that adding mappings with odd numbers
/// splits a leaf that holds all mappings with even numbers.
const SPLITS: u64 = 63;

/// Leaves are split and joined while other CPUs walk up and down. A walk that does not give up
/// meets every mapping that exists during the whole walk.
#[must_use]
pub fn cursors_against_splits<M: Machine>() -> Law<M, FewVmas<M>> {
    let change: Body<M, FewVmas<M>> = |machine, few| {
        let odd = [31, 3, 59, 29, 33];
        odd.iter().for_each(|&number| few.add(machine, number));
        odd.iter().for_each(|&number| few.remove(machine, number));
    };
    Law {
        name: "a cursor meets every mapping that stays, while leaves are split",
        setup: |machine| FewVmas::new(machine, SPLITS),
        bodies: vec![
            change,
            |_, few| {
                few.goes_up();
                few.finds_even(30);
                few.goes_up();
            },
            |_, few| {
                few.goes_down();
                few.finds_even(32);
                few.goes_down();
            },
        ],
        check: |machine, few| few.is_whole(machine, &[]),
    }
}
