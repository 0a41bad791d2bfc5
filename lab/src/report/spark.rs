//! A course of values as one line of blocks.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One block for each of `values`, from 0 to the largest of them.
#[must_use]
pub fn spark(values: &[f64]) -> String {
    let top = values.iter().copied().fold(0.0, f64::max);
    let block = |value: &f64| {
        let share = if top > 0.0 { value / top } else { 0.0 };
        // Below zero and above the largest there is nothing: the cast saturates.
        let eighth = (share * 8.0) as usize;
        BLOCKS[eighth.min(7)]
    };
    values.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_a_full_block_and_nothing_the_lowest() {
        let values: Vec<f64> = (0..=8).map(f64::from).collect();
        assert_eq!(spark(&values), "▁▂▃▄▅▆▇██");
        assert_eq!(spark(&[0.0, 0.0]), "▁▁");
        assert_eq!(spark(&[]), "");
    }
}
