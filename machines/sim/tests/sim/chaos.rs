//! Tests locks, words, jobs and hotplug at the same time, with injected faults: no update is lost,
//! and the same seed gives the same run.

use crate::common;

use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{CpuLock, Due, Job, JobState, Lock, Machine, WhenIdle, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Jiffies, Nanos};
use plimsoll_sim::{Faults, LockModel, Sim, SimCpuLock, SimLock, SimOptions, SimWord, Stats};
use rand::Rng;

const CPUS: u32 = 24;
const ROUNDS: u32 = 150;

/// What all tasks share: a spinlock, a mutex and per-CPU locks, each of which guards a count, and
/// the total that the counts must add up to.
struct Shared {
    zone: SimLock<u64>,
    mutex: SimLock<u64>,
    lists: Vec<SimCpuLock<u64>>,
    total: SimWord,
}

impl Shared {
    fn new(sim: &Sim) -> Self {
        let list = |cpu| sim.cpu_lock(LockClass::Pcp, cpu, 0);
        Self {
            zone: sim.lock(LockClass::Zone, CpuId(0), 0),
            mutex: sim.lock(LockClass::DrainAll, CpuId(3), 0),
            lists: sim.topology().ids().map(list).collect(),
            total: sim.word(0),
        }
    }

    /// Returns the sum of the counts that the locks guard, one count for each lock.
    fn sum(&self, sim: &Sim) -> u64 {
        let lists = self
            .lists
            .iter()
            .map(|list| list.with(sim, Site::Control, |count| *count));
        lists.sum::<u64>()
            + self.zone.with(sim, Site::Control, |count| *count)
            + self.mutex.with(sim, Site::Control, |count| *count)
    }

    /// Adds 1 to the count behind a random lock, and to `total`, the expected sum of all counts.
    fn add(&self, sim: &Sim) {
        let hold = sim.rng().next_u32() % 500;
        match sim.rng().next_u32() % 8 {
            0 => self.mutex.with(sim, Site::Drain, |count| {
                sim.spend(Work::Think, 20 * hold);
                self.total.add(sim, 0, Ordering::AcqRel);
                *count += 1;
            }),
            1 | 2 => self.zone.with(sim, Site::Refill, |count| {
                sim.spend(Work::Think, hold);
                self.total.add(sim, 0, Ordering::AcqRel);
                *count += 1;
            }),
            3 => {
                let list = &self.lists[(sim.rng().next_u32() % CPUS) as usize];
                list.with(sim, Site::Drain, |count| *count += 1);
            }
            _ => {
                let local = sim.pinned(|| {
                    let list = &self.lists[sim.this_cpu().index()];
                    list.try_local(sim, Site::PcpFree, |count| {
                        sim.spend(Work::PcpFree, 1);
                        *count += 1;
                        if *count > 10 {
                            let spilled = std::mem::take(count);
                            self.zone.with(sim, Site::Spill, |zone| *zone += spilled);
                        }
                    })
                });
                if local.is_none() {
                    self.zone.with(sim, Site::FreeDirect, |count| *count += 1);
                }
            }
        }
        self.total.add(sim, 1, Ordering::AcqRel);
    }
}

fn chaos(options: SimOptions) -> Stats {
    let sim = Sim::new(&common::tall(CPUS), options);
    let shared = Rc::new(Shared::new(&sim));
    let jobs = Rc::clone(&shared);
    sim.on_job(move |sim, job| {
        let cpu = sim.this_cpu();
        assert_ne!(sim.job_state(cpu, job), JobState::Dormant);
        jobs.add(sim);
        if sim.live_tasks() == 0 {
            return;
        }
        let ahead = Jiffies(1 + sim.rng().next_u64() % 3);
        sim.defer(cpu, job, Due::Wheel(ahead), WhenIdle::Defer);
    });
    let idle = Rc::clone(&shared);
    sim.on_idle(move |sim| idle.add(sim));
    for task in 0..2 * CPUS {
        let shared = Rc::clone(&shared);
        sim.spawn(CpuId(task % CPUS), move |sim| {
            for _ in 0..ROUNDS {
                sim.spend(Work::Think, sim.rng().next_u32() % 40_000);
                shared.add(sim);
                let other = CpuId(sim.rng().next_u32() % CPUS);
                match sim.rng().next_u32() % 16 {
                    0 => sim.sleep(Nanos(u64::from(sim.rng().next_u32() % 100_000))),
                    1 => sim.migrate(other),
                    2 => sim.defer(other, Job::VmstatUpdate, Due::Now, WhenIdle::Wake),
                    3 => sim.defer(other, Job::Shepherd, Due::Wheel(Jiffies(1)), WhenIdle::Wake),
                    4 => sim.cancel(other, Job::Shepherd),
                    5 if other.0 > 0 => sim.set_online(other, !sim.is_online(other)),
                    _ => {}
                }
            }
        });
    }
    sim.run();
    // Let kernel work in progress finish. All other jobs are due later, or do not wake an idle CPU
    // and so never run.
    sim.run_until(Nanos(sim.now().0 + 100_000_000));
    let sum = shared.sum(&sim);
    assert_eq!(
        Ok(sum),
        u64::try_from(shared.total.load(&sim, Ordering::Acquire))
    );
    assert!(sum >= u64::from(2 * CPUS * ROUNDS));
    sim.stats()
}

fn options(seed: u64) -> SimOptions {
    let faults = Faults {
        stall_every: Nanos::from_ms(2),
        stall_for: Nanos(300_000),
        migrate_every: Nanos::from_ms(1),
        timer_late_jiffies: 2,
    };
    SimOptions {
        seed,
        faults,
        ..SimOptions::default()
    }
}

#[test]
fn nothing_is_lost_and_a_seed_is_a_run() {
    for seed in 0..20 {
        let lock_model = if seed % 2 == 0 {
            LockModel::RunAhead
        } else {
            LockModel::ReleaseEvent
        };
        let options = SimOptions {
            lock_model,
            strict: seed % 3 == 0,
            ..options(seed)
        };
        let (once, again) = (chaos(options.clone()), chaos(options));
        assert_eq!(once, again, "seed {seed}");
        assert!(once.migrations > 0 && once.stalls > 0 && once.jobs_run[0] > 0);
    }
}

/// In strict mode the owner of a per-CPU lock waits for CPUs with earlier clocks. So no CPU sees an
/// effect from its own future. For this reason all lock models give equal results in strict mode,
/// even in this test, which injects faults.
#[test]
fn lock_models_agree_on_everything_in_strict_mode() {
    for seed in 0..10 {
        let strict = SimOptions {
            strict: true,
            ..options(seed)
        };
        let event = SimOptions {
            lock_model: LockModel::ReleaseEvent,
            ..strict.clone()
        };
        let (ahead, event) = (chaos(strict), chaos(event));
        assert_eq!(ahead.causality_slips, 0);
        assert_eq!(
            ahead,
            Stats {
                resumptions: ahead.resumptions,
                ..event
            },
            "seed {seed}"
        );
    }
}
