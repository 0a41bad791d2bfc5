//! The quantities that the memory manager uses, each with its own type.
//!
//! A page frame number, a count of pages and a block size cannot be mixed up, because every
//! conversion between them is a named method.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::time::Duration;

/// The number of bytes in a page.
pub const PAGE_SIZE: u64 = 4096;

/// The number of a page frame (Linux: `pfn`). 32 bits are enough for 16 TiB of memory in 4 KiB
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl Pfn {
    /// The frame that is `pages` frames above this one.
    #[must_use]
    pub const fn plus(self, pages: Pages) -> Self {
        Self(self.0 + pages.0)
    }

    /// Returns whether a block of `order` may start at this frame.
    #[must_use]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0.trailing_zeros() >= order.0 as u32
    }
}

/// The number of a virtual page (Linux: an address shifted by `PAGE_SHIFT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vpn(pub u64);

impl fmt::Display for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a process (Linux: `tgid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// log₂ of a block's size in pages, from 0 to [`Order::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// The order of a single page.
    pub const ZERO: Self = Self(0);
    /// The order of the largest block, 4 MiB (Linux: `MAX_PAGE_ORDER`).
    pub const MAX: Self = Self(10);
    /// The order of a transparent huge page, 2 MiB (Linux: `pageblock_order`).
    pub const HUGE: Self = Self(9);
    /// The number of orders.
    pub const COUNT: usize = 11;

    /// Returns the order `order`, or `None` if it is above [`Order::MAX`].
    #[must_use]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= Self::MAX.0 {
            Some(Self(order))
        } else {
            None
        }
    }

    /// The number of pages in a block of this order.
    #[must_use]
    pub const fn pages(self) -> Pages {
        Pages(1 << self.0)
    }

    /// The order as an index into an array with one entry per order.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The order as a number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The next larger order, or `None` for the largest one.
    #[must_use]
    pub const fn up(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The next smaller order, or `None` for a single page.
    #[must_use]
    pub const fn down(self) -> Option<Self> {
        if self.0 == 0 {
            None
        } else {
            Some(Self(self.0 - 1))
        }
    }

    /// All orders, in ascending order.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=Self::MAX.0).map(Self)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pages(pub u32);

impl Pages {
    /// Zero pages.
    pub const ZERO: Self = Self(0);

    /// The number of whole pages in `bytes`, saturating at `u32::MAX`.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        Self::at_most(bytes / PAGE_SIZE)
    }

    /// Returns `count` pages, saturating at `u32::MAX`, which is more than any zone has.
    pub(crate) fn at_most(count: u64) -> Self {
        Self(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The size of this number of pages, in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * PAGE_SIZE
    }

    /// The number of pages as an index or a length.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// `self - other`, or zero if that is negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Pages {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Pages {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for Pages {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Pages {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a CPU. The numbers of the online CPUs may have holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

impl CpuId {
    /// The CPU's number as an index into an array with one entry per possible CPU.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a memory node (Linux: NUMA node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node's number as an index into an array with one entry per node.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A time on the machine's clock, or a span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// `self - earlier`, or zero if that is negative.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Nanos {
    /// Converts a span to nanoseconds. A span of more than 584 years becomes `u64::MAX`
    /// nanoseconds.
    fn from(span: Duration) -> Self {
        let seconds = span.as_secs().saturating_mul(Self::SECOND.0);
        Self(seconds.saturating_add(u64::from(span.subsec_nanos())))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// A length of time, or a point in time, counted in timer ticks (Linux: `jiffies`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Jiffies(pub u64);

/// A tick rate in ticks per second (Linux: `CONFIG_HZ`), from 1 to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hz(u32);

impl Hz {
    /// Returns the tick rate `hz`, or `None` if it is outside 1 to 10,000.
    #[must_use]
    pub const fn new(hz: u32) -> Option<Self> {
        if hz >= 1 && hz <= 10_000 {
            Some(Self(hz))
        } else {
            None
        }
    }

    /// The tick rate, in ticks per second.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the last tick at or before `at`.
    #[must_use]
    pub const fn jiffies(self, at: Nanos) -> Jiffies {
        // Whole seconds and the remaining nanoseconds are converted separately, so that no product
        // overflows for any time up to the maximum of 584 years.
        let whole = at.0 / Nanos::SECOND.0 * self.0 as u64;
        let part = at.0 % Nanos::SECOND.0 * self.0 as u64 / Nanos::SECOND.0;
        Jiffies(whole + part)
    }

    /// The time of `tick`: the first nanosecond for which [`Hz::jiffies`] returns `tick`.
    #[must_use]
    pub const fn nanos(self, tick: Jiffies) -> Nanos {
        let hz = self.0 as u64;
        let part = tick.0 % hz * Nanos::SECOND.0;
        Nanos(tick.0 / hz * Nanos::SECOND.0 + part.div_ceil(hz))
    }

    /// The number of ticks in `span`, rounded to the nearest integer.
    #[must_use]
    pub const fn span(self, span: Nanos) -> Jiffies {
        self.jiffies(Nanos(span.0 + Nanos::SECOND.0 / (2 * self.0 as u64)))
    }
}

// Conversions between integers. The functions that panic are for numbers that are in range by
// construction. A caller whose number may be out of range saturates the number instead, and says
// why saturating is correct.

/// Converts a count of items to 32 bits.
///
/// # Panics
/// If there are 2³² items or more, which no collection of the manager has.
#[inline]
#[track_caller]
pub(crate) fn count_of(items: usize) -> u32 {
    u32::try_from(items).expect("fewer than 2³² items")
}

/// Returns the value of a word that stores only unsigned 32-bit numbers.
///
/// # Panics
/// If the value is negative or does not fit in 32 bits.
#[inline]
#[track_caller]
pub(crate) fn count_in(word: i64) -> u32 {
    u32::try_from(word).expect("a word that only counts are stored in")
}

/// Returns the value of a word that is never negative.
///
/// # Panics
/// If the word is negative.
#[inline]
#[track_caller]
pub(crate) fn total_in(word: i64) -> u64 {
    u64::try_from(word).expect("a word that never falls below 0")
}

/// Returns the value of a word that holds a sum, or 0 if the value is negative. A sum can be
/// negative for a moment: a reader may see a subtraction before the addition that preceded it.
#[inline]
pub(crate) const fn at_least_0(word: i64) -> u64 {
    if word < 0 { 0 } else { word.cast_unsigned() }
}

/// Converts an unsigned number to a signed one.
///
/// # Panics
/// If the number is 2⁶³ or more. No machine has as many pages, bytes or nanoseconds.
#[inline]
#[track_caller]
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("less than 2⁶³")
}

/// Converts a number that is known to fit into 32 bits.
///
/// # Panics
/// If the number is 2³² or more.
#[inline]
#[track_caller]
pub(crate) fn narrow(number: u64) -> u32 {
    u32::try_from(number).expect("less than 2³²")
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn a_tick_is_seen_from_its_first_nanosecond_on() {
        for hz in [100, 250, 300, 1000] {
            let hz = Hz::new(hz).expect("in range");
            for tick in [0, 1, 2, 299, 300, 301, 86_400_001].map(Jiffies) {
                let at = hz.nanos(tick);
                assert_eq!(hz.jiffies(at), tick);
                if at.0 > 0 {
                    assert_eq!(hz.jiffies(Nanos(at.0 - 1)).0, tick.0 - 1);
                }
            }
        }
    }

    #[test]
    fn only_named_conversions_saturate() {
        assert_eq!(Pages::at_most(1 << 32), Pages(u32::MAX));
        assert_eq!(Pages::from_bytes(u64::MAX), Pages(u32::MAX));
        assert_eq!([-1, 0, i64::MAX].map(at_least_0), [0, 0, (1 << 63) - 1]);
        assert_eq!(narrow(u64::from(u32::MAX)), u32::MAX);
        assert_eq!(Nanos::from(Duration::new(3, 7)), Nanos(3_000_000_007));
        assert_eq!(Nanos::from(Duration::MAX), Nanos(u64::MAX));
        let refused = |convert: fn()| std::panic::catch_unwind(convert).is_err();
        assert!(refused(|| _ = narrow(1 << 32)));
        assert!(refused(|| _ = signed(1 << 63)));
        assert!(refused(|| _ = total_in(-1)));
        assert!(refused(|| _ = count_in(1 << 32)));
    }

    #[test]
    fn orders_end_at_ten() {
        assert_eq!(Order::new(11), None);
        assert_eq!(Order::MAX.up(), None);
        assert_eq!(Order::ZERO.down(), None);
        assert_eq!(Order::all().count(), Order::COUNT);
        assert!(Pfn(1024).is_aligned(Order::MAX) && !Pfn(512).is_aligned(Order::MAX));
    }
}
