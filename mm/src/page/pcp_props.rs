//! Property tests of page lists: after any sequence of operations, `high` is within its bounds, and
//! transfers to and from the zone have valid sizes.

use proptest::prelude::*;

use super::Mobility;
use super::holds::FlushFrom;
use super::links::Metadata;
use super::pcp::{Pcp, TuningInput};
use super::sizing::Sizes;
use crate::units::{Order, Pages};

/// One operation of a CPU.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Allocate a block of this order. If the list is empty, first refill it with `refill_blocks`
    /// blocks.
    Alloc(u8),
    /// Free a block of this order. Then move as many pages from the lists to the zone as
    /// `note_free` says.
    Free(u8),
    Decay,
    /// Change the zone's state: whether it is below its high watermark, whether reclaim is active,
    /// and its list sizes.
    TuningInput(TuningInput),
}

/// The orders of blocks for which there are page lists.
const ORDERS: [u8; 5] = [0, 1, 2, 3, 9];

fn tuning_input() -> impl Strategy<Value = TuningInput> {
    let sizes = (1_u32..1 << 20, 0_u32..1 << 20, 1_u32..32, 0_u32..3).prop_map(
        |(managed, low, cpus, fixed)| {
            let fraction = [0, 0, 8][fixed as usize];
            Sizes::of(Pages(managed), Pages(low), cpus, fraction)
        },
    );
    let flags = [any::<bool>(), any::<bool>(), any::<bool>()];
    (sizes, 0_u32..=6, flags).prop_map(
        |(sizes, scale_max, [below_high, reclaiming, large_cache])| TuningInput {
            sizes,
            scale_max,
            below_high,
            reclaiming,
            large_cache,
            flush_from: FlushFrom::BatchAndHalfMin,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let order = || (0_usize..5).prop_map(|index| ORDERS[index]);
    prop_oneof![
        10 => order().prop_map(Op::Alloc),
        10 => order().prop_map(Op::Free),
        3 => Just(Op::Decay),
        1 => tuning_input().prop_map(Op::TuningInput),
    ]
}

/// Removes the coldest blocks from the page lists, until at least `pages` pages have been removed.
fn give(pcp: &mut Pcp, pages: u32) {
    let (mut cursor, before) = (0, pcp.count());
    while before - pcp.count() < pages {
        let Some(coldest) = pcp.coldest(&mut cursor) else {
            break;
        };
        coldest.take();
    }
}

fn step(pcp: &mut Pcp, op: Op, input: &mut TuningInput) -> Result<(), TestCaseError> {
    let Sizes { batch, .. } = input.sizes;
    let most = batch.0 << input.scale_max;
    let list = |order: u8| {
        super::pcp::list_of(Order::new(order).expect("small"), Mobility::Unmovable).expect("listed")
    };
    match op {
        Op::Alloc(order) => {
            let order_of = Order::new(order).expect("a list's order");
            pcp.note_alloc();
            if pcp.pop(list(order), order_of).is_none() {
                let blocks = pcp.refill_blocks(order_of, input);
                prop_assert!(blocks >= 1, "a refill brings something");
                prop_assert!(blocks <= most.max(2), "{blocks} blocks of order {order}");
                prop_assert!(pcp.room(list(order), blocks) == blocks);
                (0..blocks).for_each(|block| pcp.push_cold(list(order), order_of, block << order));
                prop_assert!(pcp.pop(list(order), order_of).is_some());
            }
        }
        Op::Free(order) => {
            let order_of = Order::new(order).expect("a list's order");
            prop_assert!(pcp.push(list(order), order_of, 0));
            let excess = pcp.note_free(order_of, input);
            give(pcp, excess);
        }
        Op::Decay => {
            let (excess, _) = pcp.decay(input);
            prop_assert!(excess <= pcp.count(), "there is as much to give back");
            give(pcp, excess);
        }
        Op::TuningInput(next) => *input = next,
    }
    Ok(())
}

proptest! {
    #[test]
    fn high_stays_within_its_bounds(
        first in tuning_input(),
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        let (mut pcp, mut input) = (Pcp::new(Metadata::WhenSplit), first);
        // After the bounds of `high` have changed, `high` may be outside the new bounds until it is
        // tuned again.
        let mut highest = input.sizes.high_max.0;
        for op in ops {
            if matches!(op, Op::Decay) {
                // As in Linux, a decay may raise `high` to the number of pages on the lists minus
                // `batch << scale_max`. This happens, for example, if the lists have a block of 512
                // pages but a `high_max` of 292. The next free corrects `high`.
                highest = highest.max(pcp.count());
            }
            step(&mut pcp, op, &mut input)?;
            highest = highest.max(input.sizes.high_max.0);
            prop_assert!(pcp.high() <= highest, "{} of {highest} after {op:?}", pcp.high());
        }
    }
}

/// Frees a block with all the decisions of the slow path. Then computes up to which length of the
/// lists later frees certainly return no page to the zone.
fn free(pcp: &mut Pcp, order: Order, input: &TuningInput, version: i64) {
    let list = super::pcp::list_of(order, Mobility::Unmovable).expect("listed");
    assert!(pcp.push(list, order, 0), "the lists grow");
    let excess = pcp.note_free(order, input);
    give(pcp, excess);
    pcp.note_quiet(input, version);
}

proptest! {
    #[test]
    fn a_quiet_free_does_what_any_free_does(
        first in tuning_input(),
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        let (mut always, mut quick) = (Pcp::new(Metadata::WhenSplit), Pcp::new(Metadata::WhenSplit));
        let (mut input, mut version) = (first, 1);
        for op in ops {
            let mut unchanged = input;
            match op {
                Op::Free(order) => {
                    let order = Order::new(order).expect("a list's order");
                    let list = super::pcp::list_of(order, Mobility::Unmovable).expect("listed");
                    free(&mut always, order, &input, version);
                    let may_be_quiet = !(1..=3).contains(&order.get());
                    if !(may_be_quiet && quick.push_if_quiet(list, order, 0, version)) {
                        free(&mut quick, order, &input, version);
                    }
                }
                Op::TuningInput(next) => {
                    input = next;
                    version += 1;
                }
                other => {
                    step(&mut always, other, &mut unchanged)?;
                    step(&mut quick, other, &mut unchanged)?;
                }
            }
            prop_assert_eq!(always.decided(), quick.decided(), "after {:?}", op);
            prop_assert_eq!(always.count(), quick.count(), "after {:?}", op);
        }
    }
}
