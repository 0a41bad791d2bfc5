//! Tests of runs that pass the page lists: how the lists are tuned and what is recorded, against
//! what the moves of single pages do and against the numbers that Linux computes.

use alloc::format;

use proptest::prelude::*;

use super::tests::tuning_input;
use super::*;

/// Empty or partly filled lists whose recent frees and allocations left this state.
fn lists(high: u32, count: u32, alloc_factor: u32, free_count: u32) -> Pcp {
    let mut pcp = Pcp::new(Metadata::WhenSplit);
    (0..count).for_each(|page| assert!(pcp.push(0, Order::ZERO, page)));
    Pcp {
        high,
        alloc_factor,
        free_count,
        freed_high_order: true,
        ..pcp
    }
}

/// Everything that tuning reads and writes.
fn tuned(pcp: &Pcp) -> [u32; 4] {
    let high_order = u32::from(pcp.freed_high_order);
    [pcp.high, pcp.alloc_factor, pcp.free_count, high_order]
}

/// Frees single pages one by one, as a CPU without a front does, and returns the number of pages
/// that went back to the zone.
fn free_singly(pcp: &mut Pcp, pages: u32, input: &TuningInput) -> u32 {
    let mut given = 0;
    for page in 0..pages {
        assert!(pcp.push(0, Order::ZERO, page));
        let mut excess = pcp.note_free(Order::ZERO, input).min(pcp.count());
        given += excess;
        while excess > 0 {
            pcp.coldest(&mut 0).expect("there are pages").take();
            excess -= 1;
        }
    }
    given
}

/// Refills the caller, and returns the number of pages. The zone has as many as are asked for.
fn refill_run(pcp: &mut Pcp, len: u32, input: &TuningInput) -> u32 {
    let mut taken = 0;
    pcp.refill_run(len, input, |wanted| {
        taken = wanted;
        wanted
    });
    taken
}

/// The tuning inputs of tests, with other sizes of the lists.
fn sized(batch: u32, high_min: u32, high_max: u32) -> TuningInput {
    let sizes = Sizes {
        batch: Pages(batch),
        high_min: Pages(high_min),
        high_max: Pages(high_max),
    };
    TuningInput {
        sizes,
        ..tuning_input()
    }
}

/// A run that goes to the caller has as many pages as a first refill of a list, and raises `high`
/// by as much, but no further than `high_max`. It does not raise `alloc_factor`, and no page counts
/// as freed in a row after so many allocations.
#[test]
fn a_run_to_the_caller_is_a_refill_of_one_batch() {
    let below_high = TuningInput {
        below_high: true,
        ..tuning_input()
    };
    for (high, alloc_factor, free_count, input, high_after) in [
        (0, 0, 0, tuning_input(), 675 + 63),
        (675, 3, 2016, tuning_input(), 675 + 63),
        (55_990, 0, 100, tuning_input(), 56_000),
        (60_000, 5, 1, tuning_input(), 56_000),
        (5000, 2, 9, below_high, 5000),
        (256, 1, 9, sized(63, 256, 256), 256),
        (256, 1, 9, sized(63, 256, 300), 300),
    ] {
        let mut pcp = lists(high, 0, alloc_factor, free_count);
        assert_eq!(refill_run(&mut pcp, 63, &input), 63);
        assert_eq!(tuned(&pcp), [high_after, alloc_factor, 0, 1]);
        assert_eq!(pcp.count(), 0);
    }
}

/// A run for a short front is shorter than a batch. It raises `high` only by its own length, and has
/// one page if the lists may not hold a batch.
#[test]
fn a_run_of_less_than_a_batch_raises_high_by_its_length() {
    for (high, len, wanted, high_after) in [(675, 16, 16, 691), (55_990, 16, 16, 56_000)] {
        let mut pcp = lists(high, 0, 2, 50);
        assert_eq!(refill_run(&mut pcp, len, &tuning_input()), wanted);
        assert_eq!(tuned(&pcp), [high_after, 2, 0, 1]);
    }
    let mut short = lists(62, 0, 2, 50);
    assert_eq!(refill_run(&mut short, 16, &sized(63, 62, 62)), 1);
    assert_eq!(tuned(&short), [62, 2, 0, 1]);
}

/// The zone may give fewer pages than are asked for, or a block with more. `high` grows by what it
/// has given.
#[test]
fn a_run_raises_high_by_the_pages_that_the_zone_gives() {
    for (given, high_after) in [(0, 675), (40, 715), (64, 739)] {
        let mut pcp = lists(675, 0, 2, 50);
        pcp.refill_run(63, &tuning_input(), |_| given);
        assert_eq!(tuned(&pcp), [high_after, 2, 0, 1]);
    }
}

/// A run passes the list if the list has no room for all of its pages, even if there is room for
/// those that would pass.
#[test]
fn a_run_passes_a_list_that_has_room_for_a_part_of_it() {
    let input = sized(63, 256, 256);
    for (count, passes) in [(191, false), (192, true)] {
        let mut pcp = lists(256, count, 0, 0);
        assert_eq!(pcp.passes_run(63, 64, &input), passes, "{count} pages");
    }
}

/// The result is the same as if a refill of one batch had filled the list, and allocations had then
/// emptied it again.
#[test]
fn a_run_to_the_caller_leaves_what_a_refill_and_allocations_leave() {
    for (high, alloc_factor, free_count, input) in [
        (675, 0, 1000, tuning_input()),
        (900, 4, 2016, tuning_input()),
        (256, 1, 500, sized(15, 64, 256)),
        (256, 1, 500, sized(31, 300, 300)),
    ] {
        let start = || lists(high, 0, alloc_factor, free_count);
        let (mut singly, mut direct) = (start(), start());
        let one_batch = TuningInput {
            scale_max: 0,
            ..input
        };
        singly.note_alloc();
        let pages = singly.refill_blocks(Order::ZERO, &one_batch);
        (0..pages).for_each(|page| singly.push_cold(0, Order::ZERO, page));
        assert!(singly.pop(0, Order::ZERO).is_some());
        while singly.pop(0, Order::ZERO).is_some() {
            singly.note_alloc();
        }
        assert_eq!(refill_run(&mut direct, pages, &input), pages);
        assert_eq!(pages, input.sizes.batch.0);
        assert_eq!(tuned(&direct), tuned(&singly));
    }
}

/// A run passes the lists if the list would return pages to the zone before it had taken the whole
/// run, and `high` cannot grow. The last two rows say why a run does not pass: it fits on the list,
/// or `high` can grow.
#[test]
fn a_freed_run_passes_only_full_lists_that_cannot_grow() {
    let fixed = sized(63, 256, 256);
    let tuning = tuning_input();
    for (high, count, free_count, input, passes) in [
        // Frees return pages as soon as there are 256 on the list.
        (256, 192, 0, fixed, false),
        (256, 193, 0, fixed, true),
        (256, 255, 2000, fixed, true),
        // `high` is as large as it can become.
        (56_000, 56_000 - 63, 2016, tuning, true),
        (56_000, 56_000 - 64, 2016, tuning, false),
        // `high` grows to the number of pages freed in a row, plus a batch: here 100 + 63 + 63.
        (700, 690, 100, tuning, true),
        (700, 690, 700 - 126, tuning, true),
        (700, 690, 701 - 126, tuning, false),
    ] {
        let mut pcp = lists(high, count, 3, free_count);
        let before = format!("{pcp:?}");
        let what = format!("high {high}, {count} pages, {free_count} freed in a row");
        assert_eq!(pcp.passes_run(63, 63, &input), passes, "{what}");
        if passes {
            let row = (free_count + 63).min(63 << 5);
            assert_eq!(tuned(&pcp), [high, 0, row, 0], "{what}");
            assert_eq!(pcp.count(), count);
        } else {
            assert_eq!(format!("{pcp:?}"), before, "{what}");
        }
    }
}

/// At most `batch << scale_max` pages count as freed in a row. So frees alone raise `high` to that
/// number plus a batch, and no further, and then runs pass the list.
#[test]
fn a_cpu_that_only_frees_has_full_lists_at_last() {
    let input = tuning_input();
    let most = (63 << 5) + 63;
    let mut pcp = lists(675, 0, 0, 0);
    free_singly(&mut pcp, 20_000, &input);
    assert_eq!(tuned(&pcp), [most, 0, 63 << 5, 0]);
    let room = most - 1 - pcp.count();
    free_singly(&mut pcp, room, &input);
    assert_eq!((pcp.count(), pcp.quiet_frees(&input)), (most - 1, 0));
    assert!(pcp.passes_run(63, 63, &input));
    // The next 31 frees let the number reach its maximum.
    let mut pcp = lists(most, most - 1, 0, (63 << 5) - 31);
    assert!(pcp.passes_run(63, 63, &input));
    assert_eq!(tuned(&pcp), [most, 0, 63 << 5, 0]);
    // `seed_lists` may set a larger number, which frees leave as it is. Then `high` can grow.
    let mut pcp = lists(most, most - 1, 0, 5000);
    assert!(!pcp.passes_run(63, 63, &input));
    let mut pcp = lists(5063, 5062, 0, 5000);
    assert!(pcp.passes_run(63, 63, &input));
    assert_eq!(pcp.free_count, 5000);
}

/// While lists must be kept short, all freed pages go onto the lists, which then return more pages
/// to the zone than they take.
#[test]
fn no_run_passes_lists_that_must_be_short() {
    for (reclaiming, below_high) in [(true, false), (false, true), (true, true)] {
        let input = TuningInput {
            reclaiming,
            below_high,
            ..sized(63, 256, 256)
        };
        let mut pcp = lists(256, 255, 3, 100);
        let before = format!("{pcp:?}");
        assert!(!pcp.passes_run(63, 63, &input));
        assert_eq!(format!("{pcp:?}"), before);
    }
}

/// Lists, the number of pages that are freed to them in a row, and what decides about these pages.
fn cases() -> impl Strategy<Value = (Pcp, u32, TuningInput)> {
    let sizes = (1_u32..=64, 0_u32..600, 0_u32..4000);
    let state = (0_u32..5000, 0_u32..3000, 0_u32..6, 0_u32..4500);
    let flags = (0_u32..=6, 0_u32..8, 0_u32..8, 1_u32..=64);
    (sizes, state, flags).prop_map(|(sizes, state, (scale_max, below, reclaims, len))| {
        let (batch, high_min, more) = sizes;
        let (high, count, alloc_factor, free_count) = state;
        let high_max = high_min + more;
        let input = TuningInput {
            scale_max,
            below_high: below == 0,
            reclaiming: reclaims == 0,
            ..sized(batch, high_min, high_max)
        };
        let high = high.min(high_max);
        (lists(high, count, alloc_factor, free_count), len, input)
    })
}

proptest! {
    /// A run passes the list only if frees one by one would have returned pages to the zone and left
    /// `high` as it is. What is recorded is then the same. Otherwise nothing changes.
    #[test]
    fn a_run_passes_only_if_frees_one_by_one_would_leave_high_alone(
        (mut direct, len, input) in cases(),
    ) {
        let before = tuned(&direct);
        let room = direct.quiet_frees(&input);
        let mut singly = lists(before[0], direct.count(), before[1], before[2]);
        let given = free_singly(&mut singly, len, &input);
        let most = input.sizes.batch.0 << input.scale_max;
        let count = direct.count();
        if direct.passes_run(len, len, &input) {
            prop_assert!(given > 0);
            prop_assert_eq!(singly.high, before[0]);
            prop_assert_eq!(tuned(&direct), tuned(&singly));
        } else {
            prop_assert_eq!(tuned(&direct), before);
            let may_grow = before[0] < input.sizes.high_max.0
                && before[0] < before[2].max((before[2] + len).min(most)) + input.sizes.batch.0;
            let is_kept_short = input.reclaiming || input.below_high;
            prop_assert!(is_kept_short || room >= len || may_grow);
        }
        prop_assert_eq!(direct.count(), count);
    }
}
