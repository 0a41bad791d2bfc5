//! The times to choose a victim that the mailing-list thread on counter trees published. The report
//! shows them beside our own times.

use super::{APPROXIMATE, MACHINE, PATCH, PRECISE};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[Published {
    machine: MACHINE,
    thread: Thread::Counters,
    source: "the message on two passes, N processes and a hog, `tail /dev/zero`, on a virtual \
             machine of 256 CPUs of an EPYC 9654",
    figures: &[
        pair(
            "choosing a victim among 40 processes",
            "select_at_40_ns",
            [0.5, 0.3],
            SMALL,
        ),
        pair(
            "choosing a victim among 10,000 processes",
            "select_at_10000_ns",
            [80.0, 7.9],
            "No price is computed from these times, but `next_cpu` was added because the published \
             time was missed without it. A precise sum costs `scan_cpu`, an estimate, and three \
             times `next_cpu`, a measurement, for each CPU; `next_cpu` makes half of the time.",
        ),
        single(
            "choosing a victim by cheap sums among 40 processes",
            "select_at_40_ns",
            0.3,
            SMALL,
        ),
        single(
            "choosing a victim by cheap sums among 10,000 processes",
            "select_at_10000_ns",
            3.0,
            "The price of looking at a process was set without this time.",
        ),
    ],
}];

const MS: f64 = 1e6;

/// A published pair of times in milliseconds: with precise sums, and with the patch.
const fn pair(
    what: &'static str,
    metric: &'static str,
    [precise, patch]: [f64; 2],
    why: &'static str,
) -> Figure {
    Figure {
        what,
        metric,
        values: Reported::Pair([(PRECISE, precise * MS), (PATCH, patch * MS)]),
        basis: Basis::Independent,
        why,
    }
}

/// A published time in milliseconds, of a selection by approximate sums.
const fn single(what: &'static str, metric: &'static str, ms: f64, why: &'static str) -> Figure {
    Figure {
        what,
        metric,
        values: Reported::One(APPROXIMATE, ms * MS),
        basis: Basis::Independent,
        why,
    }
}

const SMALL: &str = "The published times of 40 processes seem to have a constant part of 0.18 to \
                     0.29 ms, which ours lack. The thread does not say what was timed.";
