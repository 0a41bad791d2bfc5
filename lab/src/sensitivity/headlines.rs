//! The headline comparisons: for each experiment, the few comparisons that people quote from it. A
//! sensitivity run repeats these comparisons with changed prices.

/// The headline comparisons (those that people quote) of one experiment on one machine.
#[derive(Debug)]
pub struct Headlines {
    /// The experiment's name in the catalog.
    pub experiment: &'static str,
    /// The simulated machine whose prices (the times of single steps) are varied.
    pub machine: &'static str,
    /// The headlines: designs A and B, and the metric on which B is compared with A. Even a run
    /// with [`Effort::Quick`](crate::run::options::Effort::Quick) measures these metrics.
    pub of: &'static [Headline],
}

/// A headline, a comparison that people quote: design A, design B, and the metric on which B is
/// compared with A.
pub type Headline = (&'static str, &'static str, &'static str);

/// The headlines of every experiment whose results depend on the prices of simulated steps.
pub const ALL: &[Headlines] = &[
    Headlines {
        experiment: "vmstat",
        machine: "grace-72+kasan",
        of: &[
            (LINUX_VMSTAT, "stretched+shepherd-at-once", "contentions"),
            (LINUX_VMSTAT, "stretched+shepherd-at-once", "total_wait_ns"),
            (LINUX_VMSTAT, "phased+shepherd-phased", "contentions"),
        ],
    },
    Headlines {
        experiment: "drain",
        machine: "turin-316",
        of: &[
            ("unbatched", "batched", "pages_per_s"),
            ("unbatched", "bounded", "pages_per_s"),
            ("unbatched", "bounded", "wait_max_ns"),
        ],
    },
    Headlines {
        experiment: "drain-swap",
        machine: "bergamo-176",
        of: &[
            ("unbatched", "batched", "pages_per_s"),
            ("unbatched", "bounded", "pages_per_s"),
        ],
    },
    Headlines {
        experiment: "stalls",
        machine: "turin-316",
        of: &[
            ("unbatched", "batched", "stretch_max_ns"),
            ("unbatched", "bounded", "stretch_max_ns"),
        ],
    },
    Headlines {
        experiment: "rss-accuracy",
        machine: "epyc-9654-2s",
        of: &[
            ("flat", "tree", "worst_error_pages"),
            ("flat", "one-sided", "worst_error_pages"),
        ],
    },
    Headlines {
        experiment: "rss-cost",
        machine: "epyc-9654-2s",
        of: &[
            ("flat", "tree", "faults_per_s_processes_24"),
            ("flat", "one-sided", "faults_per_s_processes_24"),
            ("flat", "one-sided", "remote_lines_per_1000_adds"),
        ],
    },
    Headlines {
        experiment: "reaper",
        machine: "phone-8",
        of: &[
            ("ascending", "descending-by-vma", "ran_ns"),
            ("ascending", "descending-by-vma", "wall_ns"),
            ("exit alone", "meet-in-the-middle", "wall_ns"),
        ],
    },
    Headlines {
        experiment: "mrelease",
        machine: "epyc-9654-2s",
        of: &[
            (
                "ascending, 8 helpers",
                "descending-by-vma, 8 helpers",
                "wall_ns",
            ),
            (
                "ascending, 8 helpers",
                "meet-in-the-middle, 8 helpers",
                "wall_ns",
            ),
        ],
    },
    Headlines {
        experiment: "oom-latency",
        machine: "epyc-9654-256",
        of: &[
            (PRECISE, TWO_PASS, "select_at_1000_ns"),
            (PRECISE, BOUNDED, "select_at_1000_ns"),
            (PRECISE, BOUNDED, "band_at_1000_ns"),
        ],
    },
    Headlines {
        experiment: "oom-accuracy",
        machine: "epyc-9654-256",
        of: &[(TWO_PASS, BOUNDED, "wrong_percent")],
    },
    Headlines {
        experiment: "oom-storm",
        machine: "epyc-9654-256",
        of: &[
            (
                "select-precise+flat+ascending",
                "select-two-pass+tree+descending-by-vma",
                "exits_waited_ns",
            ),
            (
                "select-precise+flat+ascending",
                "select-bounded+one-sided+meet-in-the-middle",
                "exits_waited_ns",
            ),
        ],
    },
];

const LINUX_VMSTAT: &str = "round-jiffies+shepherd-at-once";
const PRECISE: &str = "select-precise+flat";
const TWO_PASS: &str = "select-two-pass+tree";
const BOUNDED: &str = "select-bounded+one-sided";

impl Headlines {
    /// The names of all designs that these headlines compare, without repetition.
    #[must_use]
    pub fn designs(&self) -> Vec<&'static str> {
        let mut designs = Vec::new();
        for design in self.of.iter().flat_map(|(a, b, _)| [*a, *b]) {
            if !designs.contains(&design) {
                designs.push(design);
            }
        }
        designs
    }
}
