//! The times that one thread of a soak measures, and what disturbed them.

use super::{Histogram, Soak};
use crate::measure::clock::Rate;
use crate::measure::watch::{Jumps, Span};
use crate::sys;

/// A chunk (a few microseconds of a thread's work) counts as disturbed if it took longer by the
/// clock than in CPU time, by more than this many nanoseconds. Even without a disturbance the two
/// times differ a little, because they are read one after the other.
const SLACK_NS: u64 = 3000;
/// The shortest time that may be due to a lock whose holder lost its CPU, in nanoseconds.
const LONG_NS: u64 = 10_000;
/// The largest number of entries in a list of times of at least [`LONG_NS`], or in a list of the
/// spans during which a thread lost its CPU.
pub(super) const ROOM: usize = 1 << 17;

/// The kinds of times, in the order of [`Soak::times`].
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Alloc,
    Free,
    Idle,
    Drain,
}

/// A time of at least `LONG_NS`. The time is added to a histogram only after all threads have
/// ended. Only then is it known when threads lost their CPUs.
#[derive(Clone, Copy)]
struct Long {
    kind: Kind,
    span: Span,
    ns: u64,
}

/// The results of one thread of a soak, while it runs.
pub(super) struct Outcome {
    pub(super) soak: Soak,
    rate: Rate,
    /// For each [`Kind`], the times shorter than [`LONG_NS`] that were measured in the chunk (a few
    /// microseconds of work) that is under way.
    chunk: [Histogram; 4],
    /// The times of at least [`LONG_NS`] in two kinds of chunks (a few microseconds of work each):
    /// the chunk that is under way, and chunks during which the thread had its CPU all the time.
    long: Vec<Long>,
    /// The number of entries of `long` that come from ended chunks of work.
    settled: usize,
    /// The chunks of work in which the thread lost its CPU, as time spans.
    away: Vec<Span>,
}

impl Outcome {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            soak: Soak::default(),
            rate,
            chunk: Default::default(),
            long: Vec::with_capacity(ROOM),
            settled: 0,
            away: Vec::with_capacity(ROOM),
        }
    }

    /// Adds a time to the chunk that is under way.
    #[inline]
    pub(super) fn add(&mut self, kind: Kind, span: Span) {
        let ns = ns(self.rate, span);
        if ns >= LONG_NS && self.long.len() < ROOM {
            self.long.push(Long { kind, span, ns });
        } else {
            self.chunk[kind as usize].add(ns);
        }
    }

    /// Ends a chunk, which is a few microseconds of work. Adds the chunk's times to the histograms
    /// for chunks in which the thread lost its CPU, or to those for other chunks.
    pub(super) fn end_chunk(&mut self, span: Span, before: &Usage, after: &Usage) {
        let is_disturbed = before.was_away_until(after, ns(self.rate, span));
        self.soak.chunks[0] += 1;
        self.soak.chunks[1] += u64::from(is_disturbed);
        self.soak.faults += after.faults - before.faults;
        let times = self.soak.times();
        if is_disturbed {
            if self.away.len() < ROOM {
                self.away.push(span);
            }
            for long in self.long.drain(self.settled..) {
                times[long.kind as usize].disturbed.add(long.ns);
            }
        }
        for (times, chunk) in times.into_iter().zip(&mut self.chunk) {
            if chunk.count() > 0 {
                chunk.move_to(if is_disturbed {
                    &mut times.disturbed
                } else {
                    &mut times.undisturbed
                });
            }
        }
        self.settled = self.long.len();
    }

    /// The chunks of work in which the thread did not run all the time, as time spans.
    pub(super) fn away(&self) -> &[Span] {
        &self.away
    }

    /// Adds each time of at least [`LONG_NS`] to a histogram, and returns the results. `away` has
    /// the spans in which a thread did not run although it had work.
    pub(super) fn filed(mut self, away: &Jumps) -> Soak {
        for long in &self.long {
            let times = &mut *self.soak.times()[long.kind as usize];
            if away.are_near(long.span, 0) {
                times.behind.add(long.ns);
            } else {
                times.undisturbed.add(long.ns);
            }
        }
        self.soak
    }
}

/// The length of a span, in nanoseconds.
pub(super) fn ns(rate: Rate, span: Span) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and far below 2^53"
    )]
    let ns = rate.ns(span.end.saturating_sub(span.start)) as u64;
    ns
}

/// The kernel's counts for the calling thread at one moment.
pub(super) struct Usage {
    /// How often the thread was switched from its CPU.
    switches: u64,
    /// The number of page faults of the thread.
    faults: u64,
    /// The time that the thread has run, without the time that a hypervisor took.
    cpu_ns: u64,
}

impl Usage {
    pub(super) fn now() -> std::io::Result<Self> {
        let [switches, faults] = sys::switches_and_faults()?;
        Ok(Self {
            switches,
            faults,
            cpu_ns: sys::thread_cpu_ns()?,
        })
    }

    /// Returns whether the thread lost its CPU between this moment and `later`. `wall` is the time,
    /// by the clock, of the operations between the two moments, in nanoseconds. The CPU time is
    /// read before and after these operations. So if the CPU time grew by less than `wall`, the
    /// thread did not run all the time.
    pub(super) fn was_away_until(&self, later: &Self, wall: u64) -> bool {
        let ran = later.cpu_ns.saturating_sub(self.cpu_ns);
        later.switches != self.switches || wall.saturating_sub(ran) > SLACK_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(switches: u64, cpu_ns: u64) -> Usage {
        let faults = switches;
        Usage {
            switches,
            faults,
            cpu_ns,
        }
    }

    #[test]
    fn times_are_filed_by_what_disturbed_them() {
        let rate = Rate::measure();
        let at = |from_us: f64, to_us: f64| Span {
            start: rate.ticks(from_us * 1e3),
            end: rate.ticks(to_us * 1e3),
        };
        let mut outcome = Outcome::new(rate);
        // A chunk of operations during which the thread kept its CPU. Two of the operations took at
        // least `LONG_NS`. Another thread lost its CPU during the first of these two. So only this
        // one can have waited for a lock that the other thread held.
        outcome.add(Kind::Alloc, at(0.0, 1.0));
        outcome.add(Kind::Alloc, at(10.0, 70.0));
        outcome.add(Kind::Alloc, at(100.0, 120.0));
        let quiet = (usage(3, 0), usage(3, 120_000));
        outcome.end_chunk(at(0.0, 120.0), &quiet.0, &quiet.1);
        // Two disturbed chunks of work. In the first, this thread was switched from its CPU. In the
        // second, a hypervisor took the CPU.
        outcome.add(Kind::Free, at(200.0, 260.0));
        outcome.end_chunk(at(200.0, 260.0), &usage(3, 0), &usage(4, 60_000));
        outcome.add(Kind::Idle, at(300.0, 301.0));
        outcome.end_chunk(at(300.0, 360.0), &usage(4, 0), &usage(4, 20_000));
        assert_eq!(outcome.away().len(), 2);

        let soak = outcome.filed(&Jumps::of(vec![at(60.0, 80.0)]));
        assert_eq!((soak.chunks, soak.faults), ([3, 2], 1));
        let counts = |times: &super::super::Times| {
            [&times.undisturbed, &times.behind, &times.disturbed].map(Histogram::count)
        };
        assert_eq!(counts(&soak.allocs), [2, 1, 0]);
        assert_eq!(counts(&soak.frees), [0, 0, 1]);
        assert_eq!(counts(&soak.idle), [0, 0, 1]);
        assert!((19_000..21_000).contains(&soak.longest_own()));
    }
}
