//! The family of workloads of the vmstat experiment, as a table.
//!
//! About the program that gave the published figures, we know only "`stress-ng --vm`, bursts of
//! allocations, memory pressure". So the experiment runs several workloads and shows how the patch
//! changes contentions in each. We chose `first-bursts` first. We then chose `bursts`, because the
//! patch lowers no contentions in `first-bursts`. We chose the parameters of the other workloads
//! before we ran them, and without looking at the published figures.

use plimsoll_mm::units::{Nanos, Pages};

use crate::workload::daemons::Daemons;
use crate::workload::make_like::MakeLike;
use crate::workload::mix::{Cpus, Memory, Mix, Part, Program};
use crate::workload::readers::Readers;
use crate::workload::stress_vm::{Pause, StressVm};

/// The main workload. The rows and verdicts of the report are for this workload, and so is each
/// table that does not name a workload.
pub(super) const MAIN: &str = "bursts";

pub(super) static FAMILY: [Mix; 7] = [
    Mix {
        name: MAIN,
        stands_for: "bursts of stress-ng --vm on most CPUs, long rests between them",
        parameters: "48 of 72 CPUs: 64 MiB, then a rest of 6 s on average, so that lists decay over \
                     several seconds; daemons on all CPUs. Chosen after first-bursts, which the \
                     patch does not help",
        parts: BURSTS,
        memory: Memory::Plenty,
    },
    Mix {
        name: "first-bursts",
        stands_for: "bursts of three sizes and no other work; the experiment's first workload",
        parameters: "a third of the CPUs each: 32 MiB every second, 16 MiB every 4 s, 1 MiB every \
                     2 s; no daemons, so timers of idle CPUs wait for the next burst",
        parts: FIRST_BURSTS,
        memory: Memory::Plenty,
    },
    Mix {
        name: "bursts-short-unreclaimed",
        stands_for: "the bursts on a machine whose zones are below their high watermark",
        parameters: "as bursts; free memory begins midway between low and high, where kswapd would \
                     keep it, so frees shorten the lists; nothing is reclaimed",
        parts: BURSTS,
        memory: Memory::Short,
    },
    Mix {
        name: "bursts-reclaim",
        stands_for: "the bursts while kswapd drops page cache, because files are read",
        parameters: "as bursts-short-unreclaimed, but 625 MiB of the used memory are pages of files \
                     of twice that size; on 8 of the CPUs without bursts readers read them at 117 \
                     MiB/s; no swap",
        parts: RECLAIM,
        memory: Memory::Cached {
            cached: Pages(160_000),
        },
    },
    Mix {
        name: "steady",
        stands_for: "the bursts beside a program that maps and unmaps memory all the time",
        parameters: "as bursts; 8 of the 24 CPUs without bursts, a ninth of the machine, map 64 MiB \
                     again and again without a rest",
        parts: STEADY,
        memory: Memory::Plenty,
    },
    Mix {
        name: "idle",
        stands_for: "a machine that waits for work",
        parameters: "only the daemons, which exchange 8 pages every 0.4 s",
        parts: &[daemons(Cpus::ALL, 100)],
        memory: Memory::Plenty,
    },
    Mix {
        name: "make-like",
        stands_for: "make -j 24: short processes on changing CPUs",
        parameters: "a third as many jobs as CPUs; 12,000 pages (47 MiB) and 50 µs of computing for \
                     each page, as a compiler run of about 0.6 s (estimate); daemons on all CPUs",
        parts: &[
            Part {
                cpus: Cpus::ALL,
                program: Program::Make(MakeLike {
                    jobs: 24,
                    pages: 12_000,
                    think_ns_per_page: 50_000,
                    pause: Nanos::from_ms(1),
                    // All designs of the experiment have the same counters of resident pages. So
                    // counting these pages would not make a difference between the designs.
                    counts_rss: false,
                }),
            },
            daemons(Cpus::ALL, 100),
        ],
        memory: Memory::Plenty,
    },
];

const BURSTING: Cpus = thirds(&[0, 1]);
const QUIET: Cpus = thirds(&[2]);

/// Bursts of allocations on two thirds of the CPUs, and daemons on all CPUs. The daemons wake every
/// few milliseconds. The workload needs the daemons, because a deferrable timer fires only when
/// something wakes its CPU. On the CPUs without bursts, the daemons rarely exchange pages (free
/// some and allocate others). So the vmstat work of these CPUs stops and starts again.
const BURSTS: &[Part] = &[
    stress(BURSTING, 64 << 20, pause_s(6)),
    daemons(BURSTING, 100),
    daemons(QUIET, 1000),
];

const FIRST_BURSTS: &[Part] = &[
    stress(thirds(&[0]), 32 << 20, pause_s(1)),
    stress(thirds(&[1]), 16 << 20, pause_s(4)),
    stress(thirds(&[2]), 1 << 20, pause_s(2)),
];

const RECLAIM: &[Part] = &[
    stress(BURSTING, 64 << 20, pause_s(6)),
    daemons(BURSTING, 100),
    daemons(QUIET, 1000),
    Part {
        cpus: NINTH,
        program: Program::Readers(Readers {
            pages_per_s: 30_000,
            pages: 320_000,
        }),
    },
];

const STEADY: &[Part] = &[
    stress(BURSTING, 64 << 20, pause_s(6)),
    daemons(BURSTING, 100),
    daemons(QUIET, 1000),
    stress(NINTH, 64 << 20, Pause::No),
];

/// A ninth of the CPUs: one third of the `QUIET` CPUs, which have no bursts.
const NINTH: Cpus = Cpus {
    divisor: 9,
    remainders: &[8],
};

const fn thirds(remainders: &'static [u32]) -> Cpus {
    Cpus {
        divisor: 3,
        remainders,
    }
}

const fn pause_s(seconds: u64) -> Pause {
    Pause::Asleep(Nanos(seconds * Nanos::SECOND.0))
}

const fn stress(cpus: Cpus, bytes: u64, pause: Pause) -> Part {
    let worker = StressVm {
        bytes,
        use_ns_per_page: 400,
        pause,
    };
    Part {
        cpus,
        program: Program::Stress(worker),
    }
}

/// Daemons that wake every 4 ms on average. On average, a daemon frees its pages and allocates
/// others once in `exchange_one_in` wake-ups.
const fn daemons(cpus: Cpus, exchange_one_in: u32) -> Part {
    let daemons = Daemons {
        every: Nanos::from_ms(4),
        work: Nanos(50_000),
        pages: 8,
        exchange_one_in,
    };
    Part {
        cpus,
        program: Program::Daemons(daemons),
    }
}
