//! Watermarks: the numbers of free pages below which a zone refuses requests, and the requests that
//! may go below these numbers.
//!
//! Pure arithmetic that follows Linux (`setup_per_zone_wmarks`, `__zone_watermark_ok`); the zone
//! stores the results. Watermark boosts, by which Linux raises a watermark for a while, are left
//! out.

use crate::units::Pages;

/// A zone's min, low and high watermarks: thresholds for its number of free pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this number of free pages, only requests of higher urgency are served.
    pub min: Pages,
    /// Below this number of free pages, the fast path tries the next zone.
    pub low: Pages,
    /// Above this number of free pages, the zone has plenty of memory.
    pub high: Pages,
}

/// The memory to keep free on a machine with `lowmem_kib` KiB of memory, in KiB (Linux:
/// `calculate_min_free_kbytes`): √(16 × `lowmem_kib`), clamped to 128 KiB and 256 MiB.
#[must_use]
pub(crate) fn min_free_kib(lowmem_kib: u64) -> u64 {
    (lowmem_kib * 16).isqrt().clamp(128, 262_144)
}

/// The rule for computing a zone's min watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The min watermark is the zone's share of `min_free_kbytes`.
    Lowmem,
    /// The zone is movable memory, which no request depends on, so its min watermark is low.
    Movable,
}

/// Computes the watermarks of a zone of `managed` pages. All zones of the machine except movable
/// ones have `lowmem` pages in total and keep `min_free` of them free. `scale` is the minimum
/// distance between two watermarks, in 10,000ths of the zone.
#[must_use]
pub fn marks(
    managed: Pages,
    lowmem: Pages,
    min_free: Pages,
    scale: u64,
    share: Share,
) -> Watermarks {
    let of_zone = u64::from(managed.0);
    let part = u64::from(min_free.0) * of_zone / u64::from(lowmem.0.max(1));
    let min = match share {
        Share::Lowmem => part,
        Share::Movable => (of_zone / 1024).clamp(32, 128),
    };
    let distance = (part / 4).max(of_zone * scale / 10_000);
    // The watermarks follow from the zone's share of `min_free`. If movable memory is many times as
    // large as all other memory, this share may exceed 32 bits. The watermarks are then cut off at
    // the largest 32-bit number, so low and high are larger than any zone. Then the zone gives
    // blocks only on the slow path, which tests the min watermark.
    Watermarks {
        min: Pages::at_most(min),
        low: Pages::at_most(min + distance),
        high: Pages::at_most(min + 2 * distance),
    }
}

/// How far below a watermark a request may go, and whether it may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// The request may go down to the watermark, and no further.
    #[default]
    Normal,
    /// The request stops at the watermark, and waits neither for lists to be drained nor for
    /// reclaimers (Linux: `GFP_NOWAIT`).
    NoWait,
    /// The request may go down to half of the watermark (Linux: `__GFP_HIGH`).
    High,
    /// The request may go down to three eighths of the watermark, and cannot wait (Linux:
    /// `GFP_ATOMIC`).
    Atomic,
    /// The request may go down to half of the watermark, because the task is about to exit and free
    /// all its memory (Linux: an OOM victim).
    Victim,
    /// The request ignores watermarks: it may take the last free page (Linux: `PF_MEMALLOC`).
    Reserve,
}

impl Urgency {
    /// Returns whether a request of this urgency may wait while lists are drained and reclaimers
    /// run.
    #[must_use]
    pub const fn waits(self) -> bool {
        !matches!(self, Self::NoWait | Self::Atomic)
    }

    /// Returns the watermark `mark`, lowered for this urgency.
    #[must_use]
    const fn lowered(self, mark: Pages) -> Pages {
        let half = mark.0 - mark.0 / 2;
        match self {
            Self::Normal | Self::NoWait => mark,
            Self::High | Self::Victim => Pages(half),
            Self::Atomic => Pages(half - half / 4),
            Self::Reserve => Pages(0),
        }
    }
}

/// Returns whether a zone with `free` free pages may give `block` pages to a request. The zone must
/// not fall below a sum: the watermark `mark`, lowered for the `urgency` of the request, plus the
/// `reserve` that the zone withholds from the request.
///
/// As in Linux, the free pages must exceed this sum before the last page of the block is taken, so
/// they may be equal to it afterwards. With [`Urgency::Reserve`] it is enough that `free` covers
/// the block.
#[must_use]
pub fn allows(free: u64, block: Pages, mark: Pages, reserve: Pages, urgency: Urgency) -> bool {
    if urgency == Urgency::Reserve {
        return free >= u64::from(block.0);
    }
    let usable = free.saturating_sub(u64::from(block.0) - 1);
    usable > u64::from(urgency.lowered(mark).0) + u64::from(reserve.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected watermarks were read from `/proc/zoneinfo` of a 2-CPU x86-64 host with one node
    /// and a `min_free_kbytes` of 67584.
    #[test]
    fn marks_are_those_of_a_real_host() {
        let managed = [3840, 772_915, 2_228_224].map(Pages);
        let lowmem = Pages(managed.iter().map(|pages| pages.0).sum());
        let of = |zone: usize| {
            let marks = marks(managed[zone], lowmem, Pages(67_584 / 4), 10, Share::Lowmem);
            [marks.min.0, marks.low.0, marks.high.0]
        };
        assert_eq!(of(0), [21, 26, 31]);
        assert_eq!(of(1), [4345, 5431, 6517]);
        assert_eq!(of(2), [12_528, 15_660, 18_792]);
        let movable = marks(Pages(0), lowmem, Pages(67_584 / 4), 10, Share::Movable);
        assert_eq!([movable.min.0, movable.low.0, movable.high.0], [32, 32, 32]);
    }

    #[test]
    fn movable_memory_keeps_a_1024th_of_itself_within_bounds() {
        let min = |managed| {
            let min_free = Pages(1000);
            marks(Pages(managed), Pages(1 << 20), min_free, 10, Share::Movable).min
        };
        assert_eq!(min(32 * 1024), Pages(32));
        assert_eq!(min(51 * 1024 - 1), Pages(50));
        assert_eq!(min(51 * 1024), Pages(51));
        assert_eq!(min(1 << 20), Pages(128));
    }

    #[test]
    fn urgency_lowers_a_mark_as_linux_does() {
        let lowered = |urgency: Urgency| urgency.lowered(Pages(1001)).0;
        assert_eq!(lowered(Urgency::Normal), 1001);
        assert_eq!(lowered(Urgency::NoWait), 1001);
        assert_eq!(lowered(Urgency::High), 501);
        assert_eq!(lowered(Urgency::Atomic), 376);
        assert_eq!(lowered(Urgency::Victim), 501);
        assert_eq!(lowered(Urgency::Reserve), 0);
    }

    #[test]
    fn a_zone_gives_while_it_stays_strictly_above_mark_and_reserve() {
        let ok = |free, block| allows(free, Pages(block), Pages(100), Pages(20), Urgency::Normal);
        assert!(ok(121, 1) && !ok(120, 1));
        assert!(ok(128, 8) && !ok(127, 8));
        assert!(allows(8, Pages(8), Pages(100), Pages(20), Urgency::Reserve));
        assert!(!allows(
            7,
            Pages(8),
            Pages(100),
            Pages(20),
            Urgency::Reserve
        ));
    }

    #[test]
    fn min_free_grows_with_the_root_of_memory_within_its_bounds() {
        assert_eq!(min_free_kib(16), 128);
        assert_eq!(min_free_kib(16 << 20), 16_384);
        assert_eq!(min_free_kib(1 << 40), 262_144);
    }
}
