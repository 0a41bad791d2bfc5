//! The KUnit tests of the `percpu_counter_tree` that was proposed for Linux, run for every kind of
//! counter.
//!
//! Every addition is applied to a counter and to a plain integer. Afterwards every sum and
//! comparison of the counter must agree with the integer. Each test has two such pairs of a counter
//! and an integer. The multi-threaded tests are scaled down, because the published tests run for
//! minutes.

use std::cmp::Ordering;
use std::sync::Barrier;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::counter::{AnyCounters, Batch, Counters, Counting, Plan};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

const CPUS: u32 = 8;
const STEPS: u32 = 10_000;
const VALUES: [i64; 19] = [
    0, 1, -1, 2, -2, 31, -31, 32, -32, 33, -33, 100, -100, 1000, -1000, 65_536, -65_536, 1_000_003,
    -1_000_003,
];

/// Two counters of the same kind, each in a separate group of counters, and their expected values.
struct Pair {
    host: Host,
    counting: Counting,
    plan: Plan<Host>,
    counters: [AnyCounters<Host>; 2],
    expected: [AtomicI64; 2],
}

impl Pair {
    fn new(counting: Counting, batch: u32) -> Self {
        let host = Host::with_topology(Topology::flat(CPUS));
        let _entered = host.enter(CpuId(0));
        let batch = Batch::new(batch).expect("a power of two");
        let plan = Plan::new(&host, counting, 1, batch).expect("a few CPUs have a plan");
        let counters = [(); 2].map(|()| plan.init_many(&host).expect("there is memory"));
        Self {
            host,
            counting,
            plan,
            counters,
            expected: [0, 0].map(AtomicI64::new),
        }
    }

    fn add(&self, which: usize, cpu: u32, delta: i64) {
        let _entered = self.host.enter(CpuId(cpu));
        self.counters[which].add_growing(&self.host, 0, delta);
        self.expected[which].fetch_add(delta, Relaxed);
    }

    /// Checks that every sum and comparison of each counter agrees with the expected sum, which is
    /// a plain integer.
    fn check(&self) {
        let (host, counting) = (&self.host, self.counting);
        let _entered = host.enter(CpuId(0));
        for (counter, expected) in self.counters.iter().zip(&self.expected) {
            let expected = expected.load(Relaxed);
            assert_eq!(counter.precise_sum(host, 0), expected, "{counting:?}");
            let compared = counter.precise_compare_value(host, 0, expected);
            assert_eq!(compared, Ordering::Equal, "{counting:?} precisely");
            let compared = counter.approximate_compare_value(host, 0, expected);
            assert_eq!(compared, Ordering::Equal, "{counting:?} approximately");
            let accuracy = counter.accuracy(host, 0);
            let approximate = counter.approximate_sum(host, 0);
            assert!(
                accuracy.allows(approximate, expected),
                "{counting:?}: {approximate} is not within {accuracy:?} of {expected}"
            );
            let range = counter.min_max(host, 0);
            assert!(range.contains(expected), "{counting:?}: {range:?}");
        }
    }

    /// Checks each of the two counters against the integer that has the same additions, and checks
    /// that the two counters compare as equal.
    fn check_equal(&self) {
        self.check();
        let (host, counting) = (&self.host, self.counting);
        let _entered = host.enter(CpuId(0));
        let [one, other] = &self.counters;
        let compared = one.approximate_compare(host, 0, other, 0);
        assert_eq!(compared, Ordering::Equal, "{counting:?} approximately");
        let compared = one.precise_compare(host, 0, other, 0);
        assert_eq!(compared, Ordering::Equal, "{counting:?} precisely");
    }

    fn destroy(self) {
        let _entered = self.host.enter(CpuId(0));
        for counters in self.counters {
            counters.destroy_many(&self.host);
        }
        assert_eq!(
            self.plan.area().groups(&self.host),
            0,
            "all places are back"
        );
    }
}

/// A random number generator (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(limit)).expect("below a u32")
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Up,
    Down,
    Random,
}

impl Step {
    fn roll(self, dice: &mut Dice) -> i64 {
        match self {
            Self::Up => 1,
            Self::Down => -1,
            Self::Random => i64::from(dice.below(50_000)),
        }
    }
}

/// For each of the two counters, the CPU that adds to it: the first CPU or a random CPU.
#[derive(Clone, Copy, Debug)]
enum Where {
    FirstFirst,
    FirstRandom,
    RandomRandom,
}

impl Where {
    fn roll(self, dice: &mut Dice) -> [u32; 2] {
        match self {
            Self::FirstFirst => [0, 0],
            Self::FirstRandom => [0, dice.below(CPUS)],
            Self::RandomRandom => [dice.below(CPUS), dice.below(CPUS)],
        }
    }
}

#[test]
fn one_thread_adds_step_by_step() {
    let mut dice = Dice(1);
    for counting in Counting::ALL {
        for place in [Where::FirstFirst, Where::FirstRandom, Where::RandomRandom] {
            for step in [Step::Up, Step::Down, Step::Random] {
                let pair = Pair::new(counting, 32);
                for _ in 0..STEPS {
                    let delta = step.roll(&mut dice);
                    for (which, cpu) in (0..).zip(place.roll(&mut dice)) {
                        pair.add(which, cpu, delta);
                    }
                    pair.check_equal();
                }
                pair.destroy();
            }
        }
    }
}

/// A function that returns the CPU on which thread `nth` adds.
type Placement = fn(u32, &mut Dice) -> u32;

const PLACEMENTS: [Placement; 4] = [
    |nth, _| nth % CPUS,
    |nth, _| nth * 2 % CPUS,
    |_, _| 0,
    |_, dice| dice.below(CPUS),
];

/// Runs threads that start at the same time. Each adds `delta` to both counters, `count` times.
fn add_on_threads(pair: &Pair, threads: u32, count: u32, delta: i64, placement: Placement) {
    let barrier = Barrier::new(threads as usize);
    thread::scope(|scope| {
        for nth in 0..threads {
            let barrier = &barrier;
            scope.spawn(move || {
                let cpu = placement(nth, &mut Dice(u64::from(nth) + 1));
                barrier.wait();
                for _ in 0..count {
                    pair.add(0, cpu, delta);
                    pair.add(1, cpu, delta);
                }
            });
        }
    });
}

#[test]
fn many_threads_add_at_once() {
    for counting in Counting::ALL {
        for batch in (2..=9).map(|log| 1 << log) {
            let pair = Pair::new(counting, batch);
            for count in [1, 16, 128] {
                for delta in [1, 10, 10_000, -3] {
                    for placement in PLACEMENTS {
                        add_on_threads(&pair, 4, count, delta, placement);
                        pair.check_equal();
                    }
                }
            }
            pair.destroy();
        }
    }
}

#[test]
fn many_threads_walk_at_random() {
    let mut dice = Dice(3);
    for counting in Counting::ALL {
        for _ in 0..10 {
            let pair = Pair::new(counting, 32);
            let (step, count) = (dice.below(512), dice.below(128));
            thread::scope(|scope| {
                for nth in 0..64 {
                    let mut dice = Dice(u64::from(nth * 7 + step + 1));
                    let pair = &pair;
                    scope.spawn(move || {
                        for _ in 0..count {
                            let delta = i64::from(dice.below(512)) - 256;
                            pair.add(usize::from(nth % 2 == 1), dice.below(CPUS), delta);
                        }
                    });
                }
            });
            pair.check();
            pair.destroy();
        }
    }
}

#[test]
fn a_counter_is_set_to_anything_and_adds_from_there() {
    for counting in Counting::ALL {
        for cpu in [0, 5] {
            let pair = Pair::new(counting, 4);
            for value in VALUES {
                for which in [0, 1] {
                    let _entered = pair.host.enter(CpuId(cpu));
                    pair.counters[which].set(&pair.host, 0, value);
                    pair.expected[which].store(value, Relaxed);
                }
                pair.check_equal();
                for delta in [value, -2 * value] {
                    pair.add(0, cpu, delta);
                    pair.add(1, CPUS - 1 - cpu, delta);
                    pair.check_equal();
                }
            }
            pair.destroy();
        }
    }
}

#[test]
fn a_group_starts_at_zero_however_often_its_memory_was_used() {
    for counting in Counting::ALL {
        let host = Host::with_topology(Topology::flat(CPUS));
        let _entered = host.enter(CpuId(0));
        let plan = Plan::new(&host, counting, 1, Batch::RSS).expect("a few CPUs have a plan");
        for _ in 0..200 {
            let counters = plan.init_many(&host).expect("there is memory");
            assert_eq!(counters.precise_sum(&host, 0), 0, "{counting:?}");
            assert_eq!(counters.approximate_sum(&host, 0), 0, "{counting:?}");
            for cpu in 0..CPUS {
                let _entered = host.enter(CpuId(cpu));
                counters.add_growing(&host, 0, 100 + i64::from(cpu));
            }
            counters.destroy_many(&host);
        }
    }
}
