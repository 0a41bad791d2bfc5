//! Rewrites a file of `mm` so that it has many mutants at once, each behind a switch that is set
//! when a test program starts.

mod render;
mod sites;
pub(crate) mod switch;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;

use super::change::Change;

/// A function: the name of the type or trait that contains it, and its own name. The first name is
/// `None` for a function outside types and traits.
pub(crate) type FnName = (Option<String>, String);

/// A mutant of the file that is rewritten, as the number of the mutant's switch and the change.
pub(crate) type Numbered<'c> = (usize, &'c Change);

/// A byte range of a rewritten file, with the mutants to which it belongs. If the compiler reports
/// an error in this range, these mutants may be the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) bytes: Range<usize>,
    pub(crate) mutants: Vec<usize>,
    pub(crate) kind: RegionKind,
}

/// The kind of code in a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// The changed text of one mutant.
    Changed,
    /// An expression together with its versions that mutants have changed.
    Versions,
    /// A function with mutants.
    Function,
}

/// A rewritten file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) regions: Vec<Region>,
    /// The numbers of the mutants that cannot have a switch. Either the compiler evaluates the
    /// changed code, or `rewrite` does not support the place of the change.
    pub(crate) constant: Vec<usize>,
    /// The mutants (by number) that break a rule of the language. Such a mutant puts `||` beside a
    /// `let` in a condition.
    pub(crate) forbidden: Vec<usize>,
}

/// Rewrites `text`. Removes `const` from functions, because a function that the compiler evaluates
/// cannot read a switch. The functions in `constants` stay `const`, and the mutants in these
/// functions get no switch.
pub(crate) fn rewrite(
    text: &str,
    mutants: &[Numbered<'_>],
    constants: &BTreeSet<FnName>,
) -> Result<Rewritten, syn::Error> {
    let file = syn::parse_file(text)?;
    let found = sites::find(&file, text, mutants, constants);
    Ok(render::render(text, found))
}
