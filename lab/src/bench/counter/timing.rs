//! Times subjects (the measured counters) in turns, so that other load on the computer affects all
//! subjects equally.
//!
//! The result is the lower quartile of the times of many rounds. Other load can only make a round
//! longer, so short times are more accurate than long times. But the very shortest time may be an
//! outlier.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;
use std::{hint, panic, thread};

use plimsoll_host::affinity::{self, CpuMask};

use super::Subject;
use crate::run::progress::Progress;

const ROUNDS: usize = 240;
/// How many times each thread adds its whole list of deltas (amounts to add) in one round.
const LOTS: u32 = 8;
/// The largest delay between the starts of the first and the last thread of a round, as a fraction
/// of the mean time that the threads take for the round. If the delay is larger, the round does not
/// count.
const LATE_MAX: f64 = 0.05;

/// Returns the nanoseconds per addition for each subject (a measured counter). One thread runs on
/// each of `cpus`, and all threads add to the same counter. The value of a subject is `None` if the
/// threads began together in fewer than an eighth of its rounds (see [`LATE_MAX`]).
pub(super) fn adds(
    subjects: &[Box<dyn Subject>],
    cpus: &[u32],
    deltas: &[i64],
    progress: &Progress,
) -> Vec<Option<f64>> {
    let gate = Gate(AtomicUsize::new(0));
    let spans: Vec<Vec<Span>> = thread::scope(|scope| {
        let threads = cpus.iter().enumerate().map(|(nth, &real)| {
            let gate = &gate;
            scope.spawn(move || {
                // If the thread cannot be pinned to its CPU, the times only become noisier, so
                // ignore the failure.
                let _ = affinity::pin(&CpuMask::only(real));
                let mut spans = Vec::with_capacity(ROUNDS * subjects.len());
                for _ in 0..ROUNDS {
                    for subject in subjects {
                        let _entered = subject.enter(nth);
                        gate.pass(cpus.len());
                        spans.push(Span::of(|| (0..LOTS).for_each(|_| subject.add_all(deltas))));
                    }
                    if nth == 0 {
                        progress.step();
                    }
                }
                spans
            })
        });
        let threads: Vec<_> = threads.collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
        let joined = threads.into_iter().map(join);
        joined
            .map(|spans| spans.unwrap_or_else(|bug| panic::resume_unwind(bug)))
            .collect()
    });
    let count = f64::from(LOTS) * deltas.len() as f64;
    let per_subject = (0..subjects.len()).map(|subject| {
        let rounds = (0..ROUNDS).map(|round| round * subjects.len() + subject);
        let mut kept: Vec<f64> = rounds
            .filter_map(|at| together(spans.iter().map(|spans| spans[at])))
            .collect();
        let enough = kept.len() >= ROUNDS / 8;
        enough.then(|| lower_quartile(&mut kept) / count)
    });
    per_subject.collect()
}

/// The number of steps by which [`adds`] advances the progress bar: one in each round.
pub(super) const STEPS: usize = ROUNDS;

/// Measures how many nanoseconds one sum takes for each subject (a measured counter). `read` must
/// sum the given subject the given number of times.
pub(super) fn reads(
    subjects: &[Box<dyn Subject>],
    times: u32,
    read: impl Fn(&dyn Subject, u32),
) -> Vec<f64> {
    let mut rounds = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS / 2 {
        for (subject, rounds) in subjects.iter().zip(&mut rounds) {
            let _entered = subject.enter(0);
            let span = Span::of(|| read(&**subject, times));
            rounds.push(span.ns());
        }
    }
    let per_call = |rounds: &mut Vec<f64>| lower_quartile(rounds) / f64::from(times);
    rounds.iter_mut().map(per_call).collect()
}

/// The moments at which a thread's work began and ended.
#[derive(Clone, Copy)]
struct Span {
    begin: Instant,
    end: Instant,
}

impl Span {
    fn of(work: impl FnOnce()) -> Self {
        let begin = Instant::now();
        work();
        let end = Instant::now();
        Self { begin, end }
    }

    fn ns(self) -> f64 {
        (self.end - self.begin).as_nanos() as f64
    }
}

/// Returns the mean, in nanoseconds, of the times that the threads took for one round. Returns
/// `None` if a thread began late (see [`LATE_MAX`]).
fn together(spans: impl Iterator<Item = Span>) -> Option<f64> {
    let spans: Vec<Span> = spans.collect();
    let (first, last) = (
        spans.iter().map(|span| span.begin).min()?,
        spans.iter().map(|span| span.begin).max()?,
    );
    let mean = spans.iter().map(|span| span.ns()).sum::<f64>() / spans.len() as f64;
    ((last - first).as_nanos() as f64 <= LATE_MAX * mean).then_some(mean)
}

fn lower_quartile(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or(f64::NAN)
}

/// A reusable barrier, which counts the arrivals of all threads. A thread can pass the barrier for
/// the nth time only when every thread has arrived n times.
struct Gate(AtomicUsize);

impl Gate {
    fn pass(&self, threads: usize) {
        // Release and Acquire are the usual orderings of a barrier, although this barrier passes no
        // data between threads.
        let arrived = self.0.fetch_add(1, Release) + 1;
        let all = arrived.next_multiple_of(threads);
        let mut spins = 0_u32;
        // The loop ends when the last thread has arrived. This thread yields because another thread
        // may need the CPU on which this thread runs.
        while self.0.load(Acquire) < all {
            spins += 1;
            if spins.is_multiple_of(1 << 12) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_rounds_that_began_together_count() {
        let start = Instant::now();
        let span = |from_us, to_us| Span {
            begin: start + Duration::from_micros(from_us),
            end: start + Duration::from_micros(to_us),
        };
        let mean = together([span(0, 100), span(1, 61)].into_iter());
        assert_eq!(mean, Some(80_000.0));
        assert_eq!(together([span(0, 100), span(90, 190)].into_iter()), None);
    }

    #[test]
    fn the_lower_quartile_ignores_disturbed_rounds() {
        let mut rounds = [9.0, 2.0, 900.0, 1.0, 3.0, 50.0, 4.0, 5.0];
        assert!((lower_quartile(&mut rounds) - 3.0).abs() < 1e-9);
        assert!(lower_quartile(&mut []).is_nan());
    }
}
