//! The integers that CPUs share (*words*). All of them are hardware atomics.
//!
//! A [`SharedWord`] has 128 bytes to itself, because many CPUs write it and x86 prefetches cache
//! lines in pairs. A [`SharedLine`] is only one cache line, because counters have many of them. A
//! [`CpuWord`] shares its cache line with other words of the same CPU.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};

use once_cell::sync::OnceCell;
use plimsoll_mm::machine::{Field, LINE_WORDS, Line, LocalWord, Once, Word};
use plimsoll_mm::units::CpuId;

use crate::Host;

/// An atomic integer with a pair of cache lines to itself.
#[derive(Debug)]
#[repr(align(128))]
pub struct SharedWord(AtomicI64);

const _: () = assert!(
    size_of::<SharedWord>() == 128,
    "one word, one pair of cache lines"
);

impl SharedWord {
    pub(crate) fn new(value: i64) -> Self {
        Self(AtomicI64::new(value))
    }
}

impl Word<Host> for SharedWord {
    #[inline]
    fn load(&self, _machine: &Host, order: Ordering) -> i64 {
        self.0.load(order)
    }

    #[inline]
    fn store(&self, _machine: &Host, value: i64, order: Ordering) {
        self.0.store(value, order);
    }

    #[inline]
    fn add(&self, _machine: &Host, delta: i64, order: Ordering) -> i64 {
        self.0.fetch_add(delta, order).wrapping_add(delta)
    }

    #[inline]
    fn swap(&self, _machine: &Host, value: i64, order: Ordering) -> i64 {
        self.0.swap(value, order)
    }

    #[inline]
    fn compare_exchange(
        &self,
        _machine: &Host,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64> {
        // Relaxed is enough on failure: nothing was written, so there is nothing to order.
        self.0.compare_exchange(old, new, order, Relaxed)
    }
}

/// Atomic integers that share one cache line. No other data is in this cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct SharedLine([AtomicI64; LINE_WORDS]);

const _: () = assert!(size_of::<SharedLine>() == 64, "one cache line");

impl SharedLine {
    pub(crate) fn new() -> Self {
        Self([const { AtomicI64::new(0) }; LINE_WORDS])
    }
}

impl Line<Host> for SharedLine {
    #[inline]
    fn load(&self, _machine: &Host, word: usize, order: Ordering) -> i64 {
        self.0[word].load(order)
    }

    #[inline]
    fn store(&self, _machine: &Host, word: usize, value: i64, order: Ordering) {
        self.0[word].store(value, order);
    }

    #[inline]
    fn add(&self, _machine: &Host, word: usize, delta: i64, order: Ordering) -> i64 {
        self.0[word].fetch_add(delta, order).wrapping_add(delta)
    }

    #[inline]
    fn compare_exchange(
        &self,
        _machine: &Host,
        word: usize,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64> {
        // Relaxed is enough on failure: nothing was written, so there is nothing to order.
        self.0[word].compare_exchange(old, new, order, Relaxed)
    }
}

/// An integer that a thread can read while another thread writes it.
#[derive(Debug)]
pub struct HostField(AtomicU64);

impl HostField {
    pub(crate) fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

impl Field for HostField {
    #[inline]
    fn get(&self) -> u64 {
        // Acquire pairs with the Release in `set`, as the trait `Field` requires.
        self.0.load(Acquire)
    }

    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Release);
    }
}

/// A value that is set once. After that, any thread can read it.
#[derive(Debug)]
pub struct HostOnce<T>(OnceCell<T>);

impl<T> HostOnce<T> {
    pub(crate) fn new() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Once<T> for HostOnce<T> {
    fn of(value: T) -> Self {
        Self(OnceCell::with_value(value))
    }

    #[inline]
    fn get(&self) -> Option<&T> {
        self.0.get()
    }

    fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }
}

/// An atomic integer of one CPU. All accesses are relaxed, because the trait `LocalWord` promises
/// nothing more.
#[derive(Debug)]
pub struct CpuWord(AtomicI64);

impl CpuWord {
    pub(crate) fn new(value: i64) -> Self {
        Self(AtomicI64::new(value))
    }
}

impl LocalWord<Host> for CpuWord {
    #[inline]
    fn add(&self, _machine: &Host, delta: i64) -> i64 {
        self.0.fetch_add(delta, Relaxed).wrapping_add(delta)
    }

    /// If the machine uses restartable sequences, adds by such a sequence. The sequence succeeds
    /// only on the home of `cpu`, the real CPU whose threads may add for `cpu` (`fronts::Homes`);
    /// elsewhere, returns `None`. A machine that uses no such sequences adds by an atomic
    /// instruction.
    #[inline(always)]
    fn add_here(&self, machine: &Host, cpu: CpuId, delta: i64) -> Option<i64> {
        let homes = &machine.shared.homes;
        match homes.home_of(cpu) {
            Some(home) => home.add(&self.0, delta),
            None => Some(self.add(machine, delta)),
        }
    }

    /// If the machine uses restartable sequences, and no thread has added for `cpu` yet, makes the
    /// caller's real CPU the home of `cpu`. Otherwise, does so after many calls.
    #[cold]
    fn admits(&self, machine: &Host, cpu: CpuId) -> bool {
        let homes = &machine.shared.homes;
        homes.home_of(cpu).is_none_or(|home| homes.claim(home))
    }

    #[inline]
    fn set(&self, _machine: &Host, value: i64) {
        self.0.store(value, Relaxed);
    }

    #[inline]
    fn take(&self, _machine: &Host) -> i64 {
        self.0.swap(0, Relaxed)
    }

    #[inline]
    fn read(&self, _machine: &Host) -> i64 {
        self.0.load(Relaxed)
    }
}
