//! CPUs that go offline and come online again. When a CPU goes offline, its pages return to the
//! zones, and the amounts that only this CPU has counted are added to the shared counters. The
//! vmstat work of a CPU does not run while the CPU is offline.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::{Design, SCHEDULES, SHEPHERDS};
use plimsoll_mm::machine::{Job, JobState, Machine};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::{Direction, NodeItem, ZoneItem};
use plimsoll_sim::{Sim, SimOptions};
use support::small::{any, profile};
use support::{Dice, Small, check_shepherd, seeds};

/// Takes `cpu` offline in the same order of steps as Linux. Must be called on another CPU.
fn take_away(sim: &Sim, mm: &Manager<Sim>, cpu: CpuId) {
    mm.cpu_going(sim, cpu);
    sim.set_online(cpu, false);
    sim.sleep(Nanos::from_ms(2));
    mm.cpu_dead(sim, cpu);
}

fn give_back(sim: &Sim, mm: &Manager<Sim>, cpu: CpuId) {
    sim.set_online(cpu, true);
    mm.cpu_online(sim, cpu);
}

fn run_for(small: &Small, seconds: u64) {
    let now = small.sim.now().0;
    small.sim.run_until(Nanos(now + seconds * Nanos::SECOND.0));
}

/// Leaves every CPU with pages on its lists, and with differentials: amounts that are not yet added
/// to the shared counters.
fn leave_something(small: &Small) {
    for cpu in small.sim.topology().ids() {
        small.on(cpu.0, |sim, mm| {
            let pages = mm.pages();
            let held: Vec<Pfn> = (0..300)
                .map(|_| {
                    pages
                        .alloc(sim, any(Order::ZERO))
                        .expect("there is a block")
                })
                .collect();
            pages.free_pages(sim, &held).expect("all were handed out");
            pages.count(sim, Pfn(0), ZoneItem::Anon, 2);
            mm.step_node(sim, NodeItem::AnonMapped, Direction::Up);
        });
    }
}

#[test]
fn lists_and_differentials_of_a_dead_cpu_come_back() {
    let small = Small::flat(4, 1 << 18, Design::OURS);
    leave_something(&small);
    for gone in [3, 1, 2].map(CpuId) {
        small.on(0, move |sim, mm| {
            let pages = mm.pages();
            let had = pages.listed(sim, gone);
            assert!(had > Pages::ZERO && mm.is_dirty(sim, gone));
            let free = pages.view(sim)[0].free;
            take_away(sim, mm, gone);
            assert_eq!(pages.view(sim)[0].free, free + had);
            assert_eq!(pages.listed(sim, gone), Pages::ZERO);
            assert!(!mm.is_dirty(sim, gone), "nothing is left to fold");
            assert_eq!(pages.counted(sim, ZoneItem::Anon), 8);
            assert_eq!(mm.counted_on_nodes(sim, NodeItem::AnonMapped), 4);
        });
    }
    let view = small.zone();
    assert_eq!(view.counted_free, u64::from(view.free.0));
}

#[test]
fn sizes_and_ranks_follow_the_number_of_cpus() {
    let small = Small::flat(4, 1 << 18, Design::OURS);
    let of_four = small.zone().sizes;
    small.on(0, |sim, mm| {
        take_away(sim, mm, CpuId(1));
        take_away(sim, mm, CpuId(2));
        let rank = |cpu| {
            mm.pages()
                .cpus()
                .rank(sim, CpuId(cpu))
                .map(|rank| (rank.rank, rank.of))
        };
        assert_eq!(
            [0, 1, 2, 3].map(rank),
            [Some((0, 2)), None, None, Some((1, 2))]
        );
        assert_eq!(mm.pages().cpus().online(sim), 2);
    });
    let of_two = small.zone().sizes;
    assert_eq!(of_two.high_max.0, 2 * of_four.high_max.0);
    assert_eq!(of_two.batch, of_four.batch);
    small.on(0, |sim, mm| {
        give_back(sim, mm, CpuId(1));
        give_back(sim, mm, CpuId(2));
    });
    assert_eq!(small.zone().sizes, of_four);
}

#[test]
fn the_work_of_an_offline_cpu_never_fires_and_comes_back_with_it() {
    for (schedule, shepherd) in SCHEDULES.into_iter().zip(SHEPHERDS.into_iter().cycle()) {
        let small = Small::flat(
            3,
            1 << 16,
            Design {
                schedule,
                shepherd,
                ..Design::OURS
            },
        );
        small.mm.start(&small.sim);
        small
            .sim
            .topology()
            .ids()
            .for_each(|cpu| small.keep_busy(cpu));
        run_for(&small, 4);
        let gone = CpuId(2);
        assert!(!small.starts_of(gone).is_empty());
        small.on(1, move |sim, mm| take_away(sim, mm, gone));
        let before = small.starts_of(gone);
        run_for(&small, 6);
        assert_eq!(small.starts_of(gone), before, "{schedule:?}");
        assert_eq!(
            small.sim.job_state(gone, Job::VmstatUpdate),
            JobState::Dormant
        );
        small.on(1, move |sim, mm| give_back(sim, mm, gone));
        small.keep_busy(gone);
        run_for(&small, 6);
        assert!(
            small.starts_of(gone).len() >= before.len() + 2,
            "{schedule:?}"
        );
    }
}

#[test]
fn the_shepherd_moves_away_from_a_dying_cpu_and_keeps_going() {
    let small = Small::flat(3, 1 << 16, Design::OURS);
    small.mm.start(&small.sim);
    small
        .sim
        .topology()
        .ids()
        .for_each(|cpu| small.keep_busy(cpu));
    let shepherds = |small: &Small| {
        let starts = small.starts.borrow();
        let rounds = starts.iter().filter(|start| start.0 == Job::Shepherd);
        rounds.map(|start| start.1).collect::<Vec<_>>()
    };
    run_for(&small, 3);
    assert!(shepherds(&small).iter().all(|&cpu| cpu == CpuId(0)));
    for (gone, by) in [(0, 1), (1, 2)] {
        let before = shepherds(&small).len();
        small.on(by, move |sim, mm| take_away(sim, mm, CpuId(gone)));
        check_shepherd::check(&small.sim);
        run_for(&small, 6);
        let rounds = &shepherds(&small)[before..];
        assert!(
            (5..=7).contains(&rounds.len()),
            "one round a second: {rounds:?}"
        );
        assert!(
            rounds.iter().all(|&cpu| small.sim.is_online(cpu)),
            "{rounds:?}"
        );
    }
}

/// The CPU that runs the shepherd goes offline at a random time near the shepherd's next round. The
/// shepherd is the job that looks for CPUs with vmstat work to do. Afterwards exactly one CPU has
/// this job, and this CPU is online.
#[test]
fn there_is_one_shepherd_whenever_its_cpu_goes() {
    seeds::each("there_is_one_shepherd_whenever_its_cpu_goes", 400, |seed| {
        let dice = &mut Dice::new(seed, 0);
        let mut config = Config::new(Layout::arena(Pages(1 << 14)));
        config.design.shepherd = *dice.pick(&SHEPHERDS);
        let options = SimOptions {
            seed,
            strict: dice.chance(70),
            // The delays put much time between steps that other CPUs can observe, as if threads
            // were preempted between these steps.
            shake_ns: *dice.pick(&[300, 3000, 30_000]),
            ..SimOptions::default()
        };
        let cpus = dice.between(2, 12);
        let small = Small::with_options(&profile(Topology::flat(cpus), 1000), config, options);
        small.mm.start(&small.sim);
        small
            .sim
            .topology()
            .ids()
            .for_each(|cpu| small.keep_busy(cpu));
        // The shepherd looks at all CPUs once per second, but the timer wheel rounds this second to
        // 960 or 1024 ms. The CPU goes offline about when the shepherd's next round starts.
        run_for(&small, 2);
        let round = small
            .starts
            .borrow()
            .iter()
            .rfind(|start| start.0 == Job::Shepherd)
            .copied();
        let (_, home, at) = round.expect("there were rounds");
        let mm = Rc::clone(&small.mm);
        let next = Nanos(
            at.0 + 1_000_000 * dice.pick(&[960, 1024]) - 1_500_000
                + u64::from(dice.below(2_000_000)),
        );
        let by = CpuId((home.0 + 1 + dice.below(cpus - 1)) % cpus);
        small.sim.spawn(by, move |sim| {
            sim.sleep_until(next);
            take_away(sim, &mm, home);
        });
        small.sim.run();
        run_for(&small, 3);
        check_shepherd::check(&small.sim);
    });
}
