//! The program: it moves across CPUs, maps and touches memory on one CPU, and unmaps this memory on
//! another CPU.
//!
//! The mailing-list thread names such a program. But the thread states neither the sizes of the
//! program's mappings nor the order in which the program visits CPUs. This experiment chooses both,
//! and `influence` shows their effect. The program draws its decisions from a separate random
//! stream, so every design counts the same pages on the same CPUs in the same order.

use std::collections::VecDeque;
use std::fmt;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::units::{CpuId, PAGE_SIZE};
use plimsoll_sim::Sim;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::workload::spend_unmapping;

/// The number of pages that a page table maps. If pages of one table are unmapped together, the
/// program counts them in one addition.
const TABLE: u64 = 512;

/// A program that repeatedly maps and touches memory. It unmaps its oldest mapping whenever it has
/// more than `kept` mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) sizes: Sizes,
    pub(super) hops: Hops,
    /// The number of mappings that the program keeps.
    pub(super) kept: usize,
    /// The number of pages that the program touches before it ends.
    pub(super) pages: u64,
}

/// The size of a mapping, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Every mapping has this number of pages.
    Fixed(u64),
    /// Sizes are uniformly distributed from one page to this number of pages.
    UpTo(u64),
}

/// The CPUs on which the program makes and unmaps its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hops {
    /// The program maps and unmaps on random CPUs, and draws a CPU each time.
    Random,
    /// The program visits the CPUs in order. On each CPU, it makes a mapping and then unmaps an old
    /// one.
    Next,
    /// The program maps on the first half of the CPUs and unmaps on the second half.
    Halves,
    /// The program maps on each CPU in order, and unmaps on the first CPU, as a main thread would.
    OneUnmaps,
    /// The program brings every CPU's part of the counter to its upper end and then to its lower
    /// end, in a cycle of four rounds. A round makes as many mappings as there are CPUs:
    ///
    /// - In the first round, the program maps on each CPU.
    /// - In the second round, it maps on CPU 0. On each CPU, it unmaps the pages that it mapped
    ///   there in the first round.
    /// - In the third round, it maps on CPU 0. On each CPU, it unmaps a part of the pages that it
    ///   mapped on CPU 0 in the second round.
    /// - In the fourth round, it maps on each CPU again.
    ///
    /// In the first and the fourth round, the program unmaps on CPU 0.
    Edge,
    /// The program stays on one CPU.
    Stay,
}

/// An observer of the counter while the program runs.
pub(super) trait Watch {
    /// Observes the counter of `rss` at the moment `now`. At this moment, no CPU adds to the
    /// counter.
    fn look(&mut self, sim: &Sim, rss: &Rss<Sim>, now: Moment);
}

/// The progress of the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// The number of pages touched since the program began.
    pub(super) touched: u64,
    /// The number of pages that are resident now.
    pub(super) resident: u64,
}

/// A mapping, by its first page and its length in pages.
#[derive(Clone, Copy)]
struct Mapping {
    first: u64,
    pages: u64,
}

impl Program {
    /// Runs the program on the calling task, and unmaps everything at the end.
    pub(super) fn run(&self, sim: &Sim, rss: &Rss<Sim>, seed: u64, watch: &mut impl Watch) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let cpus = sim.topology().cpus();
        let mut kept = VecDeque::new();
        let mut now = Moment::default();
        // The loop ends because each mapping has at least one page.
        for nth in 0.. {
            if now.touched >= self.pages {
                break;
            }
            sim.migrate(self.hops.to_map(nth, cpus, &mut rng));
            let mapping = Mapping {
                first: now.touched,
                pages: self.sizes.draw(&mut rng),
            };
            mapping.touch(sim, rss);
            now.touched += mapping.pages;
            now.resident += mapping.pages;
            kept.push_back(mapping);
            watch.look(sim, rss, now);
            if kept.len() > self.kept
                && let Some(oldest) = kept.pop_front()
            {
                sim.migrate(self.hops.to_unmap(nth, cpus, &mut rng));
                oldest.unmap(sim, rss);
                now.resident -= oldest.pages;
                watch.look(sim, rss, now);
            }
        }
        kept.iter().for_each(|mapping| mapping.unmap(sim, rss));
    }
}

impl Mapping {
    /// Writes to each page. Each page takes one fault.
    fn touch(self, sim: &Sim, rss: &Rss<Sim>) {
        sim.spend(Work::Fault, u32::try_from(self.pages).unwrap_or(u32::MAX));
        for _ in 0..self.pages {
            rss.add_growing(sim, RssKind::Anon, 1);
        }
    }

    /// Unmaps one page table at a time. Mappings are adjacent in the address space, so neighbours
    /// can share a table.
    fn unmap(self, sim: &Sim, rss: &Rss<Sim>) {
        spend_unmapping(sim, u32::try_from(self.pages).unwrap_or(u32::MAX));
        let (mut at, end) = (self.first, self.first + self.pages);
        while at < end {
            let next = end.min((at / TABLE + 1) * TABLE);
            rss.add_growing(sim, RssKind::Anon, -(next - at).cast_signed());
            at = next;
        }
    }
}

impl Sizes {
    fn draw(self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Self::Fixed(pages) => pages,
            Self::UpTo(most) => rng.random_range(1..=most),
        }
    }
}

impl Hops {
    fn to_map(self, nth: u32, cpus: u32, rng: &mut Xoshiro256PlusPlus) -> CpuId {
        CpuId(match self {
            Self::Random => rng.random_range(0..cpus),
            Self::Next | Self::OneUnmaps => nth % cpus,
            Self::Halves => rng.random_range(0..cpus / 2),
            Self::Edge if Self::goes_down(nth, cpus) => 0,
            Self::Edge => nth % cpus,
            Self::Stay => 0,
        })
    }

    fn to_unmap(self, nth: u32, cpus: u32, rng: &mut Xoshiro256PlusPlus) -> CpuId {
        CpuId(match self {
            Self::Random => rng.random_range(0..cpus),
            Self::Next => nth % cpus,
            Self::Halves => rng.random_range(cpus / 2..cpus),
            Self::Edge if Self::goes_down(nth, cpus) => nth % cpus,
            Self::Edge | Self::OneUnmaps | Self::Stay => 0,
        })
    }
}

impl Hops {
    /// Returns whether the mapping with the index `nth` is made in the second or the third of every
    /// four rounds. In these rounds, each CPU's part of the sum decreases.
    fn goes_down(nth: u32, cpus: u32) -> bool {
        matches!(nth / cpus % 4, 1 | 2)
    }
}

impl fmt::Display for Hops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => "random CPU",
            Self::Next => "next CPU",
            Self::Halves => "map on one half, unmap on the other",
            Self::OneUnmaps => "map on each, unmap on one",
            Self::Edge => "every part up, then down",
            Self::Stay => "stay",
        })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(pages) => f.write_str(&size(pages)),
            Self::UpTo(most) => write!(f, "{} to {}, evenly", size(1), size(most)),
        }
    }
}

fn size(pages: u64) -> String {
    let kib = pages * PAGE_SIZE / 1024;
    match kib {
        ..1024 => format!("{kib} KiB"),
        _ if kib.is_multiple_of(1024) => format!("{} MiB", kib / 1024),
        _ => format!("{:.1} MiB", kib as f64 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let shown = [16, 256, 683, 4096].map(|pages| Sizes::Fixed(pages).to_string());
        assert_eq!(shown, ["64 KiB", "1 MiB", "2.7 MiB", "16 MiB"]);
        assert_eq!(Sizes::UpTo(1024).to_string(), "4 KiB to 4 MiB, evenly");
    }

    #[test]
    fn a_hop_goes_to_a_cpu_of_its_part_of_the_machine() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for nth in 0..1000 {
            assert!(Hops::Halves.to_map(nth, 8, &mut rng).0 < 4);
            assert!((4..8).contains(&Hops::Halves.to_unmap(nth, 8, &mut rng).0));
            assert!(Hops::Random.to_map(nth, 8, &mut rng).0 < 8);
            assert_eq!(Hops::Next.to_map(nth, 8, &mut rng).0, nth % 8);
            assert_eq!(Hops::Stay.to_map(nth, 8, &mut rng).0, 0);
            assert_eq!(Hops::OneUnmaps.to_unmap(nth, 8, &mut rng).0, 0);
        }
    }

    /// With [`Hops::Edge`], each CPU's part of the counter goes up in the first of four rounds,
    /// down in the second and the third, and up again in the fourth.
    #[test]
    fn at_the_edge_each_part_goes_up_once_down_twice_and_up_again() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut parts = [0_i32; 8];
        let mut ends = Vec::new();
        for nth in 0..32 {
            parts[Hops::Edge.to_map(nth, 8, &mut rng).index()] += 1;
            // The first eight mappings are the first round, which unmaps nothing.
            if nth >= 8 {
                parts[Hops::Edge.to_unmap(nth, 8, &mut rng).index()] -= 1;
            }
            if nth % 8 == 7 {
                ends.push(parts[5]);
            }
        }
        assert_eq!(ends, [1, 0, -1, 0]);
    }
}
