//! Tests of one node's lists of used pages: the order of pages, pages that are removed before they
//! are added, and isolation.

use super::*;

const FIRST: u32 = 100;

fn lists(pages: u32) -> Lists {
    Lists::new(Pfn(FIRST), pages, Metadata::WhenSplit).expect("there is memory")
}

fn frames(run: &Run) -> Vec<u32> {
    run.get().iter().map(|taken| taken.pfn.0 - FIRST).collect()
}

fn added(pages: u32) -> Lists {
    let mut lists = lists(pages);
    (0..pages).for_each(|page| lists.add(Pfn(FIRST + page), List::Inactive));
    lists
}

const STAYS: Fate = Fate::Stays {
    list: List::Active,
    referenced: true,
};

#[test]
fn the_page_that_was_added_first_is_isolated_first() {
    let mut lists = added(5);
    lists.remove(Pfn(FIRST + 1));
    let run = lists.isolate(List::Inactive, 3);
    assert_eq!(frames(&run), [0, 2, 3]);
    assert_eq!(
        (lists.len(List::Inactive), lists.isolated(Kind::Anon)),
        (1, 3)
    );
    for &taken in run.get() {
        lists.conclude(taken, STAYS);
    }
    let run = lists.isolate(List::Active, 32);
    assert_eq!(frames(&run), [0, 2, 3]);
    assert!(run.get().iter().all(|taken| taken.past.referenced));
    assert_eq!(lists.total(), 4);
}

#[test]
fn no_more_than_a_run_is_isolated() {
    let mut lists = added(50);
    assert_eq!(lists.isolate(List::Inactive, 50).get().len(), ISOLATED_MAX);
    assert_eq!(lists.isolate(List::Active, 50).get().len(), 0);
}

#[test]
fn a_removal_before_its_addition_cancels_it() {
    let mut lists = lists(1);
    let page = Pfn(FIRST);
    lists.remove(page);
    lists.remove(page);
    assert_eq!(lists.total(), -2);
    for total in [-1, 0, 1] {
        lists.add(page, List::Inactive);
        assert_eq!(lists.total(), total);
    }
    assert_eq!(lists.len(List::Inactive), 1);
}

#[test]
fn a_page_that_was_freed_and_used_again_is_not_put_back() {
    let mut lists = added(1);
    let page = Pfn(FIRST);
    let old = lists.isolate(List::Inactive, 1).get()[0];
    lists.remove(page);
    assert_eq!(lists.isolated(Kind::Anon), 0);
    lists.add(page, List::Inactive);
    lists.conclude(old, STAYS);
    assert_eq!(lists.len(List::Active), 0, "it is another page now");
    let new = lists.isolate(List::Inactive, 1).get()[0];
    lists.conclude(old, STAYS);
    assert_eq!(lists.isolated(Kind::Anon), 1, "another CPU has isolated it");
    lists.conclude(new, STAYS);
    assert_eq!((lists.len(List::Active), lists.total()), (1, 1));
}

#[test]
fn a_page_that_leaves_is_removed_wherever_it_is() {
    let mut lists = added(2);
    let run = lists.isolate(List::Inactive, 1);
    lists.conclude(run.get()[0], Fate::Leaves);
    assert_eq!((lists.isolated(Kind::Anon), lists.total()), (0, 1));
    // While the page was isolated, another CPU freed it, and another address space allocated it and
    // added it to the list again. This CPU then evicts the page from that other address space.
    lists.add(Pfn(FIRST), List::Inactive);
    lists.conclude(run.get()[0], Fate::Leaves);
    assert_eq!(lists.total(), 1);
}

#[test]
fn pages_of_other_nodes_are_ignored() {
    let mut lists = lists(2);
    for pfn in [0, FIRST - 1, FIRST + 2, u32::MAX].map(Pfn) {
        lists.add(pfn, List::Inactive);
        lists.remove(pfn);
    }
    assert_eq!(lists.total(), 0);
}
