//! Times the loads of the benchmark on one thread and on two threads.
//!
//! Subjects take turns, so that other load on the computer affects all subjects equally. A sample
//! in which the kernel took the CPU away from a measured thread is *disturbed* and does not count.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{fs, hint, panic, thread};

use plimsoll_host::affinity::{self, CpuMask};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::subject::{NO_BLOCK, Size, Subject};
use crate::run::progress::Progress;

/// How many samples each load has with each subject (an allocator that the bench measures).
pub(super) const ROUNDS: usize = 41;
/// The number of pairs in a sample of the load `hot pair`. A pair allocates a block and frees it at
/// once.
const PAIRS: usize = 20_000;
/// The number of frames that each step of a bulk load allocates or frees.
const BULK: usize = 1 << 16;
/// How many huge blocks are allocated before the first of them is freed.
const HUGE_BLOCKS: usize = 128;
/// How many frames one thread passes to the other at a time.
const CHUNK: usize = 64;
/// The largest number of chunks (groups of [`CHUNK`] frames) that wait until the other thread frees
/// them.
const CHUNKS_WAITING: usize = 8;
/// The number of frames of each process in the load `exits`. Half of them were allocated by each
/// thread.
const OF_PROCESS: usize = 1 << 12;
/// The number of chunks in a sample of the load `alloc here, free there`, in which one thread
/// allocates frames and another frees them.
const CHUNKS: usize = 256;

/// The names of the loads with one thread, in the order of the columns of the report.
pub(super) const ALONE: [&str; 10] = [
    "hot pair",
    "64 out, back",
    "512 out, back",
    "65,536 alloc",
    "free in order",
    "free random",
    "alloc after",
    "huge pair",
    "128 huge alloc",
    "128 huge free",
];

/// The names of the loads with two threads, in the order of the columns of the report.
pub(super) const TOGETHER: [&str; 3] = [
    "64 out, back, each",
    "alloc here, free there",
    "exits, each",
];

/// One sample, in nanoseconds per operation. `None` if the sample is disturbed, or if the allocator
/// has no blocks of the load's size. In a load that frees the blocks that it allocates, an
/// operation is one allocation and one free.
pub(super) type Sample = Option<f64>;

/// The samples of one subject (a measured allocator): for each load, one sample per round.
pub(super) type Samples<const LOADS: usize> = [Vec<Sample>; LOADS];

/// Measures all loads with one thread. The calling thread should be pinned to a CPU.
pub(super) fn alone(
    subjects: &[Box<dyn Subject>],
    rounds: usize,
    progress: &Progress,
) -> Vec<Samples<{ ALONE.len() }>> {
    let mut room = Room::new();
    let mut all: Vec<_> = subjects
        .iter()
        .map(|_| [const { Vec::new() }; ALONE.len()])
        .collect();
    for _ in 0..rounds {
        for (subject, samples) in subjects.iter().zip(&mut all) {
            let _entered = subject.enter(0);
            let round = room.round(&**subject);
            for (samples, sample) in samples.iter_mut().zip(round) {
                samples.push(sample);
            }
        }
        progress.step();
    }
    all
}

/// Memory for the values that identify the allocated blocks, and the generator that shuffles these
/// values.
struct Room {
    blocks: Vec<usize>,
    rng: Xoshiro256PlusPlus,
}

impl Room {
    fn new() -> Self {
        Self {
            blocks: vec![NO_BLOCK; BULK],
            rng: Xoshiro256PlusPlus::seed_from_u64(1),
        }
    }

    fn round(&mut self, subject: &dyn Subject) -> [Sample; ALONE.len()] {
        subject.pairs(Size::Page, PAIRS / 10);
        let pair = Span::of(|| subject.pairs(Size::Page, PAIRS)).per(PAIRS);
        let few = self.out_and_back(subject, 64);
        let many = self.out_and_back(subject, 512);
        let [alloc, in_order, random, after] = self.bulk(subject);
        let [huge_pair, huge_alloc, huge_free] = if subject.has(Size::Huge) {
            self.huge(subject)
        } else {
            [None; 3]
        };
        [
            pair, few, many, alloc, in_order, random, after, huge_pair, huge_alloc, huge_free,
        ]
    }

    /// Repeatedly allocates `count` frames and then frees them in reverse order.
    fn out_and_back(&mut self, subject: &dyn Subject, count: usize) -> Sample {
        let blocks = &mut self.blocks[..count];
        let times = PAIRS / count;
        let mut failed = 0;
        let span = Span::of(|| {
            for _ in 0..times {
                failed += subject.take(Size::Page, blocks);
                blocks.reverse();
                subject.give(Size::Page, blocks);
            }
        });
        span.per(times * count).filter(|_| failed == 0)
    }

    /// Allocates [`BULK`] frames, frees them in order, allocates [`BULK`] frames again, frees them
    /// in random order, and allocates [`BULK`] frames a third time.
    fn bulk(&mut self, subject: &dyn Subject) -> [Sample; 4] {
        subject.settle();
        let blocks = &mut self.blocks[..];
        let mut failed = 0;
        let mut take = |blocks: &mut [usize]| {
            let span = Span::of(|| failed += subject.take(Size::Page, blocks));
            span.per(BULK)
        };
        let give = |blocks: &[usize]| Span::of(|| subject.give(Size::Page, blocks)).per(BULK);
        let alloc = take(blocks);
        let in_order = give(blocks);
        let _again = take(blocks);
        blocks.shuffle(&mut self.rng);
        let random = give(blocks);
        let after = take(blocks);
        let _last = give(blocks);
        [alloc, in_order, random, after].map(|sample| sample.filter(|_| failed == 0))
    }

    fn huge(&mut self, subject: &dyn Subject) -> [Sample; 3] {
        subject.settle();
        let blocks = &mut self.blocks[..HUGE_BLOCKS];
        subject.pairs(Size::Huge, PAIRS / 100);
        let pair = Span::of(|| subject.pairs(Size::Huge, PAIRS / 10)).per(PAIRS / 10);
        let mut failed = 0;
        let alloc = Span::of(|| failed = subject.take(Size::Huge, blocks)).per(HUGE_BLOCKS);
        blocks.shuffle(&mut self.rng);
        let free = Span::of(|| subject.give(Size::Huge, blocks)).per(HUGE_BLOCKS);
        [
            pair,
            alloc.filter(|_| failed == 0),
            free.filter(|_| failed == 0),
        ]
    }
}

/// Measures all loads with two threads, which run on the real CPUs `cpus`.
pub(super) fn together(
    subjects: &[Box<dyn Subject>],
    cpus: [u32; 2],
    rounds: usize,
    progress: &Progress,
) -> Vec<Samples<{ TOGETHER.len() }>> {
    let shared = Shared {
        gate: Gate(AtomicUsize::new(0)),
        ring: Ring::new(),
        handed: Default::default(),
    };
    let spans = thread::scope(|scope| {
        let threads = [0, 1].map(|nth| {
            let shared = &shared;
            scope.spawn(move || {
                // If the thread cannot be pinned to its CPU, the times only become noisier, so
                // ignore the failure.
                let _ = affinity::pin(&CpuMask::only(cpus[nth]));
                thread_of_two(subjects, nth, rounds, shared, progress)
            })
        });
        threads.map(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|bug| panic::resume_unwind(bug))
        })
    });
    let samples_of = |subject: usize| {
        let mut samples = [const { Vec::new() }; TOGETHER.len()];
        for round in 0..rounds {
            let at = round * subjects.len() + subject;
            let [private, passed, ended] =
                [0, 1, 2].map(|load| spans.each_ref().map(|all| all[at][load]));
            let pairs = PAIRS / CHUNK * CHUNK;
            let each = private.map(|span| span.per(pairs));
            samples[0].push(each[0].zip(each[1]).map(|(a, b)| f64::midpoint(a, b)));
            let passed = Span::around(passed).per(CHUNKS * CHUNK);
            samples[1].push(passed.filter(|_| subjects[subject].passes()));
            let each = ended.map(|span| span.per(OF_PROCESS));
            let mean = each[0].zip(each[1]).map(|(a, b)| f64::midpoint(a, b));
            samples[2].push(mean.filter(|_| subjects[subject].passes()));
        }
        samples
    };
    (0..subjects.len()).map(samples_of).collect()
}

/// The state that the two measured threads share.
struct Shared {
    gate: Gate,
    ring: Ring,
    /// For each thread, the frames that the other thread has handed to it.
    handed: [Mutex<Vec<usize>>; 2],
}

impl Shared {
    /// The frames that were handed to thread `nth`.
    fn handed_to(&self, nth: usize) -> MutexGuard<'_, Vec<usize>> {
        self.handed[nth]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two processes, each with a thread on each CPU, end at the same time. The calling thread, which
/// has the number `nth`, frees all frames of the process `nth`. It allocates half of the frames of
/// each process. Returns the time of the frees.
fn end_a_process(subject: &dyn Subject, nth: usize, shared: &Shared) -> Span {
    let mut frames = vec![NO_BLOCK; OF_PROCESS];
    if subject.passes() {
        subject.take(Size::Page, &mut frames);
        let for_other = frames.split_off(OF_PROCESS / 2);
        *shared.handed_to(1 - nth) = for_other;
    }
    shared.gate.pass();
    frames.append(&mut shared.handed_to(nth));
    shared.gate.pass();
    Span::of(|| subject.give(Size::Page, &frames))
}

/// Does the work of thread `nth` (0 or 1) in all loads with two threads. Returns the times of all
/// loads for each subject (a measured allocator) in each round.
fn thread_of_two(
    subjects: &[Box<dyn Subject>],
    nth: usize,
    rounds: usize,
    shared: &Shared,
    progress: &Progress,
) -> Vec<[Span; TOGETHER.len()]> {
    let Shared { gate, ring, .. } = shared;
    let mut blocks = [NO_BLOCK; CHUNK];
    let mut spans = Vec::with_capacity(rounds * subjects.len());
    for _ in 0..rounds {
        for subject in subjects {
            let _entered = subject.enter(nth);
            subject.pairs(Size::Page, PAIRS / 10);
            gate.pass();
            let private = Span::of(|| {
                for _ in 0..PAIRS / CHUNK {
                    subject.take(Size::Page, &mut blocks);
                    subject.give(Size::Page, &blocks);
                }
            });
            gate.pass();
            let chunks = if subject.passes() { CHUNKS } else { 0 };
            let passed = Span::of(|| match nth {
                0 => (0..chunks).for_each(|_| {
                    subject.take(Size::Page, &mut blocks);
                    ring.send(&blocks);
                }),
                _ => (0..chunks).for_each(|_| {
                    ring.receive(&mut blocks);
                    subject.give(Size::Page, &blocks);
                }),
            });
            gate.pass();
            let ended = end_a_process(&**subject, nth, shared);
            gate.pass();
            spans.push([private, passed, ended]);
        }
        if nth == 0 {
            progress.step();
        }
    }
    spans
}

/// Passes chunks of blocks from thread 0 to thread 1, in order.
struct Ring {
    chunks: [[AtomicUsize; CHUNK]; CHUNKS_WAITING],
    sent: Padded,
    received: Padded,
}

#[repr(align(128))]
struct Padded(AtomicUsize);

impl Ring {
    fn new() -> Self {
        let padded = || Padded(AtomicUsize::new(0));
        Self {
            chunks: [const { [const { AtomicUsize::new(0) }; CHUNK] }; CHUNKS_WAITING],
            sent: padded(),
            received: padded(),
        }
    }

    fn send(&self, blocks: &[usize; CHUNK]) {
        let sent = self.sent.0.load(Relaxed);
        // Acquire pairs with the Release in `receive`: the receiver has read the old chunk, so this
        // thread can overwrite it.
        spin_until(|| sent - self.received.0.load(Acquire) < CHUNKS_WAITING);
        for (entry, &block) in self.chunks[sent % CHUNKS_WAITING].iter().zip(blocks) {
            entry.store(block, Relaxed);
        }
        // Release pairs with the Acquire in `receive`: the receiver sees the chunk.
        self.sent.0.store(sent + 1, Release);
    }

    fn receive(&self, blocks: &mut [usize; CHUNK]) {
        let received = self.received.0.load(Relaxed);
        // Acquire pairs with the Release in `send`: the receiver sees the chunk.
        spin_until(|| self.sent.0.load(Acquire) > received);
        for (entry, block) in self.chunks[received % CHUNKS_WAITING].iter().zip(blocks) {
            *block = entry.load(Relaxed);
        }
        // Release pairs with the Acquire in `send`: the sender sees that it can overwrite the
        // chunk.
        self.received.0.store(received + 1, Release);
    }
}

/// A reusable barrier of two threads, which counts their arrivals.
struct Gate(AtomicUsize);

impl Gate {
    fn pass(&self) {
        // Release and Acquire are the usual orderings of a barrier: after the barrier, each thread
        // sees what the other thread did before the barrier.
        let arrived = self.0.fetch_add(1, Release) + 1;
        let both = arrived.next_multiple_of(2);
        spin_until(|| self.0.load(Acquire) >= both);
    }
}

/// Waits until `is_done` returns true. Yields from time to time, because the other thread may need
/// the CPU on which this thread runs.
fn spin_until(is_done: impl Fn() -> bool) {
    let mut spins = 0_u32;
    while !is_done() {
        spins += 1;
        if spins.is_multiple_of(1 << 12) {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }
}

/// The moments at which a thread's work began and ended, and whether the thread lost its CPU in
/// between.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: Instant,
    end: Instant,
    disturbed: bool,
}

impl Span {
    fn of(work: impl FnOnce()) -> Self {
        let before = times_scheduled();
        let begin = Instant::now();
        work();
        let end = Instant::now();
        let disturbed = times_scheduled() != before;
        Self {
            begin,
            end,
            disturbed,
        }
    }

    /// Returns the span of time from the earlier beginning to the later end of two spans.
    fn around([one, other]: [Self; 2]) -> Self {
        Self {
            begin: one.begin.min(other.begin),
            end: one.end.max(other.end),
            disturbed: one.disturbed || other.disturbed,
        }
    }

    /// The nanoseconds per operation, if `operations` operations ran in this span of time.
    fn per(self, operations: usize) -> Sample {
        let ns = (self.end - self.begin).as_nanos() as f64;
        (!self.disturbed).then_some(ns / operations as f64)
    }
}

/// Whether this system says when a thread has lost its CPU. If not, no round is left out.
pub(super) fn sees_lost_cpus() -> bool {
    times_scheduled().is_some()
}

/// How many times the kernel has given a CPU to the calling thread (the third field of `schedstat`
/// in Linux). `None` if the system does not report this number.
fn times_scheduled() -> Option<u64> {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_disturbed() {
        if times_scheduled().is_some() {
            let slept = Span::of(|| thread::sleep(Duration::from_millis(1)));
            assert_eq!(slept.per(1), None);
        }
    }

    #[test]
    fn a_span_around_two_lasts_from_the_first_beginning_to_the_last_end() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let span = |begin, end| Span {
            begin: at(begin),
            end: at(end),
            disturbed: false,
        };
        let around = Span::around([span(0, 30), span(10, 100)]);
        assert_eq!(around.per(100), Some(1000.0));
        let lost = Span {
            disturbed: true,
            ..span(0, 1)
        };
        assert_eq!(Span::around([span(0, 30), lost]).per(1), None);
    }

    #[test]
    fn a_ring_passes_every_chunk_once_and_in_order() {
        let ring = Ring::new();
        let rounds = 1000;
        let received = thread::scope(|scope| {
            scope.spawn(|| (0..rounds).for_each(|round| ring.send(&[round; CHUNK])));
            let mut blocks = [0; CHUNK];
            let mut receive = |_| {
                ring.receive(&mut blocks);
                blocks
                    .iter()
                    .all(|&block| block == blocks[0])
                    .then_some(blocks[0])
            };
            (0..rounds).map(&mut receive).collect::<Vec<_>>()
        });
        assert!(received.into_iter().eq((0..rounds).map(Some)));
    }
}
