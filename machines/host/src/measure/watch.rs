//! The times when a thread did not run, detected as jumps between two consecutive clock readings.
//!
//! A thread reads the clock continually while it waits for the lock, holds it, and pauses before
//! its next request, so no other work takes long between two readings.

use std::cell::{Cell, RefCell};

use super::clock::{self, Rate};

/// The longest time between two readings of the clock that does not count as a jump of the clock,
/// in nanoseconds. The transfer of a cache line takes far less time, and an interrupt takes more.
const JUMP_NS: f64 = 600.0;

/// A span of time between two readings of the clock, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The clock of one thread, and the jumps of this clock so far.
#[derive(Debug)]
pub(super) struct Watch {
    jump_ticks: u64,
    last: Cell<u64>,
    jumps: RefCell<Vec<Span>>,
}

impl Watch {
    pub(super) fn start(rate: Rate) -> Self {
        let (jump_ticks, last) = (rate.ticks(JUMP_NS), Cell::new(clock::ticks()));
        Self {
            jump_ticks,
            last,
            jumps: RefCell::default(),
        }
    }

    /// Reads the clock, and records a jump of the clock if too much time has passed since the last
    /// reading.
    #[inline]
    pub(super) fn look(&self) -> u64 {
        self.note(clock::ticks())
    }

    /// Reads the clock after every earlier load from memory is complete. Records a jump of the
    /// clock if too much time has passed since the last reading.
    #[inline]
    pub(super) fn look_after_loads(&self) -> u64 {
        self.note(clock::ticks_after_loads())
    }

    /// Reads the clock until it has reached `end`. Returns the last reading.
    pub(super) fn pass(&self, end: u64) -> u64 {
        loop {
            let now = self.look();
            if now >= end {
                return now;
            }
        }
    }

    #[inline]
    fn note(&self, now: u64) -> u64 {
        let last = self.last.replace(now);
        if now.saturating_sub(last) > self.jump_ticks {
            self.jumps.borrow_mut().push(Span {
                start: last,
                end: now,
            });
        }
        now
    }

    pub(super) fn into_jumps(self) -> Vec<Span> {
        self.jumps.into_inner()
    }
}

/// The jumps of several threads' clocks (times when a thread did not run), merged into spans that
/// do not touch each other, in order of time.
#[derive(Debug)]
pub(super) struct Jumps(Vec<Span>);

impl Jumps {
    pub(super) fn of(mut jumps: Vec<Span>) -> Self {
        jumps.sort_unstable_by_key(|jump| jump.start);
        let mut merged: Vec<Span> = Vec::with_capacity(jumps.len());
        for jump in jumps {
            match merged.last_mut() {
                Some(last) if jump.start <= last.end => last.end = last.end.max(jump.end),
                _ => merged.push(jump),
            }
        }
        Self(merged)
    }

    /// Returns whether any jump of the clock between two successive readings is less than `margin`
    /// ticks from `span`.
    pub(super) fn are_near(&self, span: Span, margin: u64) -> bool {
        let past = self
            .0
            .partition_point(|jump| jump.end.saturating_add(margin) <= span.start);
        self.0
            .get(past)
            .is_some_and(|jump| jump.start < span.end.saturating_add(margin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    #[test]
    fn what_is_near_a_jump_of_either_thread_is_known() {
        let jumps = Jumps::of(vec![
            span(500, 600),
            span(100, 200),
            span(150, 260),
            span(110, 120),
        ]);
        assert_eq!(jumps.0, [span(100, 260), span(500, 600)]);
        let near = |start, end| jumps.are_near(span(start, end), 10);
        assert!(near(0, 95) && near(120, 130) && near(265, 270) && near(0, 1000));
        assert!(!near(0, 90) && !near(270, 490) && !near(610, 900));
    }

    #[test]
    fn a_sleep_is_a_jump() {
        let watch = Watch::start(Rate::measure());
        std::thread::sleep(std::time::Duration::from_millis(2));
        let woken = watch.look();
        let jumps = watch.into_jumps();
        assert_eq!(jumps.last().map(|jump| jump.end), Some(woken));
    }
}
