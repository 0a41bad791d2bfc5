//! Strategies for numbers from the whole range of their types. The strategies often draw small
//! numbers, and the ends of the range.

use proptest::prelude::*;

pub(crate) fn any_u32() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0..5000u32,
        (0..5000u32).prop_map(|below| u32::MAX - below),
        (0..32u32).prop_map(|bit| 1 << bit),
    ]
}

pub(crate) fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..5000u64,
        (0..5000u64).prop_map(|below| u64::MAX - below),
        (0..64u32).prop_map(|bit| 1 << bit),
    ]
}

pub(crate) fn any_i64() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -5000..5000i64,
        (0..5000i64).prop_map(|below| i64::MAX - below),
        (0..5000i64).prop_map(|above| i64::MIN + above),
    ]
}
