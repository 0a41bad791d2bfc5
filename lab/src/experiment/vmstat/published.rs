//! The figures that the mailing-list thread on `vmstat_spread_delay` published. The report shows
//! them beside our own figures.

use super::{BASELINE, MAPPED, PATCH, PLAIN};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[
    Published {
        machine: MAPPED,
        thread: Thread::Stagger,
        source: "the patch's message, 72 CPUs (arm64) with KASAN, bursts of stress-ng --vm, one run \
                 each; the maxima as the author corrected them",
        figures: &[
            figure(
                "contentions in `free_pcppages_bulk`, as perf counts them; KASAN",
                "perf_contentions",
                [872.0, 117.0],
                "The options of stress-ng are not published, so the load is ours, and it sets the \
                 level. The same load misses without KASAN, so this match is weak.",
            ),
            figure(
                "total wait in `free_pcppages_bulk`; KASAN",
                "perf_total_wait_ns",
                [199.43 * MS, 80.76 * MS],
                LONGER,
            ),
            figure(
                "longest wait in `free_pcppages_bulk`; KASAN",
                "perf_max_wait_ns",
                [35.76 * MS, 4.19 * MS],
                LONGEST,
            ),
            figure(
                "mean wait in `free_pcppages_bulk`; KASAN",
                "perf_avg_wait_ns",
                [199.43 * MS / 872.0, 80.76 * MS / 117.0],
                LONGER,
            ),
        ],
    },
    Published {
        machine: PLAIN,
        thread: Thread::Stagger,
        source: "the patch's message, the same 72 CPUs without KASAN, one run each; the maxima as \
                 the author corrected them",
        figures: &[
            figure(
                "contentions in `free_pcppages_bulk`, as perf counts them; no KASAN",
                "perf_contentions",
                [240.0, 133.0],
                OTHER_HOLDERS,
            ),
            figure(
                "total wait in `free_pcppages_bulk`; no KASAN",
                "perf_total_wait_ns",
                [34.01 * MS, 24.61 * MS],
                OTHER_HOLDERS,
            ),
            figure(
                "longest wait in `free_pcppages_bulk`; no KASAN",
                "perf_max_wait_ns",
                [1.35 * MS, 965.0 * US],
                LONGEST,
            ),
            figure(
                "mean wait in `free_pcppages_bulk`; no KASAN",
                "perf_avg_wait_ns",
                [34.01 * MS / 240.0, 24.61 * MS / 133.0],
                LONGER,
            ),
        ],
    },
];

const MS: f64 = 1e6;
const US: f64 = 1e3;

const fn figure(
    what: &'static str,
    metric: &'static str,
    [linux, patch]: [f64; 2],
    why: &'static str,
) -> Figure {
    Figure {
        what,
        metric,
        values: Reported::Pair([(BASELINE, linux), (PATCH, patch)]),
        basis: Basis::Independent,
        why,
    }
}

const LONGER: &str = "A CPU of ours waits for one batch of at most 63 pages at a time, or for a \
                      refill. A published mean wait is 17 to 59 times as long. A CPU that holds \
                      the zone lock takes no interrupts, so the published machine had longer holds \
                      or longer queues; we do not know why.";
const LONGEST: &str = "In both designs and with most seeds, our longest wait is a wait for one \
                       refill of 2016 pages, which the patch does not change. Longer waits need \
                       longer holds or longer queues than ours; we do not know what caused them.";
const OTHER_HOLDERS: &str = "In our workload nearly every contention is one of decays against each \
                             other, which the patch spreads. The published remainder is contention \
                             with CPUs that allocate and free at the same time, which the patch \
                             cannot spread; our workload has too few of these.";
