//! Traces errors of the compiler back to the mutants that cause them.

use std::collections::{BTreeMap, BTreeSet};

use super::compile::{Error, Span};
use crate::mutants::rewrite::{FnName, Region, RegionKind};

/// The mutants and functions that the compiler's errors name. The next attempt to compile treats
/// them differently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blame {
    /// The numbers of mutants that do not compile because their changed text is wrong.
    pub(super) unviable: BTreeSet<usize>,
    /// The numbers of mutants that do not compile together with other mutants, but may compile
    /// alone.
    pub(super) alone: BTreeSet<usize>,
    /// The functions that must stay `const`, because the compiler evaluates calls of them. The
    /// mutants in these functions cannot be turned on at run time.
    pub(super) constants: BTreeSet<FnName>,
}

impl Blame {
    fn is_empty(&self) -> bool {
        self.unviable.is_empty() && self.alone.is_empty() && self.constants.is_empty()
    }
}

/// Finds the causes of `errors`. Two kinds of causes are sure: functions that must stay `const`,
/// and mutants whose changed text contains the primary span of an error. If there are sure causes,
/// the function looks for no other causes, because the other errors may follow from the sure
/// causes.
pub(super) fn blame(
    errors: &[Error],
    regions: &BTreeMap<String, Vec<Region>>,
) -> Result<Blame, String> {
    let mut blame = Blame::default();
    for error in errors {
        if error.code == "E0015" {
            blame.constants.extend(called(&error.message));
        } else {
            let mutants = within(error, regions, RegionKind::Changed, true);
            blame.unviable.extend(mutants);
        }
    }
    let less_sure = [
        (RegionKind::Changed, false),
        (RegionKind::Versions, true),
        (RegionKind::Function, true),
    ];
    for (kind, is_primary) in less_sure {
        if !blame.is_empty() {
            return Ok(blame);
        }
        for error in errors {
            let mutants = within(error, regions, kind, is_primary);
            blame.alone.extend(mutants);
        }
    }
    match (errors.first(), blame.is_empty()) {
        (Some(error), true) => Err(format!(
            "the rewritten code does not compile, and no mutant is to blame:\n{}",
            error.rendered
        )),
        _ => Ok(blame),
    }
}

/// Returns the mutants that may have caused an error. The function looks at each span of `error` in
/// which `is_primary` has the given value. It finds the smallest region of `kind` (a part of the
/// code with mutants) that contains the span, and returns the mutants of these regions.
fn within(
    error: &Error,
    regions: &BTreeMap<String, Vec<Region>>,
    kind: RegionKind,
    is_primary: bool,
) -> BTreeSet<usize> {
    let spans = error.spans.iter();
    let spans = spans.filter(|span| span.is_primary == is_primary);
    let smallest = |span: &Span| {
        let around = regions.get(&span.file)?.iter().filter(|region| {
            region.kind == kind
                && region.bytes.start <= span.bytes.start
                && span.bytes.end <= region.bytes.end
        });
        around.min_by_key(|region| region.bytes.len())
    };
    let found = spans.filter_map(smallest);
    found
        .flat_map(|region| region.mutants.iter().copied())
        .collect()
}

/// Returns the function that an error's message names, as in "cannot call non-const method
/// `Zone::<M>::pages` in constants".
fn called(message: &str) -> Option<FnName> {
    let path = message.split('`').nth(1)?;
    let mut depth = 0_usize;
    let mut plain = String::new();
    for letter in path.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            letter if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let names = plain.split(':').filter(|name| !name.is_empty());
    let mut names = names.rev();
    let function = names.next()?.to_owned();
    let owner = names
        .next()
        .filter(|name| name.starts_with(char::is_uppercase));
    Some((owner.map(str::to_owned), function))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn regions() -> BTreeMap<String, Vec<Region>> {
        let region = |bytes: Range<usize>, mutants: &[usize], kind| Region {
            bytes,
            mutants: mutants.to_vec(),
            kind,
        };
        let regions = vec![
            region(12..15, &[1], RegionKind::Changed),
            region(22..25, &[2], RegionKind::Changed),
            region(10..30, &[1, 2], RegionKind::Versions),
            region(0..50, &[1, 2, 3], RegionKind::Function),
        ];
        BTreeMap::from([("a.rs".to_owned(), regions)])
    }

    fn error(at: Range<usize>, is_primary: bool) -> Error {
        Error {
            rendered: "error: bad".to_owned(),
            spans: vec![Span {
                file: "a.rs".to_owned(),
                bytes: at,
                is_primary,
            }],
            ..Error::default()
        }
    }

    fn blamed(errors: &[Error]) -> (Vec<usize>, Vec<usize>) {
        let blame = blame(errors, &regions()).expect("somebody is to blame");
        let sorted = |set: BTreeSet<usize>| set.into_iter().collect();
        (sorted(blame.unviable), sorted(blame.alone))
    }

    /// `blame` names the mutants of the smallest region around an error. A mutant is unviable only
    /// if its changed text contains an error's primary span; otherwise the mutant is to be built
    /// alone.
    #[test]
    fn the_smallest_place_around_an_error_is_blamed() {
        assert_eq!(blamed(&[error(13..14, true)]), (vec![1], vec![]));
        assert_eq!(blamed(&[error(13..14, false)]), (vec![], vec![1]));
        assert_eq!(blamed(&[error(26..28, true)]), (vec![], vec![1, 2]));
        assert_eq!(blamed(&[error(40..41, true)]), (vec![], vec![1, 2, 3]));
    }

    /// If the cause of one error is sure, `blame` does not look for the causes of the other errors
    /// in this attempt.
    #[test]
    fn errors_that_may_follow_from_others_wait() {
        let errors = [error(40..41, true), error(22..25, true)];
        assert_eq!(blamed(&errors), (vec![2], vec![]));
    }

    #[test]
    fn an_error_far_from_all_mutants_ends_the_attempt() {
        let error = blame(&[error(60..61, true)], &regions()).expect_err("nobody is to blame");
        assert!(error.contains("error: bad"), "{error}");
    }

    #[test]
    fn a_function_in_a_constant_is_named() {
        let error = |message: &str| Error {
            code: "E0015".to_owned(),
            message: message.to_owned(),
            ..Error::default()
        };
        let errors = [
            error("cannot call non-const method `zone::Zone::<M>::pages` in constants"),
            error("cannot call non-const function `units::size` in constant functions"),
            error("cannot call non-const associated function `Hz::new` in statics"),
        ];
        let blame = blame(&errors, &regions()).expect("functions are to blame");
        let name = |owner: Option<&str>, name: &str| (owner.map(str::to_owned), name.to_owned());
        let expected = [
            name(None, "size"),
            name(Some("Hz"), "new"),
            name(Some("Zone"), "pages"),
        ];
        assert_eq!(blame.constants, BTreeSet::from(expected));
    }
}
