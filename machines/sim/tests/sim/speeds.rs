//! Tests big and little cores: the time of work that involves no other CPU depends on the CPU's
//! speed.

use crate::common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{Due, Job, Lock, Machine, WhenIdle, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Jiffies, Nanos};
use plimsoll_sim::profile::{Card, CostKey, Profile, ProfileText};
use plimsoll_sim::{LockModel, Sim, SimOptions};

const LITTLE: CpuId = CpuId(0);
const ALIKE: CpuId = CpuId(1);
const BIG: CpuId = CpuId(2);

/// Returns a profile of three CPUs. CPU 1 has the speed to which the prices apply, CPU 0 a quarter
/// of that speed, and CPU 2 twice that speed.
fn uneven() -> Profile {
    Profile {
        speed_percent: vec![25, 100, 200],
        ..common::flat(3)
    }
}

fn options(strict: bool, lock_model: LockModel) -> SimOptions {
    SimOptions {
        strict,
        lock_model,
        ..SimOptions::default()
    }
}

/// Runs `f` on all CPUs at once. Returns the time that `f` takes on each CPU, in nanoseconds.
fn times_ns(options: SimOptions, f: impl Fn(&Sim) + Copy + 'static) -> [u64; 3] {
    let sim = Sim::new(&uneven(), options);
    let times = Rc::new(RefCell::new([0; 3]));
    for cpu in [LITTLE, ALIKE, BIG] {
        let times = Rc::clone(&times);
        sim.spawn(cpu, move |sim| {
            let begin = sim.now();
            f(sim);
            times.borrow_mut()[cpu.index()] = sim.now().0 - begin.0;
        });
    }
    sim.run();
    let times = times.borrow();
    *times
}

#[test]
fn work_takes_longer_on_a_little_core_and_thinking_does_not() {
    for strict in [false, true] {
        for lock_model in [LockModel::RunAhead, LockModel::ReleaseEvent] {
            let options = || options(strict, lock_model);
            let work = |sim: &Sim| sim.spend(Work::Fault, 10);
            assert_eq!(times_ns(options(), work), [2000, 500, 250]);
            let long = |sim: &Sim| sim.spend(Work::Zap, 100_000);
            assert_eq!(
                times_ns(options(), long),
                [20_000_000, 5_000_000, 2_500_000]
            );
            let think = |sim: &Sim| sim.spend(Work::Think, 777);
            assert_eq!(times_ns(options(), think), [777; 3]);
        }
    }
}

/// Other CPUs run between any two steps of a CPU, so the engine must load the CPU's own prices
/// again before each step.
#[test]
fn a_core_pays_its_own_prices_after_others_ran() {
    let step = |sim: &Sim| {
        for _ in 0..100 {
            sim.spend(Work::Fault, 1);
            sim.sleep(Nanos(1000));
        }
    };
    let times = times_ns(SimOptions::default(), step);
    let expected = [25, 100, 200].map(|speed| {
        // The work consists of a fault, and of the interrupt and the context switch that end a
        // sleep.
        let work = (50 + 500 + 1000) * 100 / speed;
        100 * (work + 1000)
    });
    assert_eq!(times, expected);
}

#[test]
fn a_lock_and_a_word_that_a_core_has_follow_its_speed() {
    let own = |sim: &Sim| {
        let (lock, word) = (sim.lock(LockClass::Zone, sim.this_cpu(), ()), sim.word(0));
        // The first addition fetches the line of the word from CPU 0, so it is not measured.
        word.add(sim, 1, Ordering::Relaxed);
        let begin = sim.now();
        for _ in 0..10 {
            lock.with(sim, Site::Refill, |()| ());
            word.add(sim, 1, Ordering::Relaxed);
        }
        // A lock costs 20 ns and a word 5 ns. At twice the speed they cost 10 ns and 2.5 ns, which
        // is rounded up.
        let each_ns = [80 + 20, 20 + 5, 10 + 3][sim.this_cpu().index()];
        assert_eq!(sim.now().0 - begin.0, 10 * each_ns);
    };
    times_ns(SimOptions::default(), own);
}

#[test]
fn a_line_takes_as_long_to_a_little_core_as_to_a_big_one() {
    let sim = Sim::new(&uneven(), SimOptions::default());
    let (word, lock) = (
        Rc::new(sim.word(0)),
        Rc::new(sim.lock(LockClass::Zone, ALIKE, ())),
    );
    for (turn, cpu) in (1_u32..).zip([ALIKE, LITTLE, ALIKE, BIG]) {
        let (word, lock) = (Rc::clone(&word), Rc::clone(&lock));
        sim.spawn(cpu, move |sim| {
            sim.sleep(Nanos(u64::from(turn) * 100_000));
            let begin = sim.now();
            word.add(sim, 1, Ordering::Relaxed);
            lock.with(sim, Site::Refill, |()| ());
            if turn > 1 {
                // Fetching the cache line of the word takes 30 ns, and fetching that of the lock
                // takes another 30 ns. Fetching the data that the lock guards takes 40 ns.
                assert_eq!(sim.now().0 - begin.0, 30 + 30 + 40, "{cpu}");
            }
        });
    }
    sim.run();
}

/// Even if a job interrupts a step of work, the step takes its full time at the speed of its core.
#[test]
fn a_preempted_step_takes_its_full_time_at_the_speed_of_its_core() {
    for (cpu, percent) in [(LITTLE, 25), (ALIKE, 100), (BIG, 200)] {
        let sim = Sim::new(&uneven(), SimOptions::default());
        let job = Rc::new(RefCell::new(0));
        let seen = Rc::clone(&job);
        sim.on_job(move |sim, _| {
            sim.spend(Work::ScanCpu, 10);
            *seen.borrow_mut() += 1;
        });
        sim.defer(
            cpu,
            Job::VmstatUpdate,
            Due::At(Nanos(1_000_000)),
            WhenIdle::Wake,
        );
        let took = Rc::new(RefCell::new(0));
        let told = Rc::clone(&took);
        sim.spawn(cpu, move |sim| {
            let begin = sim.now();
            sim.spend(Work::Zap, 200_000);
            *told.borrow_mut() = sim.now().0 - begin.0;
        });
        sim.run();
        assert_eq!((*job.borrow(), sim.stats().preemptions), (1, 1));
        let own = 200_000 * 50;
        let interrupted = 500 + 2 * 1000 + 10 * 50;
        assert_eq!(*took.borrow(), (own + interrupted) * 100 / percent, "{cpu}");
    }
}

#[test]
fn who_moves_pays_the_prices_of_where_it_is() {
    let sim = Sim::new(&uneven(), SimOptions::default());
    sim.spawn(LITTLE, |sim| {
        for (cpu, ns) in [(LITTLE, 2000), (BIG, 250), (ALIKE, 500), (LITTLE, 2000)] {
            sim.migrate(cpu);
            let begin = sim.now();
            sim.spend(Work::Fault, 10);
            assert_eq!(sim.now().0 - begin.0, ns, "{cpu}");
        }
    });
    sim.run();
}

/// Returns the hash of all events of a run with tasks, locks and jobs, on CPUs with these speeds.
fn hash(speed_percent: &[u32]) -> u64 {
    let profile = Profile {
        speed_percent: speed_percent.to_vec(),
        ..common::flat(3)
    };
    let sim = Sim::new(&profile, SimOptions::default());
    let lock = Rc::new(sim.lock(LockClass::Zone, LITTLE, ()));
    sim.on_job(|sim, job| {
        sim.spend(Work::ScanCpu, 10);
        sim.defer(sim.this_cpu(), job, Due::Wheel(Jiffies(1)), WhenIdle::Defer);
    });
    for cpu in [LITTLE, ALIKE, BIG] {
        sim.defer(
            cpu,
            Job::VmstatUpdate,
            Due::Wheel(Jiffies(1)),
            WhenIdle::Wake,
        );
        let lock = Rc::clone(&lock);
        sim.spawn(cpu, move |sim| {
            for _ in 0..1000 {
                sim.spend(Work::Fault, 7);
                lock.with(sim, Site::Refill, |()| sim.spend(Work::BuddyAlloc, 3));
            }
        });
    }
    sim.run();
    sim.stats().hash
}

#[test]
fn speeds_of_one_are_no_speeds_and_others_change_a_run() {
    assert_eq!(hash(&[]), hash(&[100; 3]));
    assert_eq!(hash(&[25, 100, 200]), hash(&[25, 100, 200]));
    assert_ne!(hash(&[]), hash(&[25, 100, 200]));
}

const CLUSTERS: &str = r#"cluster = [
    { name = "little", cores = 1, smt = 2, llc = 0, speed = { low = 0.5, mid = 0.35, high = 0.05, source = "s" } },
    { name = "same", cores = 1, llc = 0 },
    { name = "big", cores = 1, smt = 2, llc = 1, node = 1, socket = 1, speed = { low = 4, mid = 1.1, high = 1, source = "estimate: t" } },
]
"#;

#[test]
fn speeds_come_out_of_a_profile_as_they_were_written() {
    let counts = "sockets = 2\ncores_per_llc = 2\nllcs_per_node = 2\n";
    let mine = include_str!("mine.toml").replacen(counts, CLUSTERS, 1);
    let core = "[transfer]\ncore = { low = 2, mid = 10, high = 20, source = \"s\" }\n";
    let toml = mine.replacen("[transfer]\n", core, 1);
    let text = ProfileText::parse("mine.toml", &toml).expect("is a good profile");
    let told = text.clusters.iter().map(|cluster| {
        let cpus: Vec<u32> = cluster.cpus.iter().map(|cpu| cpu.0).collect();
        let speed = cluster.speed.as_ref();
        let at = |card| speed.map(|speed| speed.percent.at(card));
        let source = speed.map(|speed| speed.source.as_str());
        (cluster.name.as_str(), cpus, Card::ALL.map(at), source)
    });
    let expected = [
        ("little", vec![0, 3], [50, 35, 5].map(Some), Some("s")),
        ("same", vec![1], [None; 3], None),
        (
            "big",
            vec![2, 4],
            [400, 110, 100].map(Some),
            Some("estimate: t"),
        ),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let speeds = Card::ALL.map(|card| text.at(card).speed_percent);
    assert_eq!(
        speeds,
        [
            vec![50, 100, 400, 50, 400],
            vec![35, 100, 110, 35, 110],
            vec![5, 100, 100, 5, 100]
        ]
    );
    let debug = text.variant("debug").expect("has it");
    assert_eq!(debug.clusters, text.clusters);
    let scaled = text
        .at(Card::Mid)
        .with_scaled(CostKey::Work(Work::Fault), 200);
    assert_eq!(scaled.speed_percent, speeds[1]);
}

#[test]
fn only_the_phone_has_speeds() {
    for listed in Profile::list() {
        let profile = Profile::load(&listed.name, Card::Mid).expect("is built in");
        if listed.name == "phone-8" {
            assert_eq!(profile.speed_percent, [35, 35, 35, 35, 100, 100, 100, 117]);
        } else {
            assert!(profile.speed_percent.is_empty(), "{}", listed.name);
        }
    }
}
