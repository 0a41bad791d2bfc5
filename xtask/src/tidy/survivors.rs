//! The rule about `survivors.toml`, the list of mutants that may survive: its entries are sorted
//! and unique, name existing files, and have a reason.

use super::Tree;
use crate::mutants::{SURVIVORS, parse_survivors};

/// The minimum length of a reason, in bytes; a shorter reason would say nothing.
const SHORTEST_REASON: usize = 20;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(file) = tree.files.iter().find(|file| file.path == SURVIVORS) else {
        return Vec::new();
    };
    let listed = match parse_survivors(&file.text) {
        Ok(listed) => listed,
        Err(error) => return vec![error],
    };
    let mut broken = Vec::new();
    for (mutant, reason) in &listed {
        let of = mutant.split(':').next().unwrap_or_default();
        if tree.files.iter().all(|file| file.path != of) {
            broken.push(format!("{SURVIVORS}: {mutant}: there is no file {of}"));
        }
        if reason.len() < SHORTEST_REASON {
            broken.push(format!(
                "{SURVIVORS}: {mutant}: say why no test can notice it"
            ));
        }
    }
    for pair in listed.windows(2) {
        if pair[0].0 >= pair[1].0 {
            broken.push(format!(
                "{SURVIVORS}: `{}` must come before `{}`, and each only once",
                pair[1].0, pair[0].0
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::super::tree::broken_by;
    use super::*;

    fn listed(entries: &[(&str, &str)]) -> Vec<String> {
        let text: String = entries
            .iter()
            .map(|(mutant, reason)| {
                format!("[[survivor]]\nmutant = \"{mutant}\"\nreason = \"{reason}\"\n")
            })
            .collect();
        broken_by(check, SURVIVORS, &text)
    }

    #[test]
    fn a_sorted_list_with_reasons_passes_and_nothing_else() {
        let reason = "Both sides are equal at this value.";
        let (one, two) = ("mm/src/lib.rs: a", "mm/src/site.rs: b");
        assert_eq!(listed(&[(one, reason), (two, reason)]), [""; 0]);
        for (entries, help) in [
            (&[(two, reason), (one, reason)][..], "must come before"),
            (&[(one, reason), (one, reason)], "only once"),
            (&[(one, "equal")], "say why"),
            (&[("mm/src/gone.rs: a", reason)], "no file mm/src/gone.rs"),
        ] {
            let broken = listed(entries);
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(broken[0].contains(help), "{broken:?}");
        }
        assert_eq!(broken_by(check, SURVIVORS, "survivor = 1\n").len(), 1);
    }
}
