//! The mutants by name, and the choice of those that are tried.

use std::collections::BTreeMap;

/// One change in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The name that `cargo mutants` gives it, with line and column.
    pub(crate) name: String,
    /// The name without line and column, so that it stays the same when lines above it change. A
    /// number is added if several changes in one function have the same description.
    pub(crate) key: String,
}

/// Returns the mutants with these names, which must be in the order of their places.
pub(crate) fn with_keys<S: AsRef<str>>(names: &[S]) -> Vec<Mutant> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mutants = names.iter().map(|name| {
        let name = name.as_ref();
        let key = without_place(name);
        let times = seen.entry(key.clone()).or_default();
        *times += 1;
        Mutant {
            name: name.to_owned(),
            key: match *times {
                1 => key,
                times => format!("{key} #{times}"),
            },
        }
    });
    mutants.collect()
}

/// Returns `file:12:5: what is changed` without the numbers.
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

/// Returns `count` mutants of `all`, chosen by `seed`, in the order of `all`. The number by which a
/// mutant is chosen does not depend on the other mutants, so for two versions of the code that
/// share a mutant, the choice is nearly always the same.
pub(crate) fn sample<T: Clone>(all: &[(T, Mutant)], count: usize, seed: u64) -> Vec<(T, Mutant)> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| draw(&all[*at].1.key, seed));
    order.truncate(count);
    order.sort_unstable();
    order.into_iter().map(|at| all[at].clone()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<((), Mutant)> {
        let names: Vec<String> = (0..count)
            .map(|nth| format!("a.rs:{nth}:1: replace f{nth} with ()"))
            .collect();
        let mutants = with_keys(&names);
        mutants.into_iter().map(|mutant| ((), mutant)).collect()
    }

    #[test]
    fn a_key_has_no_line_and_is_still_one_mutants_own() {
        let mutants = with_keys(&[
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
        assert_eq!(one.len(), 40);
        assert_eq!(sample(&all, 1000, 1), all);
    }

    #[test]
    fn every_mutant_is_drawn_equally_often() {
        let all = mutants(100);
        let mut times = vec![0_u32; 100];
        for seed in 0..1000 {
            for (_, mutant) in sample(&all, 10, seed) {
                let at = all.iter().position(|(_, other)| *other == mutant);
                times[at.expect("it was drawn from all")] += 1;
            }
        }
        // The average is 100, with a standard deviation of 9.5.
        assert!(
            times.iter().all(|times| (55..150).contains(times)),
            "{times:?}"
        );
    }

    #[test]
    fn lines_that_move_do_not_change_the_sample() {
        let moved: Vec<((), Mutant)> = mutants(100)
            .into_iter()
            .map(|((), mutant)| {
                let name = mutant.name.replacen(":1: ", ":7: ", 1);
                ((), Mutant { name, ..mutant })
            })
            .collect();
        let keys = |sample: Vec<((), Mutant)>| -> Vec<String> {
            sample.into_iter().map(|(_, mutant)| mutant.key).collect()
        };
        assert_eq!(
            keys(sample(&moved, 10, 3)),
            keys(sample(&mutants(100), 10, 3))
        );
    }
}
