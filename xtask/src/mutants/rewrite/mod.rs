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

/// A function, by the name of the type or trait that has it and by the function's name. The first
/// is `None` for a function outside types and traits.
pub(crate) type FnName = (Option<String>, String);

/// A mutant of the file that is rewritten, as the number of the mutant's switch and the change.
pub(crate) type Numbered<'c> = (usize, &'c Change);

/// A part of a rewritten file that belongs to some mutants. From these parts, the compiler's errors
/// are traced back to mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) bytes: Range<usize>,
    pub(crate) mutants: Vec<usize>,
    pub(crate) kind: RegionKind,
}

/// The contents of a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// The changed text of one mutant.
    Changed,
    /// An expression with its changed versions.
    Versions,
    /// A function with mutants.
    Function,
}

/// A rewritten file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) regions: Vec<Region>,
    /// The numbers of mutants that no switch can select, because the compiler evaluates the code.
    pub(crate) constant: Vec<usize>,
    /// The numbers of mutants that the language forbids, because they put `||` beside a `let` in a
    /// condition.
    pub(crate) forbidden: Vec<usize>,
}

/// Rewrites `text`. Functions lose their `const`, because a switch cannot be read while the
/// compiler evaluates; functions in `constants` keep it, and their mutants get no switch.
pub(crate) fn rewrite(
    text: &str,
    mutants: &[Numbered<'_>],
    constants: &BTreeSet<FnName>,
) -> Result<Rewritten, syn::Error> {
    let file = syn::parse_file(text)?;
    let found = sites::find(&file, text, mutants, constants);
    Ok(render::render(text, found))
}
