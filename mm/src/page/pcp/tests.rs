//! Tests the decisions about page lists (how many pages to take from the zone and to return to it,
//! and how to tune `high`) against the numbers that Linux computes.

use super::*;

pub(super) fn tuning_input() -> TuningInput {
    let sizes = Sizes {
        batch: Pages(63),
        high_min: Pages(675),
        high_max: Pages(56_000),
    };
    TuningInput {
        sizes,
        scale_max: 5,
        below_high: false,
        reclaiming: false,
        large_cache: true,
        flush_from: FlushFrom::BatchAndHalfMin,
    }
}

fn fill(pcp: &mut Pcp, blocks: u32, input: &TuningInput) -> u32 {
    let fresh: u32 = (0..blocks)
        .map(|page| {
            assert!(pcp.push(0, Order::ZERO, page));
            pcp.note_free(Order::ZERO, input)
        })
        .sum();
    fresh
}

#[test]
fn refills_double_until_a_free_halves_them() {
    let mut pcp = Pcp::new(Metadata::WhenSplit);
    let refill = |pcp: &mut Pcp| pcp.refill_blocks(Order::ZERO, &tuning_input());
    // `high` grows with each refill, so the lists have room for the next refill.
    let sizes: Vec<u32> = (0..7).map(|_| refill(&mut pcp)).collect();
    assert_eq!(sizes, [63, 126, 252, 504, 1008, 2016, 2016]);
    assert!(pcp.push(0, Order::ZERO, 1));
    pcp.note_free(Order::ZERO, &tuning_input());
    assert_eq!(refill(&mut pcp), 63 << 2);
}

#[test]
fn an_allocation_halves_how_many_pages_were_freed_in_a_row() {
    let mut pcp = Pcp::new(Metadata::WhenSplit);
    fill(&mut pcp, 101, &tuning_input());
    assert_eq!(pcp.free_count, 101);
    for left in [50, 25, 12] {
        pcp.note_alloc();
        assert_eq!(pcp.free_count, left);
    }
}

#[test]
fn a_disabled_list_frees_one_page_at_a_time_and_refills_with_one() {
    let input = TuningInput {
        sizes: Sizes::BOOT,
        ..tuning_input()
    };
    let mut pcp = Pcp::new(Metadata::WhenSplit);
    assert_eq!(pcp.refill_blocks(Order::ZERO, &input), 1);
    assert!(pcp.push(0, Order::ZERO, 7));
    assert_eq!(pcp.note_free(Order::ZERO, &input), 1);
}

#[test]
fn high_grows_with_frees_in_a_row_and_spills_up_to_2016_pages() {
    let mut pcp = Pcp {
        high: 675,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(fill(&mut pcp, 674, &tuning_input()), 0);
    let first = fill(&mut pcp, 1, &tuning_input());
    assert_eq!((first, pcp.high), (675 - 63, 675 + 63));
    // No page is allocated here, so `high` grows with the number of pages freed in a row, until
    // that number reaches its maximum, 63 << 5.
    fill(&mut pcp, 5000, &tuning_input());
    assert_eq!(pcp.high, (63 << 5) + 63);
    assert_eq!(fill(&mut pcp, 1, &tuning_input()), 63 << 5);
}

#[test]
fn quiet_frees_leave_what_frees_one_by_one_leave() {
    for (high, alloc_factor, free_count, frees) in [
        (675, 3, 0, 31),
        (5000, 5, 2000, 31),
        (900, 0, 7, 0),
        (2000, 1, 2016, 100),
    ] {
        let start = || Pcp {
            high,
            alloc_factor,
            free_count,
            freed_high_order: true,
            ..Pcp::new(Metadata::WhenSplit)
        };
        let (mut singly, mut quietly) = (start(), start());
        let pages: Vec<u32> = (0..frees).collect();
        assert!(frees <= quietly.quiet_frees(&tuning_input()));
        assert_eq!(fill(&mut singly, frees, &tuning_input()), 0);
        assert!(quietly.push_quietly(&pages, &tuning_input()));
        assert_eq!(alloc::format!("{singly:?}"), alloc::format!("{quietly:?}"));
    }
}

#[test]
fn below_the_high_watermark_every_free_past_high_min_spills() {
    let mut pcp = Pcp {
        high: 5000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    let input = TuningInput {
        below_high: true,
        ..tuning_input()
    };
    assert_eq!(fill(&mut pcp, 674, &input), 0);
    assert!(fill(&mut pcp, 1, &input) > 0);
    assert!(pcp.high < 5000);
}

#[test]
fn high_order_frees_in_a_row_flush() {
    let mut pcp = Pcp {
        high: 5000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    let order = Order::new(3).expect("small");
    let frees: Vec<u32> = (0..60)
        .map(|block| {
            assert!(pcp.push(9, order, block * 8));
            pcp.note_free(order, &tuning_input())
        })
        .collect();
    // A free empties the lists if at least a batch plus half of `high_min`, that is 63 + 675 / 2 =
    // 400 pages, were freed in a row before it. The first 50 blocks are those 400 pages, so the
    // free of the next block empties the lists.
    assert_eq!(frees.iter().position(|&pages| pages > 0), Some(50));
    assert_eq!(frees[50], 51 * 8);
}

#[test]
fn linux_6_12_flushes_after_a_batch_in_a_row() {
    let mut pcp = Pcp {
        high: 5000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    let input = TuningInput {
        flush_from: FlushFrom::Batch,
        large_cache: false,
        ..tuning_input()
    };
    let order = Order::new(3).expect("small");
    let frees: Vec<u32> = (0..9)
        .map(|block| {
            assert!(pcp.push(9, order, block * 8));
            pcp.note_free(order, &input)
        })
        .collect();
    // After eight blocks, 64 pages have been freed in a row, more than a batch. So the free of the
    // next block empties the lists.
    assert_eq!(frees, [0, 0, 0, 0, 0, 0, 0, 0, 72]);
}

#[test]
fn lists_are_numbered_as_linux_numbers_them() {
    let list = |order, mobility| list_of(Order::new(order).expect("small"), mobility);
    for (order, first) in [(0, 0), (1, 3), (2, 6), (3, 9)] {
        let lists = Mobility::ALL.map(|mobility| list(order, mobility));
        let expected = [first, first + 1, first + 2, first + 1].map(Some);
        assert_eq!(lists, expected, "kept blocks' pages are listed as movable");
    }
    let huge = Mobility::ALL.map(|mobility| list(9, mobility));
    assert_eq!(huge, [12, 13, 12, 13].map(Some));
    assert_eq!(list(4, Mobility::Movable), None);
    for at in 0..LISTS {
        assert_eq!(list_of(order_of(at), mobility_of(at)), Some(at));
    }
}

#[test]
fn decay_takes_an_eighth_and_never_more_than_one_drain() {
    let mut pcp = Pcp {
        high: 8000,
        count: 8000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(pcp.decay(&tuning_input()), (1000, true));
    let mut full = Pcp {
        high: 100_000,
        count: 50_000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(full.decay(&tuning_input()), (0, true));
    let mut calm = Pcp {
        high: 675,
        count: 100,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(calm.decay(&tuning_input()), (0, false));
}

/// Returns tuning inputs in which the lower and the upper bound of the lists' `high` are both the
/// argument `high`, so that tuning is off.
fn fixed(high: u32) -> TuningInput {
    let sizes = Sizes {
        batch: Pages(63),
        high_min: Pages(high),
        high_max: Pages(high),
    };
    TuningInput {
        sizes,
        ..tuning_input()
    }
}

#[test]
fn a_refill_leaves_room_for_a_batch_below_high() {
    let full = Pcp {
        count: 100,
        alloc_factor: 2,
        ..Pcp::new(Metadata::WhenSplit)
    };
    for (high, blocks) in [(200, 63), (263, 100), (1000, 252)] {
        let mut pcp = Pcp {
            count: full.count,
            alloc_factor: full.alloc_factor,
            ..Pcp::new(Metadata::WhenSplit)
        };
        assert_eq!(pcp.refill_blocks(Order::ZERO, &fixed(high)), blocks);
        // `alloc_factor` grows only if the room below `high` did not limit the refill.
        assert_eq!(pcp.alloc_factor, if blocks == 252 { 3 } else { 2 });
    }
    let mut just_fits = Pcp::new(Metadata::WhenSplit);
    assert_eq!(just_fits.refill_blocks(Order::ZERO, &fixed(126)), 63);
    assert_eq!(just_fits.alloc_factor, 1);
}

#[test]
fn a_spill_leaves_a_batch_however_many_were_freed_in_a_row() {
    let mut pcp = Pcp {
        count: 200,
        free_count: 500,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(pcp.note_free(Order::ZERO, &fixed(200)), 200 - 63);
}

#[test]
fn a_flush_gives_at_most_one_drain() {
    let order = Order::new(3).expect("small");
    let mut pcp = Pcp {
        high: 5000,
        count: 3000,
        free_count: 1000,
        freed_high_order: true,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(pcp.note_free(order, &tuning_input()), 63 << 5);
    assert_eq!(pcp.high, 5000 - (63 << 5));
}

#[test]
fn a_single_page_between_or_a_large_cache_keeps_from_flushing() {
    let order = Order::new(3).expect("small");
    let freed = |count, large_cache, between: &[Order]| {
        let mut pcp = Pcp {
            high: 5000,
            count,
            free_count: 1000,
            freed_high_order: true,
            ..Pcp::new(Metadata::WhenSplit)
        };
        let input = TuningInput {
            large_cache,
            ..tuning_input()
        };
        for &order in between {
            assert_eq!(pcp.note_free(order, &input), 0);
        }
        pcp.note_free(order, &input)
    };
    assert_eq!(freed(63, true, &[]), 63);
    assert_eq!(freed(62, true, &[]), 0);
    assert_eq!(freed(62, false, &[]), 62);
    assert_eq!(freed(63, true, &[Order::ZERO]), 0);
}

#[test]
fn high_grows_only_if_the_lists_reach_it() {
    let with = |count| {
        let mut pcp = Pcp {
            high: 675,
            count,
            free_count: 2016,
            ..Pcp::new(Metadata::WhenSplit)
        };
        pcp.note_free(Order::ZERO, &tuning_input());
        pcp.high
    };
    assert_eq!(with(674), 675);
    assert_eq!(with(675), 2016 + 63);
}

#[test]
fn while_a_zone_is_reclaimed_four_batches_are_kept() {
    let mut pcp = Pcp {
        high: 5000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    let input = TuningInput {
        reclaiming: true,
        ..tuning_input()
    };
    assert_eq!(fill(&mut pcp, 4 * 63 - 1, &input), 0);
    assert!(fill(&mut pcp, 1, &input) > 0);
}

#[test]
fn lists_far_above_high_decay_by_one_drain() {
    let mut pcp = Pcp {
        high: 8000,
        count: 50_000,
        ..Pcp::new(Metadata::WhenSplit)
    };
    assert_eq!(pcp.decay(&tuning_input()), (63 << 5, true));
    assert_eq!(pcp.high, 50_000 - (63 << 5));
}

#[test]
fn remote_lists_expire_after_three_intervals_without_use() {
    let mut pcp = Pcp {
        count: 5,
        ..Pcp::new(Metadata::WhenSplit)
    };
    let turns: Vec<Expiry> = [true, false, false, false]
        .iter()
        .map(|&used| pcp.expires(used))
        .collect();
    assert_eq!(
        turns,
        [Expiry::Later, Expiry::Later, Expiry::Now, Expiry::Never]
    );
}

#[test]
fn the_coldest_comes_first_and_empty_lists_are_passed_over() {
    let mut pcp = Pcp::new(Metadata::WhenSplit);
    assert!(pcp.push(0, Order::ZERO, 1) && pcp.push(0, Order::ZERO, 2));
    assert!(pcp.push(12, Order::HUGE, 512));
    let mut cursor = 1;
    let taken: Vec<u32> =
        core::iter::from_fn(|| pcp.coldest(&mut cursor).map(Coldest::take)).collect();
    assert_eq!((taken.as_slice(), pcp.count()), ([512, 1, 2].as_slice(), 0));
}

#[test]
fn lists_that_were_set_aside_are_full_at_some_point_and_keep_what_they_have() {
    let longest = |high| lists_for(Pages(high), Pages(63), Pages(1 << 20), false);
    let mut pcp = Pcp::new(Metadata::Eager);
    assert!(!pcp.push(0, Order::ZERO, 7), "nothing was set aside yet");
    pcp.replace(&mut longest(100));
    assert_eq!(pcp.room(0, 1000), 100 + 2 * 63 + 2);
    assert_eq!(pcp.room(1, 1), 0, "without grouping its list is never used");
    let pushed = (0..1000).take_while(|&page| pcp.push(0, Order::ZERO, page));
    assert_eq!(pushed.count(), 228);
    assert!(!pcp.push_quietly(&[1], &tuning_input()));
    // Shorter lists do not replace the current ones. Longer lists do, and the blocks are kept.
    pcp.replace(&mut longest(50));
    assert_eq!(pcp.room(0, 1000), 0);
    pcp.replace(&mut longest(300));
    assert_eq!((pcp.room(0, 1000), pcp.count()), (200, 228));
    assert_eq!(pcp.pop(0, Order::ZERO), Some(227));
}
