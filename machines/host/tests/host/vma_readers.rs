//! Tests of threads that read the tree of mappings while another thread changes it.
//!
//! The start of a mapping determines its end and its id. So the tests notice if a reader puts
//! together a mapping from the parts of two mappings. Mappings are numbered in the order of their
//! addresses. Mappings with even numbers never change. Mappings with odd numbers are added,
//! removed, cut and overwritten.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
use plimsoll_mm::laws;
use plimsoll_mm::space::vma_tree::{Busy, Cursor, Editor, Finder, Vma, VmaTree};
use plimsoll_mm::units::Vpn;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::law::run_law;

/// The number of mappings: enough for three levels of nodes, and few enough that changes and
/// lookups overlap.
const NUMBERS: u64 = 4_001;
const APART: u64 = 32;
const LENGTH: Duration = Duration::from_millis(1500);

#[test]
fn readers_against_moves() {
    run_law(&laws::readers_against_moves(), 2, 3000);
}

#[test]
fn readers_against_additions() {
    run_law(&laws::readers_against_additions(), 2, 3000);
}

#[test]
fn cursors_against_splits() {
    run_law(&laws::cursors_against_splits(), 3, 1000);
}

fn vma(number: u64) -> Vma {
    let start = number * APART;
    Vma {
        start: Vpn(start),
        end: Vpn(start + number % (APART - 1) + 2),
        id: u32::try_from(number).expect("few mappings"),
    }
}

/// Returns the number of a mapping, and checks that the mapping is as it was added. The last page
/// of a mapping with an odd number may be missing.
fn number_of(met: Vma) -> u64 {
    let number = met.start.0 / APART;
    let mut cut = vma(number);
    cut.end.0 -= number % 2;
    assert!(met == vma(number) || met == cut, "torn: {met:?}");
    number
}

/// The number of lookups of one reader, and the number of those lookups that failed because the
/// tree was being changed.
#[derive(Debug, Default)]
struct Seen {
    looks: u64,
    busy: u64,
}

impl Seen {
    /// Counts a lookup. Returns the result of the lookup; `None` if the tree was being changed.
    fn got(&mut self, found: Result<Option<Vma>, Busy>) -> Option<Option<Vma>> {
        self.looks += 1;
        self.busy += u64::from(found.is_err());
        found.ok()
    }

    /// Looks up the mapping with the even number `even` in every possible way.
    fn look(&mut self, tree: &VmaTree<Host>, finder: &mut Finder<'_, Host>, even: u64) {
        let there = vma(even);
        let page = Vpn(there.start.0 + even % 2);
        for found in [
            tree.find(page),
            tree.prev(page),
            tree.next(page),
            finder.find(page),
        ] {
            let got = self.got(found);
            assert!(
                got.is_none_or(|found| found == Some(there)),
                "{got:?} for {there:?}"
            );
        }
        let Some(next) = self.got(tree.next(there.end)) else {
            return;
        };
        match next.map(number_of) {
            Some(number) => assert!(number == even + 1 || number == even + 2),
            None => assert_eq!(even, NUMBERS - 1),
        }
    }

    /// Walks forward over a few mappings, starting at the mapping with the even number `even`, and
    /// then back to that mapping.
    fn walk(&mut self, tree: &VmaTree<Host>, even: u64) {
        const FAR: u64 = 100;
        let mut cursor = Cursor::at(tree, vma(even).start);
        let mut next = even;
        // The loop ends: `next` rises at each step, except while the writer changes the tree.
        while next < even + FAR {
            let Some(met) = self.got(cursor.forward()) else {
                continue;
            };
            let Some(number) = met.map(number_of) else {
                assert_eq!(next, NUMBERS, "all up to the last were met");
                break;
            };
            // If the last page of a mapping was missing when the cursor returned the mapping, and
            // has been added since, the cursor returns the mapping a second time. Such a mapping
            // has an odd number.
            let again = number + 1 == next && !number.is_multiple_of(2);
            assert!(again || number == next || (number == next + 1 && !next.is_multiple_of(2)));
            next = number + 1;
        }
        // The loop ends: `next` falls at each step, except while the writer changes the tree.
        while next > even {
            let Some(met) = self.got(cursor.backward()) else {
                continue;
            };
            let number = number_of(met.expect("the even one is there"));
            assert!(number + 1 == next || (number + 2 == next && next.is_multiple_of(2)));
            next = number;
        }
    }
}

struct Writer {
    host: Host,
    editor: Editor,
    is_there: Vec<bool>,
    random: Xoshiro256PlusPlus,
}

impl Writer {
    /// Changes consecutive mappings with odd numbers, so that leaves of the tree fill up and become
    /// empty.
    fn change(&mut self, tree: &VmaTree<Host>) {
        let Self { host, editor, .. } = self;
        let first = self.random.random_range(0..NUMBERS / 2) * 2 + 1;
        let (run, action) = (
            self.random.random_range(1..80),
            self.random.random_range(0..4),
        );
        for number in (first..NUMBERS).step_by(2).take(run) {
            let there = &mut self.is_there[usize::try_from(number).expect("small")];
            let (whole, mut cut) = (vma(number), vma(number));
            cut.end.0 -= 1;
            let done = match (action, *there) {
                (0, true) => tree.erase(editor, whole.start).map(drop),
                (1, false) => tree.insert(host, editor, cut),
                (1, true) => tree.resize(host, editor, whole.start, whole),
                (2, _) => tree.store(host, editor, whole, drop),
                (3, _) => tree.clear(host, editor, whole.start..whole.end, drop),
                _ => continue,
            };
            done.expect("nothing is in the way");
            *there = matches!(action, 1 | 2);
        }
    }
}

#[test]
fn what_is_there_is_found_whatever_changes() {
    let host = Host::new();
    let (tree, mut editor) = VmaTree::new(&host).expect("memory for a node");
    for number in (0..NUMBERS).step_by(2) {
        tree.insert(&host, &mut editor, vma(number))
            .expect("nothing is in the way");
    }
    let mut writer = Writer {
        host,
        editor,
        is_there: vec![false; usize::try_from(NUMBERS).expect("small")],
        random: Xoshiro256PlusPlus::seed_from_u64(1),
    };
    let over = AtomicBool::new(false);
    let read = |seed: u64| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut seen, mut finder) = (Seen::default(), Finder::new(&tree));
        // Acquire pairs with the Release below, but nothing depends on the pairing.
        while !over.load(Acquire) {
            for _ in 0..100 {
                seen.look(&tree, &mut finder, random.random_range(0..=NUMBERS / 2) * 2);
            }
            seen.walk(&tree, random.random_range(0..=NUMBERS / 2) * 2);
        }
        seen
    };
    let (seen, changes) = thread::scope(|scope| {
        let readers = [2, 3, 4].map(|seed| scope.spawn(move || read(seed)));
        let began = Instant::now();
        let mut changes = 0_u64;
        while began.elapsed() < LENGTH && !readers.iter().any(|reader| reader.is_finished()) {
            writer.change(&tree);
            changes += 1;
        }
        over.store(true, Release);
        let seen = readers.map(|reader| reader.join().expect("a reader found everything"));
        (seen, changes)
    });
    tree.assert_whole(&writer.editor);
    println!("{changes} runs of changes; {seen:?}");
    for Seen { looks, busy } in seen {
        assert!(
            looks > 0 && busy <= looks / 2,
            "{busy} of {looks} were busy"
        );
    }
}
