//! The rates of will-it-scale's `page_fault1` that the mailing-list thread on counter trees
//! published. The report shows them beside our own rates.

use super::{FLAT, MACHINE, TREE};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[Published {
    machine: MACHINE,
    thread: Thread::Counters,
    source: "the patch's message, page_fault1 of will-it-scale on 2 x EPYC 9654, SMT off, averages \
             over 100 s",
    figures: &[
        Figure {
            what: "page faults a second, 1 process",
            metric: "faults_per_s_processes_1",
            values: Reported::Pair([(FLAT, 614_783.0), (TREE, 615_558.0)]),
            basis: Basis::Fitted,
            why: PRICED,
        },
        Figure {
            what: "page faults a second, 1 thread",
            metric: "faults_per_s_threads_1",
            values: Reported::Pair([(FLAT, 612_788.0), (TREE, 612_447.0)]),
            basis: Basis::Fitted,
            why: PRICED,
        },
        figure(
            "page faults a second, 96 processes",
            "faults_per_s_processes_96",
            [37_994_977.0, 37_932_035.0],
            BANDWIDTH,
        ),
        figure(
            "page faults a second, 192 processes",
            "faults_per_s_processes_192",
            [71_262_717.0, 71_118_830.0],
            BANDWIDTH,
        ),
        figure(
            "page faults a second, 96 threads",
            "faults_per_s_threads_96",
            [2_484_130.0, 2_504_860.0],
            SHARED,
        ),
        figure(
            "page faults a second, 192 threads",
            "faults_per_s_threads_192",
            [2_446_437.0, 2_469_296.0],
            SHARED,
        ),
    ],
}];

const fn figure(
    what: &'static str,
    metric: &'static str,
    [flat, tree]: [f64; 2],
    why: &'static str,
) -> Figure {
    Figure {
        what,
        metric,
        values: Reported::Pair([(FLAT, flat), (TREE, tree)]),
        basis: Basis::Independent,
        why,
    }
}

const PRICED: &str =
    "The price of a fault is fitted to the rate of one process, so the values prove nothing.";
const BANDWIDTH: &str = "Processes wait more than half of their time for the lock of a node's lists of \
                         used pages. Our price of a hold of this lock is an estimate, and probably too \
                         high.";
const SHARED: &str = "Threads fault in one merged mapping. With 96 threads the line of its \
                      reference count limits them; with 192 they wait longer for the mmap lock. \
                      Linux also wakes readers of the mmap lock that wait behind writers, which \
                      the simulator does not.";
