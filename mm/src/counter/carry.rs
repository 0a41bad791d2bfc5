//! Computes how much of a count one level of a tree of counters passes up to the next. The levels
//! are the CPUs' cells, the items that several CPUs share, and the root.

/// Returns the amount that a cell passes upwards when its value changes from `old` to `new`: `batch
/// × (⌊new / batch⌋ − ⌊old / batch⌋)`. `batch` is a power of two. The remainder that stays in the
/// cell is never negative.
#[inline]
pub(super) const fn carry(old: i64, new: i64, batch: i64) -> i64 {
    let above = !(batch - 1);
    (new & above).wrapping_sub(old & above)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_carry_is_the_difference_of_two_floors(
            old in -1_000_000_i64..1_000_000,
            new in -1_000_000_i64..1_000_000,
            bits in 1_u32..20,
        ) {
            let batch = 1_i64 << bits;
            let expected = batch * (new.div_euclid(batch) - old.div_euclid(batch));
            prop_assert_eq!(carry(old, new, batch), expected);
        }
    }
}
