//! Watches a simulated machine for stalls: passes the machine's actions to the detectors, and keeps
//! the longest stretch that a CPU spent without a reschedule point.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::LockClass;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::{Access, Sim, Stretch, Wait};

use super::{hung_task, rcu, soft_lockup};

/// A stretch is the time from one reschedule point of a CPU to its next. Stretches that are shorter
/// than this are ignored.
const SHORTEST: Nanos = Nanos(10_000);

/// Observes a simulated machine for stalls, until [`Watch::finish`] ends the watch.
#[derive(Clone, Debug)]
pub struct Watch {
    log: Rc<RefCell<Log>>,
}

/// The reports of the detectors of stalls, such as soft lockups, and the longest stretch (the time
/// from one reschedule point of a CPU to the next).
#[derive(Clone, Debug, Default)]
pub struct CpuStalls {
    /// The longest stretch of any CPU from one reschedule point to the next.
    pub longest: Option<LongStretch>,
    /// The number of reported soft lockups.
    pub soft_lockups: usize,
    /// The number of reported RCU stalls.
    pub rcu_stalls: usize,
    /// The number of tasks that were reported as hung.
    pub hung_tasks: usize,
}

/// A stretch (the time from one reschedule point of a CPU to the next), and how much of it the CPU
/// spent waiting for spinlocks.
#[derive(Clone, Copy, Debug)]
pub struct LongStretch {
    /// The stretch.
    pub stretch: Stretch,
    /// The total of the finished waits for zone locks.
    pub zone_wait: Nanos,
    /// The total of the finished waits for the locks of page lists.
    pub pcp_wait: Nanos,
    /// The number of finished waits for zone locks.
    pub zone_waits: usize,
}

impl LongStretch {
    /// The length of the stretch, from one reschedule point of the CPU to the next.
    #[must_use]
    pub const fn length(&self) -> Nanos {
        length(&self.stretch)
    }
}

const fn length(stretch: &Stretch) -> Nanos {
    Nanos(stretch.until.0 - stretch.from.0)
}

#[derive(Debug, Default)]
struct Log {
    stalls: CpuStalls,
    /// For each CPU, its waits for spinlocks since its last reschedule point.
    waits: Vec<Vec<Wait>>,
}

impl Watch {
    /// Watches `sim` from now on. A workload has to report its reschedule points
    /// ([`Sim::resched_point`]).
    #[must_use]
    pub fn attach(sim: &Sim) -> Self {
        let cpus = sim.topology().cpus();
        let log = Rc::new(RefCell::new(Log {
            waits: vec![Vec::new(); cpus as usize],
            ..Log::default()
        }));
        let waits = Rc::clone(&log);
        sim.observe_waits(move |wait| waits.borrow_mut().waited(wait));
        let (stretches, hz) = (Rc::clone(&log), sim.hz());
        sim.observe_stretches(SHORTEST, move |stretch| {
            let mut log = stretches.borrow_mut();
            log.stretched(stretch);
            if length(stretch) < soft_lockup::PERIOD {
                return;
            }
            let phase = u64::from(stretch.cpu.0) * soft_lockup::PERIOD.0 / u64::from(cpus);
            let lockups = soft_lockup::reports(stretch.from, stretch.until, Nanos(phase));
            log.stalls.soft_lockups += lockups.len();
            if length(stretch).0 >= rcu::TIMEOUT_S * Nanos::SECOND.0 {
                // A CPU masks interrupts only while it holds a spinlock or waits for one. This
                // takes much less time than the timeout of the RCU stall detector. So the CPU takes
                // ticks although it does not reschedule.
                let stalls = rcu::reports(stretch.from, stretch.until, hz, true);
                log.stalls.rcu_stalls += stalls.len();
            }
        });
        Self { log }
    }

    /// Ends the watch after the run. If a CPU has not yet reached its next reschedule point, the
    /// time since its last one counts as a stretch that ends now.
    #[must_use]
    pub fn finish(self, sim: &Sim) -> CpuStalls {
        sim.end_stretches();
        self.log.borrow().stalls.clone()
    }
}

impl Log {
    fn waited(&mut self, wait: &Wait) {
        if wait.access == Access::Spin {
            self.waits[wait.cpu.index()].push(*wait);
        } else {
            let report = hung_task::report(wait.from, wait.until);
            self.stalls.hung_tasks += usize::from(report.is_some());
        }
    }

    fn stretched(&mut self, stretch: &Stretch) {
        let waits = &mut self.waits[stretch.cpu.index()];
        let longest = self.stalls.longest.map_or(Nanos(0), |stall| stall.length());
        if length(stretch) > longest {
            let of = |class: LockClass| {
                let inside = move |wait: &&Wait| wait.class == class && wait.from >= stretch.from;
                waits.iter().filter(inside)
            };
            // If the simulated CPU's clock was ahead of the clocks of other CPUs, it may have noted
            // a wait that ends after the run. Only the part of the wait inside the stretch counts.
            let span = |wait: &Wait| wait.until.min(stretch.until).0.saturating_sub(wait.from.0);
            let total = |class| Nanos(of(class).map(span).sum());
            self.stalls.longest = Some(LongStretch {
                stretch: *stretch,
                zone_wait: total(LockClass::Zone),
                pcp_wait: total(LockClass::Pcp),
                zone_waits: of(LockClass::Zone).count(),
            });
        }
        waits.clear();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::machine::Lock;
    use plimsoll_mm::site::{Site, Work};
    use plimsoll_mm::units::CpuId;
    use plimsoll_sim::SimOptions;
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;

    fn machine() -> Sim {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        Sim::new(&profile, SimOptions::default())
    }

    /// Runs a machine on which CPU 0 holds a zone lock for `seconds`, and CPU 1 waits for this
    /// lock. Returns the stalls that the watch has seen.
    fn held_for(seconds: u32) -> CpuStalls {
        let sim = machine();
        let watch = Watch::attach(&sim);
        let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
        for cpu in 0..2 {
            let lock = Rc::clone(&lock);
            sim.spawn(CpuId(cpu), move |sim| {
                sim.spend(Work::Think, 1000 * cpu);
                sim.resched_point();
                lock.with(sim, Site::Control, |()| {
                    (0..if cpu == 0 { seconds } else { 0 })
                        .for_each(|_| sim.spend(Work::Think, 1_000_000_000));
                });
                sim.resched_point();
            });
        }
        sim.run();
        watch.finish(&sim)
    }

    #[test]
    fn a_long_hold_makes_a_long_stretch_of_the_holder_and_of_the_waiter() {
        let stalls = held_for(3);
        let longest = stalls.longest.expect("two stretches");
        assert!((3_000_000_000..3_000_010_000).contains(&longest.length().0));
        assert_eq!((stalls.soft_lockups, stalls.rcu_stalls), (0, 0));
        let stalls = held_for(26);
        assert_eq!((stalls.soft_lockups, stalls.rcu_stalls), (2, 2));
    }

    #[test]
    fn each_report_of_a_long_stretch_counts() {
        // Neither CPU reschedules for 60 seconds. For each CPU, one detector reports a soft lockup
        // after 20 to 24 seconds, and again 24 seconds later. Another detector reports an RCU stall
        // after 21 seconds, and would report it again only after 84 seconds.
        let stalls = held_for(60);
        assert_eq!((stalls.soft_lockups, stalls.rcu_stalls), (4, 2));
    }

    /// The timers of the two CPUs fire two seconds apart. Both CPUs are stuck from the start. The
    /// timer of CPU 0 fires at 24 seconds. The timer of CPU 1 fires at 22 seconds, which is too
    /// early for a report, and again at 26 seconds.
    #[test]
    fn the_timers_of_two_cpus_fire_at_different_times() {
        assert_eq!(held_for(25).soft_lockups, 1);
        assert_eq!(held_for(27).soft_lockups, 2);
    }

    #[test]
    fn a_stretch_that_has_not_ended_counts_at_the_end_of_the_watch() {
        let sim = machine();
        let watch = Watch::attach(&sim);
        sim.spawn(CpuId(0), |sim| {
            (0..100).for_each(|_| sim.spend(Work::Think, 1_000_000_000));
            sim.resched_point();
        });
        sim.run_until(Nanos(30 * Nanos::SECOND.0));
        let stalls = watch.finish(&sim);
        let longest = stalls.longest.expect("it has begun");
        assert!(longest.length().0 >= 29 * Nanos::SECOND.0, "{longest:?}");
        assert_eq!((stalls.soft_lockups, stalls.rcu_stalls), (1, 1));
    }

    /// Runs a machine on which CPU 0 holds a sleeping lock for `seconds`, and CPU 1 waits for this
    /// lock from second 1 on. Afterwards CPU 1 waits for the lock for about a second more. Returns
    /// the stalls that the watch has seen.
    fn asleep_for(seconds: u64) -> CpuStalls {
        use plimsoll_mm::machine::RwLock;
        let sim = machine();
        let watch = Watch::attach(&sim);
        let lock = Rc::new(sim.rw_lock(LockClass::Mmap, CpuId(0), ()));
        for cpu in 0..2 {
            let lock = Rc::clone(&lock);
            sim.spawn(CpuId(cpu), move |sim| {
                // In the second iteration, CPU 0 holds the lock for 2 seconds. The wait of CPU 1 is
                // then too short for a report.
                for seconds in [seconds, 2] {
                    let apart = if cpu == 0 { 500 } else { 1000 };
                    sim.sleep(Nanos::from_ms(apart));
                    let span = Nanos(if cpu == 0 { seconds } else { 0 } * Nanos::SECOND.0);
                    lock.write(sim, Site::Mmap, |()| sim.sleep(span));
                }
            });
        }
        sim.run();
        watch.finish(&sim)
    }

    /// The detector of hung tasks looks at 120 and 240 seconds. Only the second look can report the
    /// task, which has slept since second 1.
    #[test]
    fn a_task_that_waits_for_a_sleeping_lock_is_reported_as_hung() {
        assert_eq!(asleep_for(239).hung_tasks, 0);
        assert_eq!(asleep_for(241).hung_tasks, 1);
    }

    #[test]
    fn a_wait_in_an_earlier_stretch_is_not_one_of_the_longest() {
        let sim = machine();
        let watch = Watch::attach(&sim);
        let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
        for cpu in 0..2 {
            let lock = Rc::clone(&lock);
            sim.spawn(CpuId(cpu), move |sim| {
                // Both CPUs reschedule so soon that their stretches are too short to be watched,
                // although one of the two CPUs waits for the lock.
                lock.with(sim, Site::Control, |()| sim.spend(Work::Think, 2000));
                sim.resched_point();
                sim.spend(Work::Think, 1_000_000 * (1 + cpu));
                sim.resched_point();
            });
        }
        sim.run();
        assert!(sim.stats().class(LockClass::Zone).contentions > 0);
        let longest = watch.finish(&sim).longest.expect("both work");
        assert_eq!((longest.zone_waits, longest.zone_wait), (0, Nanos(0)));
    }

    #[test]
    fn waits_for_page_lists_are_told_apart_from_those_for_the_zone() {
        use plimsoll_mm::machine::CpuLock;
        let sim = machine();
        let watch = Watch::attach(&sim);
        let lists = Rc::new(sim.cpu_lock(LockClass::Pcp, CpuId(0), ()));
        for cpu in 0..2 {
            let lists = Rc::clone(&lists);
            sim.spawn(CpuId(cpu), move |sim| {
                sim.spend(Work::Think, 1000 * cpu);
                let ns = if cpu == 0 { 1_000_000 } else { 500_000 };
                lists.with(sim, Site::Drain, |()| sim.spend(Work::Think, ns));
            });
        }
        sim.run();
        let longest = watch.finish(&sim).longest.expect("both work");
        assert_eq!(longest.stretch.cpu, CpuId(1));
        assert!(longest.pcp_wait.0 > 990_000, "{longest:?}");
        assert_eq!((longest.zone_waits, longest.zone_wait), (0, Nanos(0)));
    }

    /// The clock of a simulated CPU can be ahead of the end of the run. So a wait can end after the
    /// run, whereas the stretch in which the CPU waited ends with the run.
    #[test]
    fn the_part_of_a_wait_after_the_end_of_the_run_does_not_count() {
        let sim = machine();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let waits = Rc::clone(&seen);
        sim.observe_waits(move |wait| waits.borrow_mut().push(*wait));
        let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
        for cpu in 0..2 {
            let lock = Rc::clone(&lock);
            sim.spawn(CpuId(cpu), move |sim| {
                lock.with(sim, Site::Control, |()| sim.spend(Work::Think, 100_000));
            });
        }
        sim.run();
        let wait = seen.borrow()[0];
        let mut log = Log {
            waits: vec![Vec::new(); 2],
            ..Log::default()
        };
        log.waited(&wait);
        log.stretched(&Stretch {
            cpu: wait.cpu,
            from: Nanos(0),
            until: Nanos(wait.from.0 + 20_000),
        });
        let longest = log.stalls.longest.expect("one stretch");
        assert_eq!((longest.zone_waits, longest.zone_wait), (1, Nanos(20_000)));
    }

    #[test]
    fn a_stretch_ends_when_a_task_sleeps_and_an_idle_cpu_has_none() {
        let sim = machine();
        let watch = Watch::attach(&sim);
        sim.spawn(CpuId(0), |sim| {
            for _ in 0..3 {
                sim.spend(Work::Think, 1_000_000);
                sim.sleep(Nanos::SECOND);
            }
        });
        sim.run();
        let longest = watch.finish(&sim).longest.expect("it works three times");
        assert!((1_000_000..1_010_000).contains(&longest.length().0));
    }

    #[test]
    fn the_waits_of_the_longest_stretch_are_told() {
        let sim = machine();
        let watch = Watch::attach(&sim);
        let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
        for cpu in 0..2 {
            let lock = Rc::clone(&lock);
            sim.spawn(CpuId(cpu), move |sim| {
                let hold = |ns| lock.with(sim, Site::Control, |()| sim.spend(Work::Think, ns));
                match cpu {
                    0 => hold(1_000_000),
                    _ => (0..5).for_each(|_| hold(300_000)),
                }
            });
        }
        sim.run();
        let longest = watch.finish(&sim).longest.expect("both work");
        assert_eq!(longest.stretch.cpu, CpuId(1));
        assert_eq!(longest.zone_waits, 1);
        assert!(longest.zone_wait.0 > 990_000 && longest.pcp_wait == Nanos(0));
    }
}
