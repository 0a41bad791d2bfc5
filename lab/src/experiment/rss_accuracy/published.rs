//! The errors of resident-page counters that the mailing-list thread on counter trees published.
//! The report shows them beside our own errors.

use super::{FLAT, MACHINE, MIB, PAGE, TREE, influence};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[Published {
    machine: MACHINE,
    thread: Thread::Counters,
    source: "the patch's message, 2 x EPYC 9654 with 384 CPUs: a program that hops over CPUs and \
             often maps and unmaps memory, after minutes (\"about 1 GB\", \"about 80 MB\")",
    figures: &[
        Figure {
            what: "error of the cheap sum of resident pages",
            metric: "worst_error_bytes",
            values: Reported::Pair([(FLAT, influence::PUBLISHED_FLAT as f64), (TREE, 80.0 * MIB)]),
            basis: Basis::Independent,
            why: "The program is not published. The error is 1 GB only if the parts of nearly all \
                  CPUs are almost at their limit and have the same sign, which 5 of the 26 programs \
                  that we tried reach; the program of this row does not.",
        },
        Figure {
            what: "bound of that error, tree",
            metric: "bound_pages",
            values: Reported::One(TREE, 192.0 * MIB / PAGE),
            basis: Basis::Construction,
            why: "The bound follows from the shape of the tree.",
        },
    ],
}];
