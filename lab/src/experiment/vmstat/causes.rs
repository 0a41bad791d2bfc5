//! One cause at a time: the effect of each change alone, and which change explains the patch's
//! gain.

use super::scene::{CONTENTIONS, DECAY_CONTENTIONS, DECAYED, PER_DECAYED};
use super::{BASELINE, OURS, PATCH, PHASED_WHEEL, SLOWED};
use crate::experiment::declared::{Finding, Results, effect};
use crate::measure::metric::Metric;
use crate::measure::stats::Verdict;
use crate::report::{Table, tabulate};

/// The changes, each with the name of the design that is Linux with only this change.
const CHANGES: [(&str, &str); 7] = [
    ("the patch: phase and interval", PATCH),
    ("interval alone", SLOWED),
    ("phase alone, by the wheel", PHASED_WHEEL),
    ("phase alone, exact", "phased+shepherd-at-once"),
    ("shepherd alone", "round-jiffies+shepherd-phased"),
    ("phase and shepherd: ours", OURS),
    ("all on one tick", "aligned+shepherd-at-once"),
];

pub(super) fn table(results: &Results) -> Table {
    let ratio = |design: &str, metric: &Metric| results.show_ratio((BASELINE, design), metric);
    tabulate!(
        format!("One cause at a time, as ratios to {BASELINE}"),
        "`at equal work`: contentions of decays per page they gave back. Below 1 is fewer.",
        &CHANGES,
        |(cause, design)| {
            "cause" => cause,
            "contentions" => ratio(design, &CONTENTIONS),
            "of decays" => ratio(design, &DECAY_CONTENTIONS),
            "pages decayed" => ratio(design, &DECAYED),
            "at equal work" => ratio(design, &PER_DECAYED),
        }
    )
}

/// Makes the finding. Every statement in it follows from the intervals of the runs.
pub(super) fn finding(results: &Results) -> Finding {
    let ratio = |design, metric: &Metric| results.show_ratio((BASELINE, design), metric);
    let verdict = results.compare((BASELINE, PATCH), &CONTENTIONS).verdict;
    let answer = format!(
        "The patch as posted {} contentions at free_pcppages_bulk{}.",
        effect(verdict),
        due_to(results, verdict)
    );
    Finding::new(
        answer,
        [
            (
                "contentions, the patch against Linux",
                ratio(PATCH, &CONTENTIONS),
            ),
            ("pages it gives back", ratio(PATCH, &DECAYED)),
            (
                "at equal work, the longer interval alone",
                ratio(SLOWED, &PER_DECAYED),
            ),
            (
                "the phases alone, by the timer wheel",
                ratio(PHASED_WHEEL, &PER_DECAYED),
            ),
            ("contentions, ours against Linux", ratio(OURS, &CONTENTIONS)),
        ],
    )
}

/// Returns the words that say which single cause explains the patch's gain. A cause explains it if
/// that cause alone lowers the contentions per decayed page, with an interval that excludes 1.
/// Contentions are counted per page, because a design that only fires less often has fewer
/// contentions but also returns fewer pages.
fn due_to(results: &Results, patch: Verdict) -> &'static str {
    let gains = |design| {
        let compared = results.compare((BASELINE, design), &PER_DECAYED);
        compared.verdict == Verdict::Lower
    };
    match (patch, gains(SLOWED), gains(PHASED_WHEEL)) {
        (Verdict::TooFewSeeds, ..) => "",
        (Verdict::NoDifference | Verdict::Higher, ..) => ", so there is no gain to explain",
        (Verdict::Lower, false, false) => {
            ", and at equal work neither its longer interval nor its phases explain that alone"
        }
        (Verdict::Lower, true, false) => {
            ", and at equal work only its longer interval can be seen to gain"
        }
        (Verdict::Lower, false, true) => ", and at equal work only its phases can be seen to gain",
        (Verdict::Lower, true, true) => {
            ", and at equal work both its longer interval and its phases gain"
        }
    }
}
