//! Computes how much a cell or item of a counter tree passes up to the item above it.

/// Returns the amount to carry when a cell changes from `old` to `new`: `batch × (⌊new / batch⌋ −
/// ⌊old / batch⌋)`. `batch` is a power of two. The remainder that is not carried is never negative.
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
