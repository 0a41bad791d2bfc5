//! The measurements published in the mailing-list thread on the OOM reaper. The report shows them
//! beside our own measurements.

use super::{ASCENDING, PATCH, PHONE};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[
    Published {
        machine: PHONE,
        thread: Thread::Reaper,
        source: "the totals of version 10, a phone (arm64) on which each killed app is reaped at \
                 once, one run each",
        figures: &[
            figure(
                "running time of exit and reaper",
                "ran_ns",
                [167.1, 132.6],
                SIZE,
            ),
            figure("running time of exit", "exit_ran_ns", [90.7, 72.4], SIZE),
            figure(
                "running time of the reaper",
                "reaper_ran_ns",
                [76.4, 60.2],
                SIZE,
            ),
            figure(
                "getting page-table locks",
                "table_lock_ns",
                [33.1, 1.0],
                LOCKS,
            ),
            figure(
                "getting page-table locks, exit",
                "exit_table_lock_ns",
                [10.0, 0.4],
                LOCKS,
            ),
            figure(
                "getting page-table locks, reaper",
                "reaper_table_lock_ns",
                [23.1, 0.6],
                LOCKS,
            ),
            figure(
                "taking away reverse mappings",
                "rmap_ns",
                [41.3, 42.0],
                RMAP,
            ),
            figure(
                "taking away reverse mappings, exit",
                "exit_rmap_ns",
                [22.4, 18.4],
                RMAP,
            ),
            figure(
                "taking away reverse mappings, reaper",
                "reaper_rmap_ns",
                [18.9, 23.6],
                RMAP,
            ),
        ],
    },
    Published {
        machine: PHONE,
        thread: Thread::Reaper,
        source: "an earlier profile of the reaper alone, by function, one run each",
        figures: &[
            figure(
                "`oom_reaper` in the earlier profile",
                "reaper_ran_ns",
                [79.18, 49.58],
                SIZE,
            ),
            figure(
                "`__pte_offset_map_lock` of the reaper in the earlier profile",
                "reaper_table_lock_ns",
                [23.89, 3.47],
                LOCKS,
            ),
        ],
    },
];

/// A figure whose values are in milliseconds.
const fn figure(
    what: &'static str,
    metric: &'static str,
    [linux, patch]: [f64; 2],
    why: &'static str,
) -> Figure {
    const MS: f64 = 1e6;
    Figure {
        what,
        metric,
        values: Reported::Pair([(ASCENDING, linux * MS), (PATCH, patch * MS)]),
        basis: Basis::Independent,
        why,
    }
}

const SIZE: &str = "The size of the published victim is not known, so levels cannot be compared.";
const LOCKS: &str = "With the patch tasks hardly wait for these locks in our runs, and nearly all \
                     that is left is the time to take free locks. The published rest is larger, \
                     probably because perf counts the whole function, which also looks the table \
                     up.";
const RMAP: &str = "In our runs this is 8 to 12 % of the running time; the published share is 25 \
                    to 32 %. The prices of a page's steps are estimates from a server without \
                    cgroups; on the published phone the statistics of cgroups alone take a fifth \
                    of the reaper's time.";
