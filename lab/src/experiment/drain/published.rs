//! The figures that the mailing-list thread on batched frees published. The report shows them
//! beside our own figures.

use super::{MERGED, UNBATCHED};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[
    Published {
        machine: "bergamo-176",
        thread: Thread::Batching,
        source: "the thread's histogram of calls, 176 CPUs and 250 GB, 12 minutes of a load that \
                 needs much memory",
        figures: &[
            calls(
                "spills of more than 1000 pages a second (41,497 in 12 minutes)",
                "commits_over_1000_pages_per_s",
                41_497.0,
                "With the patch no call can move more than a batch, so the ratio is 0 on every \
                 machine. Our workers do nothing but map, touch and unmap memory, so they spill far \
                 more often than the load of the thread.",
            ),
            calls(
                "decays of more than 1000 pages a second (2510 in 12 minutes)",
                "decays_over_1000_pages_per_s",
                2510.0,
                "With the patch no call can move more than a batch. Our run is so short that each \
                 CPU decays about once, and our workers never pause, so their lists seldom have \
                 pages to decay. With half of the seeds Linux has no such decay either. A ratio of \
                 0 to 0 counts as 1, and so our ratio, the median over the seeds, is not 0.",
            ),
        ],
    },
    Published {
        machine: "bergamo-176",
        thread: Thread::Batching,
        source: "the cover letter, 176 CPUs, 250 GB and 179 GB of swap, \
                 stress-ng --vm 50 --vm-bytes 5G for 100 s",
        figures: &[
            change(
                "work done (bogo operations), 50 x 5 GB, first posting",
                -0.0011,
            ),
            change("work done a second, 50 x 5 GB, first posting", -0.0091),
            change(
                "work done (bogo operations), 50 x 5 GB, second posting",
                -0.017,
            ),
            change("work done a second, 50 x 5 GB, second posting", -0.016),
        ],
    },
];

/// The figures of the load that maps more memory than the machine has.
pub(super) const SWAPPING: &[Published] = &[Published {
    machine: "bergamo-176",
    thread: Thread::Batching,
    source: "the cover letter, 176 CPUs, 250 GB and 179 GB of swap, \
             stress-ng --vm 10 --vm-bytes 30G for 100 s",
    figures: &[
        swapping(
            "work done (bogo operations), 10 x 30 GB, change in percent",
            "pages_per_s",
            0.4728,
        ),
        swapping(
            "work done a second, 10 x 30 GB, change in percent",
            "pages_per_s",
            0.2029,
        ),
        swapping(
            "work done per second of CPU time, 10 x 30 GB, change in percent",
            "pages_per_cpu_s",
            -0.6381,
        ),
    ],
}];

const fn swapping(what: &'static str, metric: &'static str, percent: f64) -> Figure {
    Figure {
        what,
        metric,
        values: Reported::ChangePercent([UNBATCHED, MERGED], percent),
        basis: Basis::Independent,
        why: "All waits for the zone lock together are about 0.2 % of the workers' time, so the patch \
              can change little. Memory, swap and workers are 200 times smaller than in the thread, \
              and swap is priced as compressed memory, because the thread does not name its device.",
    }
}

const fn calls(what: &'static str, metric: &'static str, count: f64, why: &'static str) -> Figure {
    const TWELVE_MINUTES_S: f64 = 720.0;
    Figure {
        what,
        metric,
        values: Reported::Pair([(UNBATCHED, count / TWELVE_MINUTES_S), (MERGED, 0.0)]),
        basis: Basis::Construction,
        why,
    }
}

const fn change(what: &'static str, percent: f64) -> Figure {
    Figure {
        what,
        metric: "pages_per_s",
        values: Reported::ChangePercent([UNBATCHED, MERGED], percent),
        basis: Basis::Independent,
        why: "All four figures are compared with one measurement of ours. Our workers use each \
              page for 2500 ns, as we measured for `stress-ng --vm`. In the thread memory was \
              short, and the kernel could reclaim and swap; our memory is short too, but nothing \
              is reclaimed. Then our runs differ more from seed to seed than the published ones \
              from run to run.",
    }
}
