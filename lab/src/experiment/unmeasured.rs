//! Published figures that no experiment measures, each with the reason why. The figures are in
//! `lab/data/unmeasured.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::measure::metric::Unit;
use crate::report::misses::{Basis, Beside, Thread, Values};

/// The text of `unmeasured.toml`.
const FILE: &str = include_str!("../../data/unmeasured.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    causes: BTreeMap<String, String>,
    published: Vec<Source>,
}

/// The published figures of one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    thread: Thread,
    source: String,
    figure: Vec<Figure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    what: String,
    unit: Unit,
    /// One value, or two values. Of two values, the first is Linux's and the second is the patch's.
    values: Vec<f64>,
    why: Option<String>,
    /// A name in the file's table of causes. If it is given, the reason with this name is used in
    /// place of `why`.
    cause: Option<String>,
}

/// The figures that no experiment measures, in the order in which `docs/misses.md` lists them.
///
/// # Panics
/// If `unmeasured.toml` has a mistake. A test checks that the file has none.
pub(super) fn figures() -> Vec<Beside> {
    let File { causes, published } = toml::from_str(FILE).expect("a test reads the file");
    let of_source = |source: Source| {
        let beside = |figure: &Figure| {
            let cause = figure.cause.as_ref().map(|name| &causes[name]);
            Beside {
                thread: source.thread,
                source: source.source.clone().into(),
                what: figure.what.clone().into(),
                unit: figure.unit,
                published: Values::Levels(figure.values.clone()),
                basis: Basis::Independent,
                place: None,
                why: cause
                    .or(figure.why.as_ref())
                    .cloned()
                    .unwrap_or_default()
                    .into(),
                ours: None,
            }
        };
        source.figure.iter().map(beside).collect::<Vec<_>>()
    };
    published.into_iter().flat_map(of_source).collect()
}
