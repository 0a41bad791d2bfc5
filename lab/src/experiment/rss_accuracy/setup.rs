//! One run of the program on a machine with one kind of counter, and the errors of that counter.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::counter::{Accuracy, Batch, Counters, Counting, Plan};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::units::{CpuId, Nanos, PAGE_SIZE};
use plimsoll_sim::Sim;
use plimsoll_sim::profile::Profile;

use super::program::{Moment, Program, Watch};
use crate::experiment::driver::{Reading, read, readings};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::run::testbed::simulated;
use crate::watch;

/// The largest error of the counter at any observation, in pages.
pub(super) const WORST: Metric = Metric::lower("worst_error_pages", Unit::Pages);
/// The size of the counter's error at the last sample, in pages.
pub(super) const FINAL: Metric = Metric::lower("final_error_pages", Unit::Pages);
/// The largest error that the counter allows in either direction, in pages.
pub(super) const BOUND: Metric = Metric::lower("bound_pages", Unit::Pages);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    WORST => seen.worst as f64,
    Metric::lower("worst_error_bytes", Unit::Bytes) => (seen.worst * PAGE_SIZE) as f64,
    FINAL => seen.errors.last().map_or(0, |error| error.unsigned_abs()) as f64,
    BOUND => seen.bound.under.max(seen.bound.over) as f64,
    Metric::lower("bound_width_pages", Unit::Pages) => (seen.bound.under + seen.bound.over) as f64,
});

/// The number of samples in a run. The program touches the same number of pages between any two
/// successive samples. Each sample checks the sum of all CPUs' parts of the counter and adds a
/// point to the sparkline of the run's errors.
pub(super) const SAMPLES: u64 = 40;

/// The batch that counters of resident pages have in the mailing-list thread.
pub(super) const BATCH: Batch = Batch::RSS;

/// The observations of one run of the program: the errors of its counter, and the time that it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// The error of the counter at each of [`SAMPLES`] moments: its approximate sum minus the true
    /// number of pages.
    pub(super) errors: Vec<i64>,
    /// The largest error, in pages, that the approximate sum had at any observation. This sum does
    /// not read every CPU's part of the counter.
    pub(super) worst: u64,
    /// The largest error, in pages, of the value that the kernel shows to users (`get_mm_counter`
    /// in Linux). This value is never below 0. In Linux 6.12, field 24 of `/proc/PID/stat` shows
    /// this value, and the OOM killer compares processes by it, whereas `statm` and `status` use
    /// precise sums.
    pub(super) worst_shown: u64,
    /// The largest possible error, according to the counter, at the last observation.
    pub(super) bound: Accuracy,
    /// The virtual time when the program ended.
    pub(super) length: Nanos,
    /// The hash of everything that the watcher observed and that the machine did. Equal runs have
    /// equal hashes.
    pub(super) hash: u64,
}

/// Runs `program` once, with counters of the kind `counting`.
///
/// # Panics
/// If a precise sum is not exact, or an approximate sum exceeds its error bound. The message names
/// the seed.
pub(super) fn run(profile: &Profile, program: Program, counting: Counting, seed: u64) -> Seen {
    let sim = Sim::new(profile, simulated(seed));
    let watcher = watch::attach(&sim);
    let of_task = watcher.clone();
    let seen = Rc::new(RefCell::new(Seen::default()));
    let plan = Plan::new(&sim, counting, Rss::<Sim>::WIDTH, BATCH)
        .expect("four counters on as many CPUs as a profile may have");
    let result = Rc::clone(&seen);
    sim.spawn(CpuId(0), move |sim| {
        let rss = Rss::new(sim, &plan).expect("the host has memory for four counters");
        let mut watcher = Watcher {
            program,
            seed,
            seen: Seen::default(),
            course: of_task,
        };
        program.run(sim, &rss, seed, &mut watcher);
        watcher.seen.length = sim.now();
        result.replace(watcher.seen);
        let ended = rss.destroy(sim);
        ended.expect("all that was mapped has been unmapped");
    });
    sim.run();
    if let Some(watcher) = watcher {
        watcher.ended(&sim.stats());
    }
    let mut seen = seen.take();
    seen.hash = fold_hashes([seen.hash, sim.stats().hash, seen.length.0]);
    seen
}

impl Seen {
    /// The metrics of the run.
    pub(super) fn sample(&self) -> Sample {
        Sample {
            hash: self.hash,
            metrics: read(METRICS, self),
        }
    }
}

/// An observer that reads the program's counter of resident pages after each mapping and unmapping.
struct Watcher {
    program: Program,
    seed: u64,
    seen: Seen,
    /// The place where the errors are noted for a chart, if the run is watched.
    course: Option<watch::Watcher>,
}

impl Watch for Watcher {
    fn look(&mut self, sim: &Sim, rss: &Rss<Sim>, now: Moment) {
        let (counters, anon) = (rss.counters(), RssKind::Anon as usize);
        let approximate = counters.approximate_sum(sim, anon);
        let bound = counters.accuracy(sim, anon);
        let truth = now.resident.cast_signed();
        assert!(
            bound.allows(approximate, truth),
            "{approximate} was read of {truth} pages, which {bound:?} rules out (seed {})",
            self.seed
        );
        if let Some(course) = &self.course {
            course.counted(sim, approximate, truth);
        }
        let seen = &mut self.seen;
        seen.worst = seen.worst.max(approximate.abs_diff(truth));
        seen.worst_shown = seen.worst_shown.max(approximate.max(0).abs_diff(truth));
        seen.bound = bound;
        seen.hash = fold_hashes([seen.hash, now.resident, approximate.cast_unsigned()]);
        let due = self.program.pages * (seen.errors.len() as u64 + 1) / SAMPLES;
        if now.touched >= due {
            let precise = counters.precise_sum(sim, anon);
            assert_eq!(
                precise, truth,
                "a precise sum is exact when nothing is under way (seed {})",
                self.seed
            );
            seen.errors.push(approximate - truth);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::super::program::{Hops, Sizes};
    use super::*;

    fn seen(hops: Hops, counting: Counting) -> Seen {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let program = Program {
            sizes: Sizes::UpTo(64),
            hops,
            kept: 8,
            pages: 40_000,
        };
        run(&profile, program, counting, 7)
    }

    /// For every kind of counter, the error stays within the bound that the counter states. Only
    /// the counter that is a single shared word has no error at all.
    #[test]
    fn errors_stay_within_what_is_promised_and_a_shared_line_has_none() {
        for counting in Counting::ALL {
            let seen = seen(Hops::Random, counting);
            let Accuracy { under, over } = seen.bound;
            assert!(seen.worst <= under.max(over), "{}", counting.name());
            assert_eq!(seen.errors.len() as u64, SAMPLES, "{}", counting.name());
            assert_eq!(seen.worst == 0, counting == Counting::Shared);
        }
    }

    /// While a program stays on one CPU, our one-sided counter is exact.
    #[test]
    fn ours_knows_a_program_that_stays_exactly() {
        let seen = seen(Hops::Stay, Counting::OneSided);
        assert_eq!((seen.worst, seen.bound), (0, Accuracy::EXACT));
    }

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        let hashes = [(); 2].map(|()| seen(Hops::Next, Counting::Tree).sample().hash);
        assert_eq!(hashes[0], hashes[1]);
    }
}
