//! Groups the cases of a run (one design on one seed each) by comparison and design, and pairs the
//! comparisons of two runs.

use std::collections::BTreeMap;

use crate::measure::metric::Metric;
use crate::run::journal::ComparisonKey;
use crate::store::journal::CaseLine;

/// The cases of one comparison (one design on one seed each), by design.
#[derive(Debug)]
pub(super) struct Grouped<'a> {
    pub(super) key: &'a ComparisonKey,
    /// Each design with its cases, in the order of their seeds.
    pub(super) designs: Vec<(&'a str, Vec<&'a CaseLine>)>,
}

impl<'a> Grouped<'a> {
    /// The cases of `design`. `None` if the comparison does not have this design.
    pub(super) fn cases(&self, design: &str) -> Option<&[&'a CaseLine]> {
        let found = self.designs.iter().find(|(name, _)| *name == design);
        found.map(|(_, cases)| cases.as_slice())
    }

    /// Returns whether this comparison and `other` have the same cases (one design on one seed
    /// each), with the same hashes and values.
    pub(super) fn is_like(&self, other: &Grouped<'_>) -> bool {
        let cases = |of: &Grouped<'_>| -> Vec<CaseLine> {
            let cases = of.designs.iter().flat_map(|(_, cases)| cases);
            let plain = |case: &&CaseLine| CaseLine {
                comparison: ComparisonKey::default(),
                ..(*case).clone()
            };
            cases.map(plain).collect()
        };
        cases(self) == cases(other)
    }
}

/// Groups `cases` by comparison and design. The cases must be in the order of their comparisons,
/// designs and seeds.
pub(super) fn grouped(cases: &[CaseLine]) -> Vec<Grouped<'_>> {
    let comparisons = cases.chunk_by(|one, next| one.comparison == next.comparison);
    comparisons
        .map(|of_comparison| Grouped {
            key: &of_comparison[0].comparison,
            designs: of_comparison
                .chunk_by(|one, next| one.design == next.design)
                .map(|of_design| (of_design[0].design.as_str(), of_design.iter().collect()))
                .collect(),
        })
        .collect()
}

/// The metrics that at least one of `cases` has, in the order in which they first occur.
pub(super) fn metrics(cases: &[&CaseLine]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for measured in cases.iter().flat_map(|case| &case.metrics) {
        if metrics.iter().all(|known| known.name != measured.metric) {
            metrics.push(measured.clone().into_metric());
        }
    }
    metrics
}

type Pair<'p, 'a> = (Option<&'p Grouped<'a>>, Option<&'p Grouped<'a>>);

/// Pairs each comparison of `a` with the comparison of `b` that it matches. Pairs whose comparisons
/// have equal keys (`ComparisonKey`) come first. A comparison without a match is alone in its pair.
pub(super) fn pairs<'p, 'a>(a: &'p [Grouped<'a>], b: &'p [Grouped<'a>]) -> Vec<Pair<'p, 'a>> {
    let mut pairs = Vec::new();
    let find = |key: &ComparisonKey| b.iter().find(|other| other.key == key);
    let (same, others): (Vec<_>, Vec<_>) = a.iter().partition(|side| find(side.key).is_some());
    pairs.extend(same.iter().map(|side| (Some(*side), find(side.key))));
    let is_matched = |side: &&Grouped<'_>| same.iter().any(|of_a| of_a.key == side.key);
    let in_b: Vec<&Grouped<'_>> = b.iter().filter(|side| !is_matched(side)).collect();
    let (of_a, of_b) = (by_machineless(&others), by_machineless(&in_b));
    for (key, sides) in &of_a {
        match (&sides[..], of_b.get(key).map(Vec::as_slice)) {
            ([one], Some([other])) => pairs.push((Some(one), Some(other))),
            _ => pairs.extend(sides.iter().map(|side| (Some(*side), None))),
        }
    }
    for (key, sides) in &of_b {
        if sides.len() > 1 || of_a.get(key).is_none_or(|of_a| of_a.len() > 1) {
            pairs.extend(sides.iter().map(|side| (None, Some(*side))));
        }
    }
    pairs
}

/// Groups the comparisons by their keys. The machine in a key is ignored.
fn by_machineless<'p, 'a>(
    all: &[&'p Grouped<'a>],
) -> BTreeMap<ComparisonKey, Vec<&'p Grouped<'a>>> {
    let mut by: BTreeMap<ComparisonKey, Vec<&Grouped<'_>>> = BTreeMap::new();
    for of in all {
        let mut key = of.key.clone();
        key.title.machine.clear();
        by.entry(key).or_default().push(of);
    }
    by
}
