//! The names of mutants, and the order in which a sample draws mutants.

use std::collections::BTreeMap;

use super::change::Change;

/// A mutant: one change in one place of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The name that `cargo mutants` gives to the mutant, with line and column.
    pub(crate) name: String,
    /// The name without line and column, so that it stays the same when lines above the mutant
    /// change. If several changes in one function have the same description, a number at the end
    /// tells them apart.
    pub(crate) key: String,
    pub(crate) change: Change,
}

/// Makes mutants with these names and changes. The changes must be in the order of their places in
/// the code.
pub(crate) fn with_keys(listed: Vec<(String, Change)>) -> Vec<Mutant> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mutants = listed.into_iter().map(|(name, change)| {
        let key = without_place(&name);
        let times = seen.entry(key.clone()).or_default();
        *times += 1;
        Mutant {
            name,
            key: match *times {
                1 => key,
                times => format!("{key} #{times}"),
            },
            change,
        }
    });
    mutants.collect()
}

/// Removes the line and the column from a name such as `file:12:5: what is changed`.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(line), Some(column), Some(change))
            if line.parse::<u32>().is_ok() && column.parse::<u32>().is_ok() =>
        {
            format!("{file}:{change}")
        }
        _ => name.to_owned(),
    }
}

/// Returns the positions of `mutants` in the order in which `seed` draws them. Sorts the mutants by
/// numbers that look random. A mutant's number depends only on its key and on the seed, not on the
/// other mutants. So samples of two versions of the code have nearly the same mutants.
pub(crate) fn drawn(mutants: &[&Mutant], seed: u64) -> Vec<usize> {
    let numbers = mutants.iter().map(|mutant| draw(&mutant.key, seed));
    let mut order: Vec<(u64, usize)> = numbers.zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, at)| at).collect()
}

/// Returns a number that looks random: FNV-1a over the seed and the text, mixed as `SplitMix64`
/// does.
fn draw(text: &str, seed: u64) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325_u64;
    let bytes = seed.to_le_bytes().into_iter().chain(text.bytes());
    let hash = bytes.fold(begin, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Returns mutants with these names and no change.
#[cfg(test)]
pub(super) fn named(names: &[&str]) -> Vec<Mutant> {
    let listed = names
        .iter()
        .map(|name| ((*name).to_owned(), Change::default()));
    with_keys(listed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<Mutant> {
        let name = |nth: usize| format!("a.rs:{nth}:1: replace f{nth} with ()");
        let listed = (0..count).map(|nth| (name(nth), Change::default()));
        with_keys(listed.collect())
    }

    fn sample(all: &[Mutant], count: usize, seed: u64) -> Vec<usize> {
        let all: Vec<&Mutant> = all.iter().collect();
        drawn(&all, seed).into_iter().take(count).collect()
    }

    #[test]
    fn a_key_has_no_line_and_is_still_one_mutants_own() {
        let mutants = named(&[
            "mm/src/a.rs:3:9: replace < with <= in A::b",
            "mm/src/a.rs:4:9: replace < with <= in A::b",
            "mm/src/a.rs:9:1: replace A::c -> bool with true",
        ]);
        let keys: Vec<&str> = mutants.iter().map(|mutant| mutant.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "mm/src/a.rs: replace < with <= in A::b",
                "mm/src/a.rs: replace < with <= in A::b #2",
                "mm/src/a.rs: replace A::c -> bool with true",
            ]
        );
    }

    #[test]
    fn a_seed_draws_the_same_mutants_again_and_another_seed_others() {
        let all = mutants(400);
        let one = sample(&all, 40, 1);
        assert_eq!(one, sample(&all, 40, 1));
        assert_ne!(one, sample(&all, 40, 2));
        let mut whole = sample(&all, 400, 1);
        assert_eq!(whole[..40], one);
        whole.sort_unstable();
        assert_eq!(whole, Vec::from_iter(0..400));
    }

    #[test]
    fn all_mutants_are_drawn_about_as_often() {
        let all = mutants(40);
        let mut times = [0_u32; 40];
        for seed in 0..400 {
            for at in sample(&all, 10, seed) {
                times[at] += 1;
            }
        }
        // On average, a mutant is drawn in 100 of the 400 samples. The standard deviation is 8.7,
        // so the bounds are more than five deviations away.
        assert!(
            times.iter().all(|times| (55..150).contains(times)),
            "{times:?}"
        );
    }

    #[test]
    fn lines_that_move_do_not_change_the_sample() {
        let moved = mutants(100).into_iter().map(|mutant| {
            let name = mutant.name.replacen(":1: ", ":7: ", 1);
            (name, Change::default())
        });
        let moved = with_keys(moved.collect());
        assert_eq!(sample(&moved, 10, 3), sample(&mutants(100), 10, 3));
    }
}
