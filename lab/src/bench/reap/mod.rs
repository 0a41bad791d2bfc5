//! The race between an exiting thread and helper threads, on threads of this computer and in the
//! simulator.
//!
//! Each race builds an address space, the victim. The victim's last user then empties it on one CPU
//! while helpers empty it on other CPUs. The results are the time until all memory of the victim is
//! free, and the running time of all threads together. A *case* is a way to empty the victim. The
//! cases take turns in each round, so that other load on the computer affects all of them equally.
//! The times of each case are compared with the times of an exit without helpers in the same round.
//!
//! Freeing a page takes different work on this computer and in the simulator, so compare only
//! ratios, not times, between this computer and the simulator. On this computer, the cost of a page
//! is the manager's work on real cache lines, and the time that the kernel takes to accept the
//! returned memory. In the simulator, the cost of a page is the time that Linux takes for reverse
//! mappings, translations and page lists, according to the profile `laptop-2`.

mod host;
mod report;
mod sim;
mod victim;

use plimsoll_host::affinity::CpuMask;
use plimsoll_host::measure::Pair;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::units::Pages;

pub(super) use self::host::waited_for_cpu_ns;
use self::host::{Memories, RaceMachine};
use self::victim::Shape;
use super::{Found, Size};
use crate::error::Error;
use crate::measure::stats;
use crate::run::progress::Progress;

/// A way to empty the victim's address space, which the bench measures.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    reaping: Reaping,
    /// True if helper threads empty the victim together with the exiting thread.
    helps: bool,
}

/// The cases: ways to empty the victim's address space. Times of all cases are compared with the
/// times of the first case. Waits for page-table locks are compared with the waits of the third
/// case.
const CASES: [Case; 6] = [
    Case {
        name: "exit alone",
        reaping: Reaping::Ascending,
        helps: false,
    },
    Case {
        name: "alone, by tables",
        reaping: Reaping::MeetInTheMiddle,
        helps: false,
    },
    helped(Reaping::Ascending),
    helped(Reaping::DescendingByVma),
    helped(Reaping::DescendingChunks),
    helped(Reaping::MeetInTheMiddle),
];

const fn helped(reaping: Reaping) -> Case {
    Case {
        name: reaping.name(),
        reaping,
        helps: true,
    }
}

/// Where a race (of threads that empty one address space) runs, and what happens to the freed
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// The race runs on this computer, and freed memory is returned to the kernel.
    GivenBack,
    /// The race runs on this computer, and the arena keeps freed memory.
    Kept,
    /// The race runs on this computer, and freed memory is returned to the kernel. Each acquisition
    /// of a page-table lock is timed.
    Watched,
    /// The race runs on the simulated machine, which has no memory to return.
    Simulated,
}

/// The measurements of one race, in which threads empty one address space.
#[derive(Clone, Debug, Default)]
struct Took {
    /// The time from the start of the race until all memory of the victim is free.
    wall_ns: f64,
    /// The sum of the running times of all threads of the race.
    work_ns: f64,
    /// The sum of the times that the threads waited for page-table locks.
    table_wait_ns: f64,
    /// How long each acquisition of a page-table lock took. Empty if the acquisitions were not
    /// timed.
    table_locks_ns: Vec<f64>,
    /// True if the threads waited too long for CPUs (see [`host`]).
    disturbed: bool,
    /// The number of calls that returned memory to the kernel.
    calls: u64,
    /// The number of pages that were returned to the kernel.
    given: u64,
    /// The number of pages by which the arena's resident memory has shrunk. `None` if the system
    /// does not report it.
    freed: Option<Pages>,
}

/// All rounds of one case, on victims of one shape (a way to map the victim's pages). `case` is an
/// index in [`CASES`].
#[derive(Debug)]
struct Raced {
    on: On,
    shape: Shape,
    case: usize,
    rounds: Vec<Took>,
}

impl Raced {
    fn of(&self, what: fn(&Took) -> f64) -> Vec<f64> {
        self.rounds.iter().map(what).collect()
    }
}

/// Measures every case (a way to empty an address space), on this computer and in the simulator. If
/// this computer has only one CPU, the report says that there is no race on this computer.
///
/// # Errors
/// If this computer has several CPUs but fewer than there are threads, if the kernel does not have
/// enough memory, or if the simulated machine cannot be loaded.
pub(super) fn run(progress: &Progress, size: &Size) -> Result<Found, Error> {
    let pages = Pages(size.mib << (20 - 12));
    let here = cpus(size.helpers)?;
    progress.start("bench reap");
    let settings = if here.is_ok() { 4 } else { 1 };
    progress.expect(settings * Shape::ALL.len() * CASES.len() * size.rounds as usize);
    let mut raced = Vec::new();
    if let Ok(cpus) = &here {
        let machine = RaceMachine::new(pages, cpus.clone())?;
        for (on, memories) in [
            (On::GivenBack, Memories::GivenBack),
            (On::Kept, Memories::Kept),
        ] {
            raced.extend(in_turns(progress, size, on, |case, shape, _| {
                machine.race(case, shape, memories)
            })?);
        }
        drop(machine);
        let machine = RaceMachine::watched(pages, cpus.clone())?;
        let mut watched = in_turns(progress, size, On::Watched, |case, shape, _| {
            machine.race(case, shape, Memories::GivenBack)
        })?;
        judge_waits(&mut watched);
        raced.extend(watched);
    }
    let profile = sim::profile(size.helpers + 1)?;
    raced.extend(in_turns(
        progress,
        size,
        On::Simulated,
        |case, shape, round| {
            let race = (case, shape, size.helpers);
            sim::race(&profile, race, pages, u64::from(round) + 1)
        },
    )?);
    let why_not_here = here.err();
    Ok(report::found(&raced, size, why_not_here.as_deref()))
}

/// Returns the CPUs on which the threads run. If threads cannot race on this computer, returns the
/// reason as the inner error. The outer error says that this computer has too few CPUs for
/// `helpers`.
fn cpus(helpers: u32) -> Result<Result<Vec<u32>, String>, Error> {
    if let Err(why) = Pair::find() {
        return Ok(Err(format!("there is no race to measure: {why}")));
    }
    let mask = CpuMask::of_this_thread();
    let threads = helpers as usize + 1;
    let cpus = mask.cpus().get(..threads).map(<[u32]>::to_vec);
    cpus.map(Ok).ok_or_else(|| {
        let there = mask.cpus().len();
        Error::Invalid(format!(
            "{helpers} helpers and the victim need {threads} CPUs, and {there} may be used; \
             ask for fewer --helpers"
        ))
    })
}

/// Measures victims of every shape (the way in which the pages are mapped). In each round, every
/// case runs once.
fn in_turns(
    progress: &Progress,
    size: &Size,
    on: On,
    race: impl Fn(&Case, Shape, u32) -> Result<Took, Error>,
) -> Result<Vec<Raced>, Error> {
    let mut raced = Vec::new();
    for shape in Shape::ALL {
        let none = |case| Raced {
            on,
            shape,
            case,
            rounds: Vec::new(),
        };
        let mut cases: Vec<Raced> = (0..CASES.len()).map(none).collect();
        for round in 0..size.rounds {
            for raced in &mut cases {
                let took = race(&CASES[raced.case], shape, round)?;
                raced.rounds.push(took);
                progress.step();
            }
        }
        raced.extend(cases);
    }
    Ok(raced)
}

/// Computes how long the threads of each race waited for page-table locks. Even an acquisition
/// without a wait can be slow, so this function compares each race with the race `exit alone` of
/// the same round. That race has no helpers, so its only thread never waits for a page-table lock.
/// An acquisition counts as a wait if it took longer than 99 % of the acquisitions of `exit alone`.
/// The length of the wait is the time of the acquisition minus the median time of the acquisitions
/// of `exit alone`.
fn judge_waits(watched: &mut [Raced]) {
    for cases in watched.chunk_by_mut(|one, next| one.shape == next.shape) {
        for round in 0..cases[0].rounds.len() {
            let mut alone = cases[0].rounds[round].table_locks_ns.clone();
            alone.sort_unstable_by(f64::total_cmp);
            let longest = alone.get(alone.len() * 99 / 100).copied().unwrap_or(0.0);
            let usual = stats::median(&alone).unwrap_or(0.0);
            for raced in &mut *cases {
                let took = &mut raced.rounds[round];
                let waits = took.table_locks_ns.iter().filter(|&&span| span > longest);
                took.table_wait_ns = waits.fold(0.0, |sum, span| sum + (span - usual));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_race_frees_everything() {
        let pages = Pages(2048);
        // On a computer with one CPU, the exiting thread and the helper thread share this CPU: the
        // race is slow but still a race.
        let cpu = |nth| CpuMask::of_this_thread().real(nth).unwrap_or(0);
        let cpus = vec![cpu(0), cpu(1)];
        for machine in [
            RaceMachine::new(pages, cpus.clone()).expect("8 MiB"),
            RaceMachine::watched(pages, cpus.clone()).expect("8 MiB"),
        ] {
            for shape in Shape::ALL {
                for case in &CASES {
                    // `race` itself checks that every page is free afterwards.
                    let kept = machine.race(case, shape, Memories::Kept).expect("memory");
                    assert_eq!(kept.freed.unwrap_or(Pages(0)), Pages(0), "{case:?}");
                    if cfg!(target_os = "linux") {
                        let given = machine
                            .race(case, shape, Memories::GivenBack)
                            .expect("memory");
                        let freed = given.freed.expect("Linux says");
                        assert!(freed >= pages, "{case:?} {shape:?}: {freed}");
                        assert!(given.given >= u64::from(pages.0), "{given:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_simulated_race_frees_everything_and_repeats() {
        let profile = sim::profile(2).expect("built in");
        let pages = Pages(2048);
        for shape in Shape::ALL {
            for case in &CASES {
                let race = || sim::race(&profile, (case, shape, 1), pages, 1).expect("memory");
                let (one, again) = (race(), race());
                assert!((one.wall_ns - again.wall_ns).abs() < 1e-9, "{case:?}");
                if !case.helps {
                    assert!(
                        one.table_wait_ns < 1e-9,
                        "exit alone waits for no helper: {case:?}"
                    );
                }
            }
        }
    }

    /// If no helper thread runs beside the exiting thread, the exiting thread never waits for a
    /// page-table lock. So an acquisition counts as a wait only if it took longer than nearly all
    /// acquisitions of such an exit.
    #[test]
    fn a_wait_is_what_exit_alone_never_sees() {
        let of = |case, spans: &[f64]| Raced {
            on: On::Watched,
            shape: Shape::Many,
            case,
            rounds: vec![Took {
                table_locks_ns: spans.to_vec(),
                ..Took::default()
            }],
        };
        let mut watched = [of(0, &[50.0, 60.0, 70.0]), of(2, &[55.0, 70.0, 1060.0])];
        judge_waits(&mut watched);
        let waits = [0, 1].map(|case| watched[case].rounds[0].table_wait_ns);
        assert_eq!(waits, [0.0, 1000.0]);
    }

    #[test]
    fn more_helpers_than_cpus_are_bad_input() {
        match cpus(5000) {
            Err(error) => assert!(error.to_string().contains("fewer --helpers"), "{error}"),
            // On a computer with one CPU, threads cannot race, however many helper threads there
            // are.
            Ok(why_not) => assert!(why_not.is_err_and(|why| why.contains("no race to measure"))),
        }
    }
}
