//! Separates the causes of the patch's gain (the drop in contentions): runs Linux with one change
//! at a time, and finds the change that explains the gain.

use super::setup::{CONTENTIONS, DECAY_CONTENTIONS, DECAYED, PER_DECAYED};
use super::workloads::MAIN;
use super::{BASELINE, OURS, PATCH, PHASED_WHEEL, SLOWED};
use crate::experiment::driver::Results;
use crate::measure::metric::Metric;
use crate::measure::stats::Verdict;
use crate::report::{Table, tabulate};

/// Changes to Linux, each with the name of the design that differs from Linux in only this change.
const CHANGES: [(&str, &str); 7] = [
    ("the patch: phase and interval", PATCH),
    ("interval alone", SLOWED),
    ("phase alone, by the wheel", PHASED_WHEEL),
    ("phase alone, exact", "phased+shepherd-at-once"),
    ("shepherd alone", "round-jiffies+shepherd-phased"),
    ("phase and shepherd: ours", OURS),
    ("all on one tick", "aligned+shepherd-at-once"),
];

/// The designs whose names this module uses.
pub(super) const NAMED: [&str; 8] = [
    BASELINE,
    PATCH,
    SLOWED,
    PHASED_WHEEL,
    "phased+shepherd-at-once",
    "round-jiffies+shepherd-phased",
    OURS,
    "aligned+shepherd-at-once",
];

/// The cause of the patch's drop in contentions: one of the patch's two changes, both, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// There are too few seeds to tell whether the patch lowers contentions.
    TooFewSeeds,
    /// The patch does not lower contentions.
    NoGain,
    /// Staggering the CPUs' vmstat work (the phases) alone lowers the contentions per page that
    /// this work returned. The runs do not show that the longer interval alone lowers them. The
    /// patch's changelog names only the phases as the cause.
    Phases,
    /// The longer interval between runs of the vmstat work alone lowers the contentions per page
    /// that this work returned. The runs do not show that staggering the work (the phases) alone
    /// lowers them.
    Interval,
    /// Each of the patch's two changes (phases and a longer interval) alone lowers the contentions
    /// per page that the vmstat work returned.
    Both,
    /// Of the patch's two changes, the longer interval alone lowers the number of contentions. But
    /// this is so only because CPUs that do the vmstat work less often return fewer pages. The runs
    /// do not show that either change alone lowers the contentions per page that this work
    /// returned.
    LessWork,
    /// Neither of the patch's two changes alone lowers the number of contentions. Neither alone
    /// lowers the contentions per page that the vmstat work returned.
    Neither,
}

impl Cause {
    /// Finds the cause by the confidence intervals of the runs. A change explains the gain if it
    /// alone lowers the contentions per page that the vmstat work returned. The whole interval of
    /// the ratio to Linux must be below 1. Contentions are counted per page, because a design that
    /// only does this work less often returns fewer pages, and therefore has fewer contentions.
    pub(super) fn of(results: &Results) -> Self {
        let verdict = |design, metric: &Metric| results.compare((BASELINE, design), metric).verdict;
        let gains = |design| verdict(design, &PER_DECAYED) == Verdict::Lower;
        match verdict(PATCH, &CONTENTIONS) {
            Verdict::TooFewSeeds => return Self::TooFewSeeds,
            Verdict::NoDifference | Verdict::Equal | Verdict::Higher => return Self::NoGain,
            Verdict::Lower => {}
        }
        match (gains(SLOWED), gains(PHASED_WHEEL)) {
            (false, true) => Self::Phases,
            (true, false) => Self::Interval,
            (true, true) => Self::Both,
            (false, false) if verdict(SLOWED, &CONTENTIONS) == Verdict::Lower => Self::LessWork,
            (false, false) => Self::Neither,
        }
    }

    /// The cause in a few words, for a cell of a table.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::TooFewSeeds => "too few seeds",
            Self::NoGain => "no gain",
            Self::Phases => "phases",
            Self::Interval => "longer interval",
            Self::Both => "phases and longer interval",
            Self::LessWork => "less work",
            Self::Neither => "neither alone",
        }
    }

    /// The words that end a sentence about how much the patch reduces contentions. They name the
    /// cause, if it is known.
    pub(super) const fn clause(self) -> &'static str {
        match self {
            Self::TooFewSeeds => "",
            Self::NoGain => ", so there is no gain to explain",
            Self::Phases => {
                ", and per page that decays return, the runs show a gain only for its phases"
            }
            Self::Interval => {
                ", and per page that decays return, the runs show a gain only for its longer \
                 interval"
            }
            Self::Both => {
                ", and per page that decays return, the runs show a gain for its longer interval \
                 alone and for its phases alone"
            }
            Self::LessWork => {
                ", but per page that decays return, the runs show no gain for its longer interval \
                 alone or its phases alone: CPUs only do less work"
            }
            Self::Neither => {
                ", but per page that decays return, the runs show no gain for its longer interval \
                 alone or its phases alone"
            }
        }
    }
}

pub(super) fn table(results: &Results) -> Table {
    let ratio = |design: &str, metric: &Metric| results.show_ratio((BASELINE, design), metric);
    tabulate!(
        format!("One cause at a time in {MAIN}, as ratios to {BASELINE}"),
        "`of decays, per page`: contentions of decays divided by the pages that decays returned. A \
         ratio below 1 means fewer.",
        &CHANGES,
        |(cause, design)| {
            "cause" => cause,
            "contentions" => ratio(design, &CONTENTIONS),
            "of decays" => ratio(design, &DECAY_CONTENTIONS),
            "pages decayed" => ratio(design, &DECAYED),
            "of decays, per page" => ratio(design, &PER_DECAYED),
        }
    )
}
