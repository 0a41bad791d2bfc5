//! The memory that four tree counters of the mailing-list thread's patch take. The thread published
//! no measurement; these figures are computed from how the patch builds its tree.

use super::{TREE, tree_bytes};
use crate::experiment::declared::{Figure, Published, Reported};
use crate::report::misses::{Basis, Thread};

pub(super) const PUBLISHED: &[Published] = &[Published {
    machine: "this computer",
    thread: Thread::Counters,
    source: "the patch: a line of 64 bytes for each item of four counters, and a word for each CPU \
             and counter",
    figures: &[
        figure(
            "memory of four counters of the tree, 2 CPUs",
            "bytes_at_2_cpus",
            0,
        ),
        figure(
            "memory of four counters of the tree, 8 CPUs",
            "bytes_at_8_cpus",
            1,
        ),
        figure(
            "memory of four counters of the tree, 32 CPUs",
            "bytes_at_32_cpus",
            2,
        ),
        figure(
            "memory of four counters of the tree, 64 CPUs",
            "bytes_at_64_cpus",
            3,
        ),
        figure(
            "memory of four counters of the tree, 128 CPUs",
            "bytes_at_128_cpus",
            4,
        ),
        figure(
            "memory of four counters of the tree, 256 CPUs",
            "bytes_at_256_cpus",
            5,
        ),
        figure(
            "memory of four counters of the tree, 384 CPUs",
            "bytes_at_384_cpus",
            6,
        ),
        figure(
            "memory of four counters of the tree, 512 CPUs",
            "bytes_at_512_cpus",
            7,
        ),
        figure(
            "memory of four counters of the tree, 1024 CPUs",
            "bytes_at_1024_cpus",
            8,
        ),
        figure(
            "memory of four counters of the tree, 4096 CPUs",
            "bytes_at_4096_cpus",
            9,
        ),
    ],
}];

const fn figure(what: &'static str, metric: &'static str, nth: usize) -> Figure {
    Figure {
        what,
        metric,
        values: Reported::One(TREE, tree_bytes(nth)),
        basis: Basis::Construction,
        why: "Our tree has one line more, for the operation `set`.",
    }
}
