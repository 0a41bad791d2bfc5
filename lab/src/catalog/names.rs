//! Suggests known names for an unknown name.

/// Returns up to three of `names` that are similar to `name`, the most similar first.
#[must_use]
pub(crate) fn nearest<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let likeness = |known: &str| {
        // The user may have abbreviated the name, so a known name that begins with `name` counts as
        // a perfect match.
        let begins = !name.is_empty() && known.starts_with(&name);
        if begins {
            1.0
        } else {
            strsim::normalized_damerau_levenshtein(&name, known)
        }
    };
    let mut near: Vec<(f64, &str)> = names
        .iter()
        .map(|known| (likeness(known), *known))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    near.into_iter().map(|(_, known)| known).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["vmstat", "drain", "grace-72", "grace-72-kasan"];

    #[test]
    fn slips_find_the_name_that_was_meant() {
        assert_eq!(nearest("vmstta", &NAMES), ["vmstat"]);
        assert_eq!(nearest("Drian", &NAMES), ["drain"]);
        assert_eq!(nearest("grace", &NAMES), ["grace-72", "grace-72-kasan"]);
        assert_eq!(nearest("turin-316", &NAMES), [""; 0]);
        assert_eq!(nearest("", &NAMES), [""; 0]);
    }
}
