//! Tests timers that fire a jiffy late because their CPU handles a tick before the timekeeping CPU
//! has counted the jiffy.

use crate::common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_mm::machine::{Due, Job, Machine, WhenIdle};
use plimsoll_mm::units::{CpuId, Hz, Jiffies};
use plimsoll_mm::wheel::Wheel;
use plimsoll_sim::{Sim, SimOptions};

const CPUS: u32 = 64;
const SECONDS: u64 = 60;

/// A firing of a timer: the timer's CPU, the number of jiffies by which the firing was late, and
/// the jiffy for which the wheel had planned it.
type Firing = (CpuId, u64, Jiffies);

/// Returns all firings on a machine on which the timer of each CPU fires about once a second.
fn firings(late_ticks_percent: u32) -> Vec<Firing> {
    let profile = common::flat(CPUS);
    let hz: Hz = profile.hz;
    let options = SimOptions {
        seed: 3,
        late_ticks_percent,
        ..SimOptions::default()
    };
    let sim = Sim::new(&profile, options);
    let (seen, due) = (
        Rc::new(RefCell::new(Vec::new())),
        Rc::new(RefCell::new(BTreeMap::new())),
    );
    let (log, asked) = (Rc::clone(&seen), Rc::clone(&due));
    let arm = move |sim: &Sim, cpu: CpuId, ahead: Jiffies| {
        let now = hz.jiffies(sim.now());
        let at = Wheel::new(hz).fires_at(now, Jiffies(now.0 + ahead.0));
        asked.borrow_mut().insert(cpu, at);
        sim.defer(cpu, Job::VmstatUpdate, Due::Wheel(ahead), WhenIdle::Wake);
    };
    let again = arm.clone();
    sim.on_job(move |sim, _| {
        let cpu = sim.this_cpu();
        let at = due.borrow()[&cpu];
        log.borrow_mut()
            .push((cpu, hz.jiffies(sim.now()).0 - at.0, at));
        again(sim, cpu, Jiffies(u64::from(hz.get())));
    });
    for cpu in sim.topology().ids() {
        arm(&sim, cpu, Jiffies(u64::from(cpu.0 * 20)));
    }
    sim.run_until(plimsoll_mm::units::Nanos(SECONDS * 1_000_000_000));
    drop(sim);
    Rc::try_unwrap(seen).expect("the run is over").into_inner()
}

#[test]
fn by_default_every_timer_fires_on_its_jiffy() {
    let firings = firings(0);
    assert!(firings.len() > 3000);
    assert!(firings.iter().all(|&(_, late, _)| late == 0));
}

#[test]
fn a_share_of_firings_comes_a_jiffy_late_and_never_on_the_cpu_that_keeps_time() {
    let firings = firings(20);
    let late = firings.iter().filter(|&&(_, late, _)| late == 1).count();
    let share = 100.0 * late as f64 / firings.len() as f64;
    assert!((15.0..25.0).contains(&share), "{share} %");
    assert!(firings.iter().all(|&(_, late, _)| late <= 1));
    assert!(firings.iter().all(|&(cpu, late, _)| cpu.0 > 0 || late == 0));
}

#[test]
fn which_cpus_are_late_is_a_matter_of_the_tick() {
    let mut groups: BTreeMap<Jiffies, (usize, usize)> = BTreeMap::new();
    for (_, late, at) in firings(20) {
        let (all, lates) = groups.entry(at).or_default();
        *all += 1;
        *lates += usize::from(late > 0);
    }
    let large: Vec<&(usize, usize)> = groups.values().filter(|(all, _)| *all >= 3).collect();
    let on_time = large.iter().filter(|(_, late)| *late == 0).count();
    // A group is all timers for which the wheel had planned the same jiffy. Suppose that each CPU
    // were late independently of the others, with a probability of 20 %. Then at most about half of
    // the groups of three or more timers would have no late timer. In the model, more than 55 % of
    // these groups must have no late timer.
    assert!(
        on_time * 100 > large.len() * 55,
        "{on_time} of {}",
        large.len()
    );
    assert!(large.iter().any(|(all, late)| late * 2 > *all));
}

#[test]
#[should_panic(expected = "at most 50 %")]
fn more_than_half_cannot_be_late() {
    firings(51);
}
