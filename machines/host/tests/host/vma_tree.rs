//! Compares the tree of mappings with a sorted map, and tests the tree's errors.

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll_host::Host;
use plimsoll_mm::space::vma_tree::{Cursor, Editor, Vma, VmaError, VmaTree};
use plimsoll_mm::units::Vpn;
use proptest::prelude::*;

/// A sorted map of mappings: the key is the first page, the value is the end and the id.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model(BTreeMap<u64, (u64, u32)>);

impl Model {
    fn vma((&start, &(end, id)): (&u64, &(u64, u32))) -> Vma {
        Vma {
            start: Vpn(start),
            end: Vpn(end),
            id,
        }
    }

    fn prev(&self, page: u64) -> Option<Vma> {
        self.0.range(..=page).next_back().map(Self::vma)
    }

    fn next(&self, page: u64) -> Option<Vma> {
        let covering = self.prev(page).filter(|vma| vma.end.0 > page);
        covering.or_else(|| self.0.range(page..).next().map(Self::vma))
    }

    fn insert(&mut self, new: Vma) -> Result<(), VmaError> {
        if let Some(there) = self.next(new.start.0).filter(|vma| vma.start < new.end) {
            return Err(VmaError::Overlaps(there));
        }
        self.0.insert(new.start.0, (new.end.0, new.id));
        Ok(())
    }

    fn clear(&mut self, pages: Range<u64>) -> Vec<Vma> {
        let mut gone = Vec::new();
        while let Some(there) = self.next(pages.start).filter(|vma| vma.start.0 < pages.end) {
            self.0.remove(&there.start.0);
            let cut = there.start.0.max(pages.start)..there.end.0.min(pages.end);
            if there.start.0 < cut.start {
                self.0.insert(there.start.0, (cut.start, there.id));
            }
            if cut.end < there.end.0 {
                self.0.insert(cut.end, (there.end.0, there.id));
            }
            gone.push(vma(cut, there.id));
        }
        gone
    }

    /// Returns the ranges in `allowed` that no mapping covers, in ascending order.
    fn free(&self, allowed: Range<u64>) -> Vec<Range<u64>> {
        let mut from = allowed.start;
        let mut free = Vec::new();
        for (&start, &(end, _)) in &self.0 {
            free.push(from..start.min(allowed.end));
            from = from.max(end);
        }
        free.push(from..allowed.end);
        free.retain(|range| range.start < range.end);
        free
    }
}

fn vma(pages: Range<u64>, id: u32) -> Vma {
    Vma {
        start: Vpn(pages.start),
        end: Vpn(pages.end),
        id,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vma),
    Erase(u64),
    Store(Vma),
    Clear(Range<u64>),
    Resize(u64, Vma),
    Gaps(u64, Range<u64>),
}

/// The tests use only page numbers below this one. It is low, so that the mappings of different
/// steps overlap.
const TOP: u64 = 4_000;

fn pages() -> impl Strategy<Value = Range<u64>> {
    (0..TOP, 1_u64..40).prop_map(|(start, len)| start..start + len)
}

fn any_vma() -> impl Strategy<Value = Vma> {
    (pages(), 0..=Vma::ID_MAX).prop_map(|(pages, id)| vma(pages, id))
}

fn step() -> impl Strategy<Value = Step> {
    let wide = (0..TOP, 0..TOP).prop_map(|(a, b)| a.min(b)..a.max(b));
    prop_oneof![
        8 => any_vma().prop_map(Step::Insert),
        4 => (0..TOP).prop_map(Step::Erase),
        2 => any_vma().prop_map(Step::Store),
        1 => pages().prop_map(Step::Clear),
        2 => (0..TOP, any_vma()).prop_map(|(near, new)| Step::Resize(near, new)),
        2 => (1_u64..60, wide).prop_map(|(len, allowed)| Step::Gaps(len, allowed)),
    ]
}

struct Both {
    host: Host,
    tree: VmaTree<Host>,
    editor: Editor,
    model: Model,
}

impl Both {
    fn new() -> Self {
        let host = Host::new();
        let (tree, editor) = VmaTree::new(&host).expect("memory for a node");
        Self {
            host,
            tree,
            editor,
            model: Model::default(),
        }
    }

    fn step(&mut self, step: Step) {
        let Self {
            host,
            tree,
            editor,
            model,
        } = self;
        match step {
            Step::Insert(new) => {
                assert_eq!(tree.insert(host, editor, new), model.insert(new));
            }
            Step::Erase(near) => {
                let start = model.next(near).map_or(near, |vma| vma.start.0);
                let expected = model.0.remove(&start).map(|(end, id)| vma(start..end, id));
                let erased = tree.erase(editor, Vpn(start));
                assert_eq!(erased, expected.ok_or(VmaError::NotMapped(Vpn(start))));
            }
            Step::Store(new) => {
                let expected = model.clear(new.start.0..new.end.0);
                model.insert(new).expect("the old mapping is gone");
                let mut gone = Vec::new();
                tree.store(host, editor, new, |vma| gone.push(vma))
                    .expect("memory");
                assert_eq!(gone, expected);
            }
            Step::Clear(pages) => {
                let mut gone = Vec::new();
                let range = Vpn(pages.start)..Vpn(pages.end);
                tree.clear(host, editor, range, |vma| gone.push(vma))
                    .expect("memory");
                assert_eq!(gone, model.clear(pages));
            }
            Step::Resize(near, new) => {
                let Some(old) = model.next(near) else { return };
                let before = model.clone();
                model.0.remove(&old.start.0);
                let expected = model.insert(new);
                if expected.is_err() {
                    *model = before;
                }
                let done = tree.resize(host, editor, old.start, new);
                assert_eq!(done.is_ok(), expected.is_ok(), "{old:?} to {new:?}");
            }
            Step::Gaps(len, allowed) => {
                let free = model.free(allowed.clone());
                let fits = |range: &&Range<u64>| range.end - range.start >= len;
                let range = Vpn(allowed.start)..Vpn(allowed.end);
                let lowest = free.iter().find(fits).map(|range| Vpn(range.start));
                assert_eq!(tree.lowest_gap(editor, len, range.clone()), lowest);
                let highest = free.iter().rfind(fits).map(|range| Vpn(range.end - len));
                assert_eq!(tree.highest_gap(editor, len, range), highest);
            }
        }
    }

    fn compare(&self, probes: &[u64]) {
        self.tree.assert_whole(&self.editor);
        let all: Vec<Vma> = self.model.0.iter().map(Model::vma).collect();
        assert_eq!(self.editor.mappings() as usize, all.len());
        let mut cursor = Cursor::at(&self.tree, Vpn(0));
        let forward = || cursor.forward().expect("no thread writes");
        assert!(std::iter::from_fn(forward).eq(all.iter().copied()));
        let mut cursor = Cursor::end(&self.tree);
        let backward = || cursor.backward().expect("no thread writes");
        assert!(std::iter::from_fn(backward).eq(all.iter().rev().copied()));
        for &page in probes {
            let at = Vpn(page);
            let prev = self.model.prev(page);
            assert_eq!(self.tree.prev(at), Ok(prev));
            assert_eq!(self.tree.next(at), Ok(self.model.next(page)));
            assert_eq!(self.tree.find(at), Ok(prev.filter(|vma| vma.contains(at))));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_tree_is_a_sorted_map(
        steps in prop::collection::vec(step(), 1..400),
        probes in prop::collection::vec(0..TOP + 50, 20),
    ) {
        let mut both = Both::new();
        for (nth, step) in steps.into_iter().enumerate() {
            both.step(step);
            if nth % 16 == 0 {
                both.compare(&probes[..4]);
            }
        }
        both.compare(&probes);
    }
}

#[test]
fn a_tree_takes_the_memory_of_its_nodes() {
    let mut both = Both::new();
    // An empty tree is one node, so this is the size of a node in bytes.
    let of_one = both.tree.bytes(&both.editor);
    assert!(of_one > 64, "a node is more than a cache line");
    for nth in 0..1000 {
        both.step(Step::Insert(vma(nth * 3..nth * 3 + 2, 7)));
        assert_eq!(both.tree.bytes(&both.editor) % of_one, 0);
    }
    // A thousand mappings need at least ten nodes, but fewer than a thousand, because a node has
    // room for several mappings.
    let nodes = both.tree.bytes(&both.editor) / of_one;
    assert!((10..1000).contains(&nodes), "{nodes} nodes");
}

#[test]
fn many_mappings_in_any_order_come_and_go() {
    let orders: [fn(u64) -> u64; 3] = [|nth| nth, |nth| 19_999 - nth, |nth| nth * 7_919 % 20_000];
    for order in orders {
        let mut both = Both::new();
        for nth in (0..20_000).map(order) {
            both.step(Step::Insert(vma(nth * 3..nth * 3 + 2, 7)));
        }
        both.compare(&[0, 1, 2, 29_999, 59_999]);
        let bytes = both.tree.bytes(&both.editor) as f64 / 20_000.0;
        assert!(bytes <= 40.0, "{bytes} bytes a mapping");
        for nth in (0..20_000).map(order).filter(|nth| nth % 10 != 0) {
            both.step(Step::Erase(nth * 3));
        }
        both.compare(&[0, 1, 2, 29_999, 59_999]);
        let bytes = both.tree.bytes(&both.editor) as f64 / 2_000.0;
        assert!(
            bytes <= 100.0,
            "{bytes} bytes a mapping after most are gone"
        );
        for nth in (0..20_000).map(order) {
            both.step(Step::Erase(nth * 3));
        }
        both.compare(&[0]);
    }
}

/// Returns all mappings of `tree`, in ascending order.
fn all(tree: &VmaTree<Host>) -> Vec<Vma> {
    let mut cursor = Cursor::at(tree, Vpn(0));
    std::iter::from_fn(|| cursor.forward().expect("no thread writes")).collect()
}

const UNORDERED: Vma = Vma {
    start: Vpn(5),
    end: Vpn(4),
    id: 0,
};

#[test]
fn what_is_no_mapping_is_refused_and_nothing_changes() {
    let mut both = Both::new();
    let there = vma(100..110, 1);
    both.step(Step::Insert(there));
    let Both {
        host, tree, editor, ..
    } = &mut both;
    let end_max = Vma::END_MAX.0;
    let refused = [
        (vma(5..5, 0), VmaError::Empty as fn(Vma) -> VmaError),
        (UNORDERED, VmaError::Unordered),
        (vma(0..Vma::LEN_MAX + 1, 0), VmaError::TooLong),
        (vma(end_max - 1..end_max + 1, 0), VmaError::TooHigh),
        (vma(u64::MAX - 1..u64::MAX, 0), VmaError::TooHigh),
        (vma(5..6, Vma::ID_MAX + 1), VmaError::IdTooLarge),
    ];
    for (bad, error) in refused {
        assert_eq!(tree.insert(host, editor, bad), Err(error(bad)));
        assert_eq!(tree.resize(host, editor, Vpn(100), bad), Err(error(bad)));
        let gone = |vma| panic!("{vma:?} is still there");
        assert_eq!(tree.store(host, editor, bad, gone), Err(error(bad)));
        assert_eq!(tree.clear(host, editor, Vpn(105)..Vpn(105), gone), Ok(()));
        assert_eq!(tree.clear(host, editor, Vpn(109)..Vpn(101), gone), Ok(()));
        assert_eq!(all(tree), [there]);
        tree.assert_whole(editor);
    }
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_changes() {
    let mut both = Both::new();
    let (low, high) = (vma(100..110, 1), vma(120..130, 2));
    both.step(Step::Insert(low));
    both.step(Step::Insert(high));
    let Both {
        host, tree, editor, ..
    } = &mut both;
    for (pages, there) in [
        (90..101, low),
        (109..120, low),
        (105..106, low),
        (110..121, high),
    ] {
        let new = vma(pages, 3);
        assert_eq!(
            tree.insert(host, editor, new),
            Err(VmaError::Overlaps(there))
        );
    }
    let over = vma(100..121, 1);
    let resized = tree.resize(host, editor, Vpn(100), over);
    assert_eq!(resized, Err(VmaError::Overlaps(high)));
    for nowhere in [Vpn(101), Vpn(0), Vma::END_MAX, Vpn(u64::MAX)] {
        let error = VmaError::NotMapped(nowhere);
        assert_eq!(tree.erase(editor, nowhere), Err(error));
        assert_eq!(tree.resize(host, editor, nowhere, vma(0..1, 0)), Err(error));
    }
    assert_eq!(all(tree), [low, high]);
    tree.assert_whole(editor);
}

#[test]
fn the_largest_mappings_fit() {
    let mut both = Both::new();
    let end = Vma::END_MAX.0;
    both.step(Step::Insert(vma(end - 1..end, Vma::ID_MAX)));
    both.step(Step::Insert(vma(0..Vma::LEN_MAX, 0)));
    both.compare(&[0, Vma::LEN_MAX - 1, Vma::LEN_MAX, end - 1, end, u64::MAX]);
    both.step(Step::Gaps(1, 0..end));
    both.step(Step::Gaps(end - 1 - Vma::LEN_MAX, 0..end));
    both.step(Step::Gaps(end - Vma::LEN_MAX, 0..end));
}

#[test]
fn errors_say_what_is_wrong() {
    let says = |error: VmaError| error.to_string();
    assert_eq!(
        says(VmaError::Empty(vma(5..5, 0))),
        "a mapping at page 5 would have no pages"
    );
    assert_eq!(
        says(VmaError::Unordered(UNORDERED)),
        "a mapping cannot end at page 4 and begin at page 5"
    );
    assert_eq!(
        says(VmaError::Overlaps(vma(5..7, 0))),
        "pages 5 to 7 are mapped already"
    );
}

#[test]
fn free_space_ends_where_mappings_may() {
    let Both { tree, editor, .. } = Both::new();
    let all = Vpn(0)..Vpn(u64::MAX);
    let end = Vma::END_MAX.0;
    let highest = tree.highest_gap(&editor, 5, all.clone());
    assert_eq!(highest, Some(Vpn(end - 5)));
    assert_eq!(tree.lowest_gap(&editor, end, all.clone()), Some(Vpn(0)));
    assert_eq!(tree.lowest_gap(&editor, end + 1, all), None);
}
