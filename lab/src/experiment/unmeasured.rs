//! Published figures that no experiment measures, each with the reason.

use super::declared::Unmeasured;
use crate::measure::metric::Unit;
use crate::report::misses::Thread;

/// The figures, in the order in which `docs/misses.md` lists them.
pub(super) const FIGURES: &[Unmeasured] = &[
    batching(
        "the cover letter, 316 CPUs and 1 TB",
        "calls that free more than 1000 pages, during boot",
        Unit::Count,
        &[2092.0],
        "No workload boots a machine.",
    ),
    batching(
        "the cover letter, 316 CPUs and 1 TB",
        "length of the RCU stall, in jiffies",
        Unit::Count,
        &[21_077.0],
        STALL,
    ),
    batching(
        "the cover letter, 316 CPUs and 1 TB",
        "system time during the RCU stall",
        Unit::Nanos,
        &[10.4e9],
        STALL,
    ),
    batching(
        HISTOGRAM,
        "share of 2000 to 2250 pages in the spills of more than 1000 pages",
        Unit::Percent,
        &[69.0],
        "The report has this histogram for the first seed, but no metric of it.",
    ),
    batching(
        PLENTY,
        "work done per second of CPU time, 50 x 5 GB, first posting, change in percent",
        Unit::Percent,
        &[0.1049],
        CPU_TIME,
    ),
    batching(
        PLENTY,
        "work done per second of CPU time, 50 x 5 GB, second posting, change in percent",
        Unit::Percent,
        &[1.08],
        CPU_TIME,
    ),
    batching(
        PLENTY,
        "smallest variation of these figures between runs",
        Unit::Percent,
        &[0.012],
        VARIATION,
    ),
    batching(
        PLENTY,
        "largest variation of these figures between runs",
        Unit::Percent,
        &[0.56],
        VARIATION,
    ),
    profiled(
        "`unmap_page_range` of the reaper in the earlier profile",
        &[56.32e6, 28.78e6],
    ),
    profiled(
        "`free_pages_and_swap_cache` of the reaper in the earlier profile",
        &[20.71e6, 17.69e6],
    ),
    profiled(
        "`tlb_finish_mmu` of the reaper in the earlier profile",
        &[12.83e6, 18.11e6],
    ),
    profiled(
        "`tlb_flush_mmu` of the reaper in the earlier profile",
        &[11.44e6, 2.41e6],
    ),
    share(
        "`__pte_offset_map_lock`, share of `unmap_page_range`",
        &[33.7, 1.7],
    ),
    share(
        "`free_swap_and_cache_nr`, share of `unmap_page_range`",
        &[27.6],
    ),
    Unmeasured {
        thread: Thread::Counters,
        source: CITED,
        what: "slowdown of short-lived processes by per-CPU counters, at most",
        unit: Unit::Percent,
        values: &[12.0],
        why: "`rss-memory` measures the time to make and end counters, but no experiment runs whole \
              short-lived processes.",
    },
    Unmeasured {
        thread: Thread::Counters,
        source: CITED,
        what: "more system time of make with per-CPU counters",
        unit: Unit::Percent,
        values: &[9.0],
        why: "No workload starts processes that count their pages.",
    },
];

const HISTOGRAM: &str = "the thread's histogram of calls, 176 CPUs and 250 GB, 12 minutes of a load that \
                         needs much memory";
const PLENTY: &str = "the cover letter, 176 CPUs, 250 GB and 179 GB of swap, stress-ng --vm 50 --vm-bytes \
                      5G for 100 s";
const EARLIER: &str = "an earlier profile of the reaper alone, a phone (arm64), one run each";
const CITED: &str = "the patch's message, which cites measurements of others: per-CPU counters against \
                     counters of each thread";

const STALL: &str = "`stalls` looks for what makes a CPU stall, with Linux's detectors, but it has no row for this \
                     figure.";
const CPU_TIME: &str = "No metric divides the work by the CPU time.";
const VARIATION: &str =
    "A simulated run has no noise, so its variation over the seeds is another quantity.";
const PHASES: &str = "No metric has the time of this function. The tables of the report on the \
                      phone have it for the first seed, if it is a phase of ours.";

const fn batching(
    source: &'static str,
    what: &'static str,
    unit: Unit,
    values: &'static [f64],
    why: &'static str,
) -> Unmeasured {
    Unmeasured {
        thread: Thread::Batching,
        source,
        what,
        unit,
        values,
        why,
    }
}

/// An entry for the published times of one kernel function, in nanoseconds.
const fn profiled(what: &'static str, values: &'static [f64]) -> Unmeasured {
    Unmeasured {
        thread: Thread::Reaper,
        source: EARLIER,
        what,
        unit: Unit::Nanos,
        values,
        why: PHASES,
    }
}

/// An entry for the published share that one kernel function has in its caller's time, in percent.
const fn share(what: &'static str, values: &'static [f64]) -> Unmeasured {
    Unmeasured {
        thread: Thread::Reaper,
        source: "the patch's message, profiles of the reaper on a phone (arm64)",
        what,
        unit: Unit::Percent,
        values,
        why: PHASES,
    }
}
