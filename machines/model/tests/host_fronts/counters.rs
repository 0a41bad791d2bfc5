//! Tests of counters to which threads add by restartable sequences (`homes.rs` of `host`). A CPU of
//! the `Machine` has one word of a counter. Its *home* is the real CPU whose threads may add to
//! this word. Each function is one run; a checker calls it once for each interleaving.
//!
//! Every addition adds 1 to the word, or is refused and goes elsewhere. So the results of the
//! additions to the word must be the numbers from 1 on, each exactly once. If an addition is lost,
//! or is done twice, two additions have the same result, or a number is missing. A correct sum is
//! not enough: when a result passes a multiple of the batch, the counter passes an amount on to the
//! shared total. So each result must occur once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::units::CpuId;

use crate::checker::thread::{self, JoinHandle};
use crate::homes::Homes;
use crate::rseq;
use crate::sync::AtomicI64;

/// The counter of one CPU of the `Machine`, to which threads on several real CPUs add.
struct Counter {
    homes: Homes,
    word: AtomicI64,
}

/// The results of a thread's additions; `None` for an addition that was refused.
type Results = Vec<Option<i64>>;

impl Counter {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            homes: Homes::new(1),
            word: AtomicI64::new(0),
        })
    }

    /// Runs on the real CPU `cpu`, and adds 1 `times` times.
    fn add_on(&self, cpu: usize, times: u32) -> Results {
        rseq::run_on(cpu);
        let home = self.homes.home_of(CpuId(0)).expect("the CPU has a home");
        let add = |_| {
            let again = || self.homes.claim(home).then(|| home.add(&self.word, 1))?;
            home.add(&self.word, 1).or_else(again)
        };
        (0..times).map(add).collect()
    }

    /// Asserts that each of the additions has been done once, or was refused. Returns the number of
    /// additions to the word.
    fn is_exact(&self, results: impl IntoIterator<Item = Results>) -> i64 {
        let mut done: Vec<i64> = results.into_iter().flatten().flatten().collect();
        done.sort_unstable();
        let sum = self.word.load(Relaxed);
        let all: Vec<i64> = (1..=sum).collect();
        assert_eq!(done, all, "each addition has a result of its own");
        sum
    }
}

fn spawn(counter: &Arc<Counter>, cpu: usize, times: u32) -> JoinHandle<Results> {
    let counter = Arc::clone(counter);
    thread::spawn(move || counter.add_on(cpu, times))
}

fn join(thread: JoinHandle<Results>) -> Results {
    thread
        .join()
        .expect("a body that panics ends the whole model")
}

/// Asserts that no addition is lost or done twice if two threads on one CPU add to a counter, and
/// each stops the restartable sequences of the other. After the first addition, no addition is
/// refused.
pub(crate) fn two_threads_add_on_a_cpu() {
    let counter = Counter::new();
    let first = counter.add_on(0, 1);
    let other = spawn(&counter, 0, 1);
    let results = counter.add_on(0, 1);
    let sum = counter.is_exact([first, results, join(other)]);
    assert_eq!(sum, 3, "threads at home are not refused");
}

/// The home of a counter is the real CPU whose threads may add to it. The home changes while a
/// thread on the old home adds. Asserts that no addition is lost or done twice.
pub(crate) fn a_home_moves() {
    let counter = Counter::new();
    let first = counter.add_on(0, 1);
    let other = spawn(&counter, 1, 2);
    let results = counter.add_on(0, 1);
    counter.is_exact([first, results, join(other)]);
}

/// Two threads on different CPUs both want to make their CPU the counter's home (the CPU whose
/// threads may add). Asserts that no addition is lost or done twice.
pub(crate) fn two_cpus_want_the_home() {
    let counter = Counter::new();
    let other = spawn(&counter, 1, 2);
    let results = counter.add_on(0, 2);
    counter.is_exact([results, join(other)]);
}

/// Two threads of one CPU and a thread of another CPU add to a counter, while the counter's home
/// (the CPU whose threads may add) changes several times. Asserts that no addition is lost or done
/// twice.
pub(crate) fn a_home_moves_among_three() {
    let counter = Counter::new();
    let others = [spawn(&counter, 0, 2), spawn(&counter, 1, 2)];
    let results = counter.add_on(0, 2);
    counter.is_exact(others.map(join).into_iter().chain([results]));
}
