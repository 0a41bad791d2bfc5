//! The mappings of a victim. For each mapping, the layout says how many of its pages are resident
//! and how many are in swap.
//!
//! The seed alone determines a layout, so the layout is the same on every machine and under every
//! design.

use plimsoll_mm::units::Vpn;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The process that is killed: its kind and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// A process similar to an Android app: one large heap, then `mappings` small mappings of all
    /// kinds, close to each other. A part of the process's memory is in swap.
    ///
    /// * The heap is anonymous memory, with 16 pages for each small mapping, all touched.
    /// * A small mapping has 1 to 256 pages. The logarithm of this number is uniformly distributed.
    ///   Before each small mapping are 1 to 16 unmapped pages.
    /// * Of the small mappings, 53 % are anonymous (allocators), 35 % map private files (code and
    ///   its data), 10 % are shared (graphics, caches), and 2 % are stacks. A stack has 256 pages,
    ///   of which 16 are touched.
    /// * In a small mapping other than a stack, the first pages are touched. The touched share is
    ///   uniformly distributed from a half to all. In a private file, the first quarter of the
    ///   touched pages is written to.
    /// * A fifth of the heap is in swap. Of the small anonymous mappings, a fifth is in swap on
    ///   average.
    ///
    /// The published measurements give no such figures for a real app. These figures are ours,
    /// chosen before any run and not fitted.
    App {
        /// The number of small mappings.
        mappings: u32,
    },
    /// One mapping of anonymous memory, all of it resident.
    One {
        /// The number of pages of the mapping.
        pages: u64,
    },
    /// A process similar to a database: 8 mappings of anonymous memory, all resident. The mappings
    /// have somewhat different sizes. Each mapping is touched by threads of one node. The mappings
    /// alternate between two nodes, and both nodes have the same number of pages.
    Server {
        /// The total number of pages of all mappings.
        pages: u64,
        /// True if the process uses huge pages.
        huge: bool,
    },
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first page of the mapping.
    pub(crate) start: Vpn,
    /// The length of the mapping, in pages.
    pub(crate) pages: u64,
    /// The kind of memory.
    pub(crate) kind: Kind,
    /// The number of pages that are touched, from the first page on.
    pub(crate) touched: u64,
    /// The number of pages that are written to, from the first page on.
    pub(crate) written: u64,
    /// The number of pages that are moved to swap, from the first page on.
    pub(crate) swapped: u64,
    /// The node of the threads that touch the mapping. Here, node 0 is the node of the CPU on which
    /// the victim's last thread exits, and the other nodes follow. On a machine with fewer nodes,
    /// this number is taken modulo the number of nodes.
    pub(crate) node: u32,
}

/// The kind of memory that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anonymous memory. If `huge` is true, it is in huge pages where they fit.
    Anonymous {
        /// True if the process uses huge pages.
        huge: bool,
    },
    /// A private mapping of a separate file.
    PrivateFile,
    /// Shared memory, which the OOM reaper and `process_mrelease` must not empty.
    Shared,
}

/// The pages of a victim, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The number of mappings.
    pub(crate) mappings: u64,
    /// The number of pages that are in memory and that no other process uses.
    pub(crate) private: u64,
    /// The number of pages in memory that hold unchanged contents of a file.
    pub(crate) file: u64,
    /// The number of shared pages in memory.
    pub(crate) shared: u64,
    /// The number of pages in swap.
    pub(crate) swapped: u64,
}

/// The lowest page at which the first mapping can begin. The mapping begins at a random page, less
/// than [`TABLE`] pages above this page. So it can begin in the middle of a page table.
const FIRST: u64 = 1 << 16;
/// The number of pages that a page table maps.
const TABLE: u64 = 512;
/// The base-2 logarithm of the length in pages of an app's longest small mapping.
const SMALL_LOG2: f64 = 8.0;
/// How many pages an app's heap has for each small mapping of the app.
const HEAP_PER_MAPPING: u64 = 16;
const STACK: u64 = 256;
const STACK_TOUCHED: u64 = 16;
/// An app has one in this many pages of its heap in swap. On average, one in this many of its small
/// anonymous mappings has all touched pages in swap.
const SWAPPED_ONE_IN: u64 = 5;
const SERVER_MAPPINGS: u64 = 8;

impl Victim {
    /// Draws the victim's mappings from `seed`. The mapping with the lowest address comes first.
    #[must_use]
    pub(crate) fn layout(self, seed: u64) -> Vec<Part> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let at = FIRST + rng.random_range(0..TABLE);
        match self {
            Self::App { mappings } => app(mappings, at, &mut rng),
            Self::One { pages } => vec![Part::resident(at, pages, false)],
            Self::Server { pages, huge } => server(pages, huge, at, &mut rng),
        }
    }
}

impl Part {
    /// A mapping of anonymous memory, all of it touched.
    const fn resident(start: u64, pages: u64, huge: bool) -> Self {
        Self {
            start: Vpn(start),
            pages,
            kind: Kind::Anonymous { huge },
            touched: pages,
            written: pages,
            swapped: 0,
            node: 0,
        }
    }
}

impl Contents {
    /// The contents of all `parts` together.
    #[must_use]
    pub(crate) fn of(parts: &[Part]) -> Self {
        let mut all = Self::default();
        for part in parts {
            let resident = part.touched - part.swapped;
            all.mappings += 1;
            all.swapped += part.swapped;
            match part.kind {
                Kind::Anonymous { .. } => all.private += resident,
                Kind::PrivateFile => {
                    all.private += part.written;
                    all.file += part.touched - part.written;
                }
                Kind::Shared => all.shared += resident,
            }
        }
        all
    }

    /// The number of pages in memory.
    #[must_use]
    pub(crate) const fn resident(&self) -> u64 {
        self.private + self.file + self.shared
    }
}

fn app(mappings: u32, mut at: u64, rng: &mut Xoshiro256PlusPlus) -> Vec<Part> {
    let heap = HEAP_PER_MAPPING * u64::from(mappings);
    let swapped = heap / SWAPPED_ONE_IN;
    let heap_part = Part {
        swapped,
        ..Part::resident(at, heap, false)
    };
    let mut parts = vec![heap_part];
    at += heap;
    for _ in 0..mappings {
        at += rng.random_range(1..=16);
        let part = small(at, rng);
        at += part.pages;
        parts.push(part);
    }
    parts
}

/// Draws one of an app's small mappings.
fn small(at: u64, rng: &mut Xoshiro256PlusPlus) -> Part {
    let log2: f64 = rng.random_range(0.0..SMALL_LOG2);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1 to 256"
    )]
    let pages = log2.exp2().ceil() as u64;
    let touched = rng.random_range(pages.div_ceil(2)..=pages);
    let whole = Part::resident(at, pages, false);
    match rng.random_range(0..100) {
        0..53 => {
            let goes = rng.random_range(0..SWAPPED_ONE_IN) == 0;
            let swapped = if goes { touched } else { 0 };
            Part {
                touched,
                written: touched,
                swapped,
                ..whole
            }
        }
        53..88 => Part {
            kind: Kind::PrivateFile,
            touched,
            written: touched / 4,
            ..whole
        },
        88..98 => Part {
            kind: Kind::Shared,
            touched,
            written: touched,
            ..whole
        },
        _ => Part {
            pages: STACK,
            touched: STACK_TOUCHED,
            written: STACK_TOUCHED,
            ..whole
        },
    }
}

fn server(pages: u64, huge: bool, mut at: u64, rng: &mut Xoshiro256PlusPlus) -> Vec<Part> {
    let even = pages / SERVER_MAPPINGS;
    let mut left = pages;
    let mut parts = Vec::new();
    for nth in 0..SERVER_MAPPINGS {
        let rest = SERVER_MAPPINGS - 1 - nth;
        // Mappings come in pairs of equal length on different nodes, so that the two nodes have the
        // same number of pages.
        let pair = |rng: &mut Xoshiro256PlusPlus| even - rng.random_range(0..even / 4);
        let len = match (rest, nth % 2) {
            (0 | 1, 0) => left / 2,
            (0, _) => left,
            (_, 0) => pair(rng),
            _ => parts.last().map_or(even, |part: &Part| part.pages),
        };
        at += rng.random_range(1..=TABLE);
        parts.push(Part {
            node: u32::try_from(nth % 2).unwrap_or(0),
            ..Part::resident(at, len, huge)
        });
        at += len;
        left -= len;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const VICTIMS: [Victim; 3] = [
        Victim::App { mappings: 3000 },
        Victim::One { pages: 150_000 },
        Victim::Server {
            pages: 1 << 20,
            huge: false,
        },
    ];

    #[test]
    fn mappings_do_not_overlap_and_hold_what_is_touched() {
        for victim in VICTIMS {
            for seed in 1..=8 {
                let parts = victim.layout(seed);
                let mut pairs = parts.windows(2);
                assert!(pairs.all(|pair| pair[0].start.0 + pair[0].pages < pair[1].start.0));
                for part in &parts {
                    assert!(part.touched >= 1 && part.touched <= part.pages, "{part:?}");
                    assert!(part.written <= part.touched && part.swapped <= part.touched);
                }
            }
        }
    }

    #[test]
    fn a_seed_is_a_layout_and_another_seed_another() {
        for victim in VICTIMS {
            assert_eq!(victim.layout(7), victim.layout(7));
            assert_ne!(victim.layout(7), victim.layout(8));
        }
    }

    #[test]
    fn an_app_has_some_hundred_mib_of_all_kinds() {
        let contents = Contents::of(&Victim::App { mappings: 3000 }.layout(1));
        let mib = |pages: u64| pages >> 8;
        assert!(
            (300..700).contains(&mib(contents.resident())),
            "{contents:?}"
        );
        let [private, file, shared, swapped] = [
            contents.private,
            contents.file,
            contents.shared,
            contents.swapped,
        ];
        assert!(
            private > file && file > shared && shared > 0,
            "{contents:?}"
        );
        assert!(swapped * 10 > private && swapped < private, "{contents:?}");
    }

    #[test]
    fn a_server_is_on_both_nodes_as_much() {
        for seed in 1..=8 {
            let [.., victim] = VICTIMS;
            let parts = victim.layout(seed);
            let on = |node| -> u64 {
                let there = parts.iter().filter(|part| part.node == node);
                there.map(|part| part.pages).sum()
            };
            assert_eq!((parts.len(), on(0) + on(1)), (8, 1 << 20));
            assert!(on(0).abs_diff(on(1)) <= 1);
        }
    }
}
