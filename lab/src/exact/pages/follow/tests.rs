//! Tests what the replay learns from a difference between Plimsoll's move and the kernel's move.
//! Each test constructs a difference from a few operations. A *spill* returns pages to the zone
//! because the lists have reached `high`.

use plimsoll_mm::page::ListState;

use super::super::op::Move;
use super::super::pair::Amount;
use super::*;

const LIST: ListId = ListId(1);

fn op(action: Action, spills: bool) -> Op {
    let spill = Move {
        kind: Kind::Spill,
        zone: 0,
        lists: Vec::new(),
    };
    Op {
        event: 0,
        cpu: 0,
        action,
        moves: spills.then_some(spill).into_iter().collect(),
    }
}

/// Lets the replay learn from a spill (return of pages to the zone) that Plimsoll makes and the
/// kernel does not. At first, the replay assumes 50 pages on the kernel's lists, and `high` is 100.
/// The first operation in `after` makes Plimsoll spill. Returns the number of pages that the replay
/// assumes at the end.
fn learnt_length(after: &[Op]) -> u32 {
    let mut follow = Follow::default();
    let mut lens = [0; LISTS];
    lens[LIST.index()] = 50;
    follow.begin((0, 0), lens, (63, 1000), LIST);
    let pair = Pair {
        op: 0,
        cpu: 0,
        zone: 0,
        kind: Kind::Spill,
        kernel: Amount::default(),
        ours: Amount {
            pages: 10,
            blocks: 10,
        },
        unknown: false,
    };
    let state = ListState {
        high: plimsoll_mm::units::Pages(100),
        ..ListState::default()
    };
    assert_eq!(follow.learn(&pair, &state, after), Learnt::default());
    follow.count(0, 0)
}

/// The replay can use the kernel's next spill (return of pages to the zone) to correct the lists.
/// If Plimsoll's spill is then identical, this proves nothing, so the spill is not compared. If
/// Plimsoll's spill differs, it counts as a difference. The spill after that is compared again.
#[test]
fn a_spill_that_corrected_the_lists_is_set_aside() {
    let mut follow = with([10, 10, 10]);
    assert!(!follow.was_used(&spill(10, 10)), "nothing was corrected");
    follow.learn(&spill(0, 10), &high(100), &[free(false), free(true)]);
    assert!(follow.was_used(&spill(10, 10)), "its place was used");
    assert!(!follow.was_used(&spill(10, 9)), "it differs");
    follow.note_move(&spill(0, 10));
    assert!(
        follow.was_used(&spill(10, 10)),
        "the kernel has not spilled yet"
    );
    follow.note_move(&spill(10, 10));
    assert!(
        !follow.was_used(&spill(10, 10)),
        "the next spill is predicted"
    );
}

fn free(spills: bool) -> Op {
    let (zone, list, pfn) = (0, LIST, 7);
    op(Action::Free { zone, list, pfn }, spills)
}

/// The kernel spills (returns pages to the zone) when its lists reach `high`. So the number of
/// pages that are freed until the kernel's next spill is `high` minus the current length of the
/// lists.
#[test]
fn the_next_spill_tells_how_long_lists_are() {
    let after = [free(false), free(false), free(true)];
    assert_eq!(learnt_length(&after), 98, "two more are freed until 100");
    assert_eq!(learnt_length(&[free(false)]), 99, "one more would spill");
}

/// If the kernel's lists grow and shrink again without a spill (return of pages to the zone), they
/// were always shorter than `high`.
#[test]
fn lists_that_were_longer_and_did_not_spill_were_below_high_then() {
    let (zone, list, pfn) = (0, LIST, 7);
    let taken = || op(Action::Alloc { zone, list, pfn }, false);
    let mut after = vec![free(false)];
    after.extend((0..40).map(|_| free(false)));
    after.extend((0..40).map(|_| taken()));
    after.push(free(true));
    assert_eq!(learnt_length(&after), 59, "40 more are 99");
}

fn spill(kernel: u32, ours: u32) -> Pair {
    let amount = |pages| Amount {
        pages,
        blocks: pages,
    };
    Pair {
        op: 0,
        cpu: 0,
        zone: 0,
        kind: Kind::Spill,
        kernel: amount(kernel),
        ours: amount(ours),
        unknown: false,
    }
}

fn with(pages: [u32; 3]) -> Follow {
    let mut follow = Follow::default();
    let mut lens = [0; LISTS];
    lens[..3].copy_from_slice(&pages);
    follow.begin((0, 0), lens, (63, 1000), ListId(2));
    follow
}

fn high(pages: u32) -> ListState {
    ListState {
        high: plimsoll_mm::units::Pages(pages),
        ..ListState::default()
    }
}

fn bulk(pages: u64) -> Op {
    let (zone, list) = (0, ListId(0));
    let pfns = (0..pages).collect();
    op(Action::Bulk { zone, list, pfns }, false)
}

/// Lets the replay learn from a spill (return of pages to the zone) that Plimsoll makes at a `high`
/// of 100. The kernel spills only at the fourth free after the operation `between`. Returns what
/// the replay has learnt, and whether the replay treats `between` as earlier than Plimsoll's spill.
fn hastened(between: Op) -> (Follow, bool) {
    let mut follow = with([20, 50, 30]);
    let frees = [false, false, false, true].map(free);
    let ops = [&[free(false), between], &frees[..]].concat();
    follow.learn(&spill(0, 63), &high(100), &ops);
    let hastened = follow.is_hastened(1);
    (follow, hastened)
}

/// If the kernel's lists are shorter than assumed, a bulk allocation may already have taken the
/// missing pages, although events show it only later. The replay then counts this bulk allocation
/// earlier than it was recorded.
#[test]
fn a_bulk_allocation_that_shows_later_makes_up_for_missing_pages() {
    let (follow, hastened) = hastened(bulk(4));
    assert!(hastened);
    assert_eq!(follow.lens(0, 0)[..3], [16, 50, 30]);
}

/// If the kernel's lists are shorter than assumed and no bulk allocation took the missing pages,
/// the replay shortens one list: the list of unseen pages, which holds the pages that no event
/// shows.
#[test]
fn pages_that_no_bulk_allocation_took_are_missing_from_the_list_of_unseen_pages() {
    let (follow, hastened) = hastened(free(false));
    assert!(!hastened);
    assert_eq!(follow.lens(0, 0)[..3], [20, 50, 25]);
}

/// If a bulk allocation comes after a refill of its list, it took pages of that refill. So the
/// replay does not treat the bulk allocation as earlier than it was recorded.
#[test]
fn a_bulk_allocation_after_a_refill_of_its_list_took_other_pages() {
    let mut refilled = free(false);
    refilled.moves.push(Move {
        kind: Kind::Refill,
        zone: 0,
        lists: vec![(ListId(0), 63)],
    });
    let mut follow = with([20, 50, 30]);
    let ops = [free(false), refilled, bulk(4), free(true)];
    follow.learn(&spill(0, 63), &high(100), &ops);
    assert!(!follow.is_hastened(2));
}

/// If the replay has to remove more pages than it assumes on `home`, the list of pages that no
/// event shows, it also removes pages from other lists.
#[test]
fn lists_are_made_shorter_than_the_list_of_unseen_pages() {
    let mut follow = with([20, 50, 3]);
    follow.lengthen(&spill(0, 63), -60);
    assert_eq!(follow.lens(0, 0)[..3], [13, 0, 0]);
    follow.lengthen(&spill(0, 63), -60);
    assert_eq!(follow.lens(0, 0)[..3], [0, 0, 0]);
}

/// If a spill (return of pages to the zone) would leave less than a batch on the kernel's lists,
/// the spill empties these lists.
#[test]
fn a_spill_that_leaves_less_than_a_batch_leaves_nothing() {
    let mut follow = with([1, 0, 20]);
    follow.learn(&spill(300, 320), &high(400), &[free(true)]);
    assert_eq!(follow.count(0, 0), 0);
    // This spill (return of pages to the zone) leaves 64 pages. That is at least a batch, so the
    // spill did not empty the lists. The lists were at `high` before the spill, so they now have
    // 400 - 300 pages.
    let mut follow = with([1, 0, 63]);
    follow.learn(&spill(300, 0), &high(400), &[free(true)]);
    assert_eq!(follow.count(0, 0), 100);
}

/// The replay computes `high` from the size of the kernel's refill. If the result would exceed the
/// upper bound of `high`, the kernel's lists were shorter than assumed.
#[test]
fn a_refill_that_leaves_more_room_than_there_can_be_shows_shorter_lists() {
    let refill = |kernel| Pair {
        kind: Kind::Refill,
        ..spill(kernel, 63)
    };
    let taken = Action::Alloc {
        zone: 0,
        list: ListId(1),
        pfn: 7,
    };
    let ops = [op(taken, false)];
    // After the refill and the allocation of one page, the lists have 899 pages. A refill leaves
    // room for a batch of 63 pages below `high`, so `high` is 899 + 1 + 63 = 963.
    let mut follow = with([0, 99, 800]);
    let learnt = follow.learn(&refill(100), &high(900), &ops);
    assert_eq!((learnt.high, follow.count(0, 0)), (Some(963), 899));
    let mut follow = with([0, 99, 850]);
    let learnt = follow.learn(&refill(100), &high(900), &ops);
    assert_eq!((learnt.high, follow.count(0, 0)), (Some(1000), 936));
}

/// If only the kernel refills a list, the list was empty before the refill. After it, the list has
/// the pages of the refill except the page that was allocated.
#[test]
fn a_list_that_only_the_kernel_refills_was_empty() {
    let taken = Action::Alloc {
        zone: 0,
        list: ListId(1),
        pfn: 7,
    };
    let mut follow = with([20, 65, 30]);
    let refill = Pair {
        kind: Kind::Refill,
        ..spill(63, 0)
    };
    let learnt = follow.learn(&refill, &high(400), &[op(taken, false)]);
    assert_eq!(follow.lens(0, 0)[..3], [20, 62, 30]);
    assert_eq!(learnt.alloc_factor, Some(1));
}

/// The replay assigns all pages that no event shows to one list, whose blocks can have several
/// pages. A correction adds pages to this list or removes pages from it. If their number is not a
/// multiple of the block size, the remainder is added to, or removed from, a list of single pages.
#[test]
fn pages_of_less_than_one_block_of_the_list_of_unseen_pages_are_on_another() {
    let mut follow = Follow::default();
    let mut lens = [0; LISTS];
    lens[..3].copy_from_slice(&[20, 50, 30]);
    // The replay assigns the pages that no event shows to list 6, whose blocks have four pages.
    follow.begin((0, 0), lens, (63, 1000), ListId(6));
    follow.lengthen(&spill(0, 63), 5);
    assert_eq!((follow.lens(0, 0)[1], follow.lens(0, 0)[6]), (51, 1));
    follow.lengthen(&spill(0, 63), -5);
    assert_eq!(follow.lens(0, 0), lens);
}

/// Bulk allocations take pages that were listed before the recording and that no event shows. But
/// they do not take more of these pages than the replay assumes.
#[test]
fn a_bulk_allocation_takes_pages_that_no_event_shows_while_there_are_any() {
    let mut follow = with([20, 50, 30]);
    follow.set_never_seen((0, 0), 6);
    let bulk = Action::BulkNeverSeen { zone: 0, pages: 4 };
    follow.note(&op(bulk.clone(), false));
    assert_eq!(follow.lens(0, 0)[..3], [20, 50, 26]);
    follow.note(&op(bulk.clone(), false));
    follow.note(&op(bulk, false));
    assert_eq!(follow.lens(0, 0)[..3], [20, 50, 24], "the rest were seen");
}

/// The periodic work returns a batch of a remote node's pages if the lists were not used for some
/// time. Unlike a decay, which leaves `high` pages, the return of a batch leaves any number of
/// pages on the lists.
#[test]
fn a_batch_returned_to_a_remote_node_does_not_tell_how_long_lists_are() {
    let decay = |kernel| Pair {
        kind: Kind::Decay,
        ..spill(kernel, 0)
    };
    let ops = [op(Action::Refresh, false)];
    let mut near = with([20, 50, 30]);
    near.learn(&decay(63), &high(400), &ops);
    assert_eq!(near.count(0, 0), 400, "a decay leaves `high`");
    let mut remote = with([20, 50, 30]);
    remote.set_remote((0, 0));
    remote.learn(&decay(63), &high(400), &ops);
    assert_eq!(remote.count(0, 0), 100);
    remote.learn(&decay(126), &high(400), &ops);
    assert_eq!(remote.count(0, 0), 400, "more than a batch is a decay");
}

/// The replay can assume that the pages that no event shows are in blocks of several pages. In this
/// case, a block leaves its list as a whole, even if a bulk allocation took only a part of the
/// block.
#[test]
fn a_bulk_allocation_of_a_part_of_a_block_takes_the_block() {
    let mut follow = Follow::default();
    let mut lens = [0; LISTS];
    lens[6] = 3;
    follow.begin((0, 0), lens, (63, 1000), ListId(6));
    follow.set_never_seen((0, 0), 12);
    let bulk = |pages| op(Action::BulkNeverSeen { zone: 0, pages }, false);
    follow.note(&bulk(5));
    assert_eq!(follow.lens(0, 0)[6], 1, "five pages are in two blocks");
    follow.note(&bulk(1));
    follow.note(&bulk(1));
    assert_eq!(follow.lens(0, 0)[6], 0);
}

/// If only Plimsoll returned pages in the periodic work, and there are at most about a batch of
/// them, these pages may be the batch of a remote node. If Plimsoll returned more pages, Plimsoll's
/// lists were too long.
#[test]
fn a_long_decay_that_only_plimsoll_makes_on_a_remote_node_shortens_lists() {
    let decay = |ours| Pair {
        kind: Kind::Decay,
        ..spill(0, ours)
    };
    let ops = [op(Action::Refresh, false)];
    let mut remote = with([20, 50, 30]);
    remote.set_remote((0, 0));
    remote.learn(&decay(63), &high(100), &ops);
    assert_eq!(remote.count(0, 0), 100, "that may be a batch");
    remote.learn(&decay(126), &high(100), &ops);
    assert_eq!(remote.count(0, 0), 99, "the lists were below `high`");
}

/// After a difference, the replay uses the kernel's next spill (return of pages to the zone) to
/// correct the assumed lengths of the lists. If a drain comes before that spill, the drain shows
/// these lengths and empties the lists. The replay then predicts the later spill and compares it.
/// The replay never uses a drain for a correction, so the comparison of a drain always proves
/// something.
#[test]
fn only_a_spill_is_used_and_not_after_a_drain() {
    let drain = Pair {
        kind: Kind::Drain,
        ..spill(10, 10)
    };
    let mut follow = with([10, 10, 10]);
    follow.learn(&spill(0, 10), &high(100), &[free(false), free(true)]);
    assert!(follow.was_used(&spill(10, 10)));
    assert!(!follow.was_used(&drain), "a drain proves something");
    follow.note_move(&drain);
    assert!(!follow.was_used(&spill(10, 10)), "the lists were empty");
}

/// Only a spill (return of pages to the zone) that empties the lists leaves less than a batch. Any
/// other spill leaves a batch or more, and shows that the lists had `high` pages.
#[test]
fn a_spill_that_leaves_exactly_a_batch_shows_that_lists_were_at_high() {
    let mut follow = with([1, 0, 62]);
    follow.learn(&spill(300, 0), &high(400), &[free(true)]);
    assert_eq!(follow.count(0, 0), 100);
}

/// Linux stops counting freed pages at 32 batches. So after 32 batches of frees, `free_count`
/// (Linux's count of freed pages) is known, even though its value before the recording is not.
#[test]
fn after_thirty_two_batches_of_frees_their_count_is_known() {
    let mut follow = with([0; 3]);
    follow.note_move(&spill(10, 10));
    let frees = 63 << SCALE_MAX;
    (1..frees).for_each(|_| follow.note(&free(false)));
    assert!(follow.depends_on_before(&spill(10, 10)), "one is missing");
    follow.note(&free(false));
    assert!(!follow.depends_on_before(&spill(10, 10)));
}

/// Each refill of the kernel raises the kernel's `alloc_factor`, up to five. A refill that only
/// Plimsoll makes does not raise it, so the kernel's `alloc_factor` must still count as unknown.
#[test]
fn only_refills_of_the_kernel_make_its_factor_known() {
    let refill = |kernel, ours| Pair {
        kind: Kind::Refill,
        ..spill(kernel, ours)
    };
    let mut follow = with([0; 3]);
    (0..SCALE_MAX).for_each(|_| follow.note_move(&refill(0, 63)));
    assert!(follow.depends_on_before(&refill(63, 63)));
    (0..SCALE_MAX).for_each(|_| follow.note_move(&refill(63, 63)));
    assert!(!follow.depends_on_before(&refill(63, 63)));
}
