//! One cause at a time: the effect of each change alone, and what the patch's gain is due to.

use super::crowding::Crowding;
use super::regime::Regime;
use super::{BASELINE, PATCH};
use crate::measure::stats::{Comparison, Verdict};
use crate::report::value::human_ratio;
use crate::report::{Table, VerdictRow};

/// The effect of each change on the contentions at `free_pcppages_bulk`, against Linux.
#[derive(Clone, Debug)]
pub(super) struct Causes {
    changes: Vec<Change>,
}

/// A change of one mechanism, or of several where the patch makes several.
#[derive(Clone, Debug)]
struct Change {
    cause: &'static str,
    design: &'static str,
    contentions: Comparison,
    decay: Comparison,
    per_decayed: Comparison,
    decayed: Comparison,
}

const CHANGES: [(&str, &str); 7] = [
    ("the patch: phase and interval", PATCH),
    ("interval alone", "slowed+shepherd-at-once"),
    ("phase alone, by the wheel", "phased-wheel+shepherd-at-once"),
    ("phase alone, exact", "phased+shepherd-at-once"),
    ("shepherd alone", "round-jiffies+shepherd-phased"),
    ("phase and shepherd: ours", "phased+shepherd-phased"),
    ("all on one tick", "aligned+shepherd-at-once"),
];

impl Causes {
    pub(super) fn of(verdicts: &[VerdictRow]) -> Self {
        let find = |design: &str, metric: &str| {
            let is_it = |row: &&VerdictRow| row.b == design && row.metric.name == metric;
            verdicts.iter().find(is_it).map(|row| row.comparison)
        };
        let change = |&(cause, design): &(&'static str, &'static str)| {
            Some(Change {
                cause,
                design,
                contentions: find(design, "contentions")?,
                decay: find(design, "decay_contentions")?,
                per_decayed: find(design, "decay_contentions_per_mpage")?,
                decayed: find(design, "pages_decayed")?,
            })
        };
        Self {
            changes: CHANGES.iter().filter_map(change).collect(),
        }
    }

    pub(super) fn table(&self) -> Table {
        let row = |change: &Change| {
            vec![
                change.cause.to_owned(),
                human_ratio(&change.contentions.ratio),
                human_ratio(&change.decay.ratio),
                human_ratio(&change.decayed.ratio),
                human_ratio(&change.per_decayed.ratio),
            ]
        };
        Table {
            title: format!("One cause at a time, as ratios to {BASELINE}"),
            note: "`at equal work`: contentions of decays per page they gave back. Below 1 is \
                   fewer."
                .to_owned(),
            columns: [
                "cause",
                "contentions",
                "of decays",
                "pages decayed",
                "at equal work",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: self.changes.iter().map(row).collect(),
        }
    }

    /// One paragraph, every word of it following from this run's intervals.
    pub(super) fn finding(&self, schedules: Option<&(Crowding, Regime)>) -> String {
        let mut sentences: Vec<String> = Vec::new();
        if let Some(patch) = self.design(PATCH) {
            sentences.push(format!(
                "Against {BASELINE}, the patch as posted {} contentions at free_pcppages_bulk \
                 ({}), while giving back {} of the pages.",
                effect(&patch.contentions),
                human_ratio(&patch.contentions.ratio),
                human_ratio(&patch.decayed.ratio),
            ));
        }
        for (cause, design) in [
            ("Firing less often alone", "slowed+shepherd-at-once"),
            (
                "Exact phases at the old interval alone",
                "phased+shepherd-at-once",
            ),
            (
                "The same phases through the timer wheel",
                "phased-wheel+shepherd-at-once",
            ),
            (
                "A shepherd that kicks at phases alone",
                "round-jiffies+shepherd-phased",
            ),
        ] {
            if let Some(change) = self.design(design) {
                sentences.push(format!(
                    "{cause} {} them ({}); contentions of decays at equal work: {}.",
                    effect(&change.contentions),
                    human_ratio(&change.contentions.ratio),
                    human_ratio(&change.per_decayed.ratio),
                ));
            }
        }
        sentences.push(self.due_to());
        if let Some((crowding, regime)) = schedules {
            sentences.push(crowding.sentence());
            sentences.push(regime.sentence());
        }
        sentences.join(" ")
    }

    /// The sentence on which single cause explains the patch: one that lowers contentions per page
    /// given back, with an interval that excludes 1.
    fn due_to(&self) -> String {
        let singles = [
            ("the longer interval", "slowed+shepherd-at-once"),
            ("the phases", "phased-wheel+shepherd-at-once"),
        ];
        let lowering: Vec<_> = singles
            .iter()
            .filter_map(|(cause, design)| Some((cause, self.design(design)?)))
            // Causes are compared at equal work, because to fire less often and do less is no gain.
            .filter(|(_, change)| change.per_decayed.verdict == Verdict::Lower)
            .collect();
        let patch = self.design(PATCH).map(|patch| patch.contentions.verdict);
        if patch == Some(Verdict::TooFewSeeds) {
            return "Too few seeds to say what a gain is due to.".to_owned();
        }
        let patch_lowers = patch == Some(Verdict::Lower);
        match (patch_lowers, lowering.as_slice()) {
            (false, _) => {
                "So on this workload there is no gain of the patch to explain.".to_owned()
            }
            (true, []) => {
                "So at equal work neither cause alone explains the patch's gain: it takes both."
                    .to_owned()
            }
            (true, [(cause, _)]) => {
                format!(
                    "So of the patch's two effects only {cause} can be seen to gain at equal work."
                )
            }
            (true, _) => "So both of the patch's effects gain at equal work.".to_owned(),
        }
    }

    fn design(&self, name: &str) -> Option<&Change> {
        self.changes.iter().find(|change| change.design == name)
    }
}

fn effect(comparison: &Comparison) -> &'static str {
    match comparison.verdict {
        Verdict::Lower => "lowers",
        Verdict::Higher => "raises",
        Verdict::NoDifference => "does not measurably change",
        Verdict::TooFewSeeds => "was run on too few seeds to say how it changes",
    }
}
