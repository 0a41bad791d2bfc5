//! A sparkline: a series of values as one line of block characters.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One block character for each of `values`. The scale goes from 0 to the largest value.
#[must_use]
pub(crate) fn spark(values: &[u64]) -> String {
    let top = values.iter().copied().max().unwrap_or(0).max(1);
    let block = |&value: &u64| {
        let eighths = value.saturating_mul(8) / top;
        BLOCKS[usize::try_from(eighths).map_or(7, |nth| nth.min(7))]
    };
    values.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_a_full_block_and_nothing_the_lowest() {
        let values: Vec<u64> = (0..=8).collect();
        assert_eq!(spark(&values), "▁▂▃▄▅▆▇██");
        assert_eq!(spark(&[0, 0]), "▁▁");
        assert_eq!(spark(&[]), "");
    }
}
