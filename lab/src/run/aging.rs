//! The state of memory at the beginning of a run: how much is free, and in blocks of which orders.
//!
//! On a machine that has just booted, free memory consists of blocks of the largest order. On a
//! machine that has run for a while, free pages lie between pages that stay in use. So the free
//! pages are in small blocks, which cannot merge into larger ones. A run that begins with fresh
//! memory therefore favours designs that move whole blocks.
//!
//! [`begin`] takes all memory of each zone except a given amount. This amount stays free, in blocks
//! whose sizes are distributed as on a real machine. No two free blocks of one order are buddies.
//! The seed of the run decides in which parts of the zone the free blocks lie. Inside these parts,
//! the buddy of each free block is in use, and the free blocks lie as close together as this
//! allows. On a real machine, free blocks are further apart. The distance between them makes no
//! difference to a run, because the same merges are possible, and the price of a page does not
//! depend on its address.
//!
//! The CPUs' page lists begin empty. A busy worker fills its CPU's lists within the first
//! milliseconds, so the rates of experiments do not include the beginning of a run.

use plimsoll_mm::page::{FreeBlocks, Mobility, SeedError, ZoneKind, ZoneView};
use plimsoll_mm::units::{Order, Pages};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::testbed::Testbed;
use crate::error::Error;

/// The state of memory when a run begins: how free memory is distributed over block sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All free memory is in blocks of the largest order, as after a boot.
    Fresh,
    /// Free memory is distributed as on a machine that has been in use for a while.
    Aged,
    /// Free memory is distributed as on a server that has no large blocks left.
    Fragmented,
}

/// The number of free blocks of each order, from order 0 up, as `/proc/buddyinfo` of Linux shows
/// them.
type Blocks = [u32; Order::COUNT];

impl Memory {
    /// All states of memory, from the least to the most fragmented one.
    pub const ALL: [Self; 3] = [Self::Fresh, Self::Aged, Self::Fragmented];

    /// The name that the option `--memory` accepts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Aged => "aged",
            Self::Fragmented => "fragmented",
        }
    }

    /// The state of memory that the option `--memory` calls `name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the nearest names.
    pub fn named(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|memory| memory.name() == name);
        let names = Self::ALL.map(Self::name);
        found.ok_or_else(|| Error::unknown("state of memory", name, &names))
    }

    /// The free blocks of a real machine whose memory is in this state (fresh, aged or fragmented),
    /// and the source of the numbers of blocks.
    #[must_use]
    pub const fn source(self) -> (Blocks, &'static str) {
        match self {
            Self::Fresh => (
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                "by definition: blocks of the largest order, as after a boot",
            ),
            Self::Aged => (
                [411, 924, 612, 424, 265, 114, 34, 10, 1, 0, 0],
                "measured: /proc/buddyinfo, zone Normal of a VM with 24 GB and 2 CPUs under Linux \
                 6.18, 17 hours after its boot; it had compiled most of the time, its memory was \
                 full of page cache, and 75 MiB were free",
            ),
            Self::Fragmented => (
                [426_212, 143_208, 42_644, 13_656, 1167, 0, 0, 0, 0, 0, 0],
                "published: issue 526 of canonical/hotsos (17 February 2023), zone Normal of node 1 \
                 of a server whose compactions fail for want of large blocks; 3.9 GiB are free",
            ),
        }
    }

    /// Divides `free` pages into blocks with the distribution of this state. Each order gets the
    /// same share of the pages as on the real machine, rounded down to whole blocks. The few pages
    /// that remain become blocks that are as large as possible, but not larger than the largest
    /// free block of the real machine.
    #[must_use]
    pub fn blocks(self, free: Pages) -> Blocks {
        let (source, _) = self.source();
        let pages = |order: usize| u64::from(source[order]) << order;
        let all: u64 = (0..Order::COUNT).map(pages).sum();
        let largest = source.iter().rposition(|&count| count > 0).unwrap_or(0);
        let mut left = u64::from(free.0);
        let mut blocks = [0; Order::COUNT];
        for (order, count) in blocks.iter_mut().enumerate() {
            let whole = (u64::from(free.0) * pages(order) / all) >> order;
            left -= whole << order;
            *count = u32::try_from(whole).unwrap_or(u32::MAX);
        }
        for order in (0..=largest).rev() {
            let more = left >> order;
            left -= more << order;
            blocks[order] += u32::try_from(more).unwrap_or(u32::MAX);
        }
        blocks
    }
}

/// Puts the memory of `testbed` into the state `memory`. Each normal zone then has `leave` free
/// pages above the midpoint of its low and high watermarks, and each lower zone is at that
/// midpoint. All other memory is in use until the end of the run, as most memory of a long-running
/// machine is. Call this before the run, while all memory is free.
///
/// # Errors
/// [`Error::Invalid`] if a zone has too little memory for this state.
pub fn begin(testbed: &Testbed, memory: Memory, leave: Pages) -> Result<(), Error> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(testbed.sim.seed());
    let zones = testbed.mm.pages().view(&testbed.sim);
    for (index, zone) in (0..).zip(&zones) {
        let wanted = free_in(zone, leave);
        let mut free: FreeBlocks = [[0; Order::COUNT]; Mobility::COUNT];
        free[Mobility::Movable.index()] = memory.blocks(wanted);
        let begun = testbed
            .mm
            .pages()
            .seed_free_arranged(&testbed.sim, index, &free, |whole| whole.shuffle(&mut rng));
        begun.map_err(|error| refuse(error, zone, memory, wanted))?;
    }
    Ok(())
}

/// The number of pages to leave free in `zone`.
fn free_in(zone: &ZoneView, leave: Pages) -> Pages {
    let marks = zone.watermarks;
    let middle = Pages(marks.low.0.midpoint(marks.high.0));
    if zone.kind == ZoneKind::Normal {
        middle + leave
    } else {
        middle
    }
}

fn refuse(error: SeedError, zone: &ZoneView, memory: Memory, wanted: Pages) -> Error {
    Error::Invalid(format!(
        "the workload needs {} MiB free in zone {} of node {}, in the state `{}`; the zone has {} \
         MiB ({error}): take fewer workers or a larger machine",
        wanted.bytes() >> 20,
        zone.kind.name(),
        zone.node.0,
        memory.name(),
        zone.managed.bytes() >> 20,
    ))
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::design::Design;
    use plimsoll_mm::page::Request;
    use plimsoll_mm::page::watermark::Urgency;
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;

    const LEAVE: Pages = Pages(1 << 18);

    fn begun(memory: Memory, seed: u64) -> Testbed {
        let profile = Profile::load("bergamo-176", Card::Mid).expect("built in");
        let testbed = Testbed::new(&profile, Design::UNPATCHED, seed);
        begin(&testbed, memory, LEAVE).expect("the machine has 250 GB");
        testbed
    }

    #[test]
    fn a_name_that_is_wrong_gets_the_nearest() {
        let error = Memory::named("age").expect_err("a slip");
        assert!(error.is_bad_input());
        let text = "no state of memory is called `age`; did you mean `aged`?";
        assert_eq!(error.to_string(), text);
        for memory in Memory::ALL {
            assert_eq!(Memory::named(memory.name()).ok(), Some(memory));
        }
    }

    /// Each order has the same share of the free pages as on the real machine, to within one block
    /// of that order.
    #[test]
    fn free_pages_are_distributed_as_on_the_real_machine() {
        for memory in Memory::ALL {
            let (source, _) = memory.source();
            let pages = |order: usize| f64::from(source[order]) * f64::from(1 << order);
            let all: f64 = (0..Order::COUNT).map(pages).sum();
            let free = Pages(1_000_003);
            let blocks = memory.blocks(free);
            let total: u32 = (0..Order::COUNT).map(|order| blocks[order] << order).sum();
            assert_eq!(total, free.0, "{memory:?}");
            for (order, &count) in blocks.iter().enumerate() {
                let wanted = f64::from(free.0) * pages(order) / all / f64::from(1 << order);
                let off = (f64::from(count) - wanted).abs();
                assert!(
                    off <= 2.0,
                    "{memory:?}, order {order}: {count}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn every_seed_begins_with_the_wanted_blocks() {
        for memory in Memory::ALL {
            for seed in 1..=4 {
                let testbed = begun(memory, seed);
                for zone in testbed.mm.pages().view(&testbed.sim) {
                    // The test computes the number of free pages itself, so that it does not depend
                    // on the code that it tests.
                    let marks = zone.watermarks;
                    let middle = marks.low.0.midpoint(marks.high.0);
                    let leave = match zone.kind {
                        ZoneKind::Normal => LEAVE.0,
                        _ => 0,
                    };
                    let wanted = Pages(middle + leave);
                    assert_eq!(zone.free, wanted, "{memory:?}, seed {seed}");
                    assert_eq!(zone.counted_free, u64::from(wanted.0));
                    assert_eq!(
                        zone.blocks,
                        memory.blocks(wanted),
                        "{memory:?}, seed {seed}"
                    );
                    assert_eq!(zone.listed, Pages::ZERO);
                }
            }
        }
    }

    /// Returns the frame numbers of the pages that the first allocations of single pages get, if a
    /// run begins with memory in the state `memory`.
    fn first_pages(memory: Memory, seed: u64) -> Vec<u32> {
        let testbed = begun(memory, seed);
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let take = |_| testbed.mm.pages().alloc(&testbed.sim, request);
        (0..100)
            .map(|nth| take(nth).expect("some are free").0)
            .collect()
    }

    #[test]
    fn the_seed_decides_where_the_free_blocks_are() {
        let one = first_pages(Memory::Aged, 1);
        assert_eq!(one, first_pages(Memory::Aged, 1), "a run can be repeated");
        assert_ne!(one, first_pages(Memory::Aged, 2), "seeds differ");
    }

    /// Pages that are allocated and freed again merge into the blocks from which they came. They do
    /// not merge into larger blocks, because the neighbours of these blocks are in use.
    #[test]
    fn free_blocks_have_neighbours_in_use() {
        for memory in Memory::ALL {
            let testbed = begun(memory, 1);
            let (sim, pages) = (&testbed.sim, testbed.mm.pages());
            let before = pages.view(sim);
            let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
            let take = |_| pages.alloc(sim, request).expect("some are free");
            let taken: Vec<_> = (0..100_000).map(take).collect();
            assert_ne!(pages.view(sim), before);
            pages.free_pages(sim, &taken).expect("all were handed out");
            pages.drain_all_sync(sim);
            for (zone, before) in pages.view(sim).iter().zip(&before) {
                assert_eq!(zone.blocks, before.blocks, "{memory:?}");
            }
        }
    }

    #[test]
    fn a_machine_that_is_too_small_is_bad_input() {
        let profile = Profile::load("phone-8", Card::Mid).expect("built in");
        let testbed = Testbed::new(&profile, Design::UNPATCHED, 1);
        let error = begin(&testbed, Memory::Aged, Pages(1 << 28)).expect_err("it has 8 GB or so");
        assert!(error.is_bad_input());
        assert!(error.to_string().contains("take fewer workers"), "{error}");
    }
}
