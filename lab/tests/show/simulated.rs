//! Tests that the tables of a simulated run's recording agree with the simulator's own counts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_lab::Card;
use plimsoll_lab::catalog::designs;
use plimsoll_lab::catalog::machines;
use plimsoll_lab::run::testbed::{Log, Testbed};
use plimsoll_lab::workload::make_like::MakeLike;
use plimsoll_mm::event::Event as Emitted;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::Nanos;
use plimsoll_recording::Recording;
use plimsoll_sim::Stats;

use super::{rows, table};

/// For each code path by which pages move between page lists and zones: the number of times that a
/// CPU held a zone lock and moved pages, and the number of these pages.
type Holds = BTreeMap<&'static str, (f64, f64)>;

struct Run {
    recording: Recording,
    stats: Stats,
    log: Log,
    holds: Holds,
}

fn path(site: Site) -> Option<&'static str> {
    Some(match site {
        Site::Refill => "refill",
        Site::AllocDirect => "direct",
        Site::Spill => "spill",
        Site::Decay | Site::DrainRemoteNode => "decay",
        Site::Drain => "drain",
        _ => return None,
    })
}

/// A load of few processes that runs long enough for each CPU's vmstat work to run.
const LIGHT: (&str, MakeLike, u64) = (
    "phone-8",
    MakeLike {
        jobs: 16,
        pages: 600,
        think_ns_per_page: 200,
        pause: Nanos::from_ms(60),
        counts_rss: false,
    },
    2500,
);

/// A load of many simultaneous processes that runs for a few milliseconds.
const HEAVY: (&str, MakeLike, u64) = (
    "grace-72",
    MakeLike {
        jobs: 72,
        pages: 1000,
        think_ns_per_page: 10,
        pause: Nanos::from_ms(1),
        counts_rss: false,
    },
    15,
);

fn run((machine, load, length_ms): (&str, MakeLike, u64), design: &str, events_max: usize) -> Run {
    let profile = machines::load(machine, Card::Mid).expect("a machine that exists");
    let design = designs::find(design).expect("a design that exists");
    let testbed = Testbed::new(&profile, design.design, 1);
    let recorder = testbed.record(events_max);
    let holds: Rc<RefCell<Holds>> = Rc::default();
    let seen = Rc::clone(&holds);
    testbed.sim.observe(move |_, _, _, event| {
        if let Emitted::ZoneHold { site, pages, .. } = event
            && let Some(path) = path(*site)
            && pages.0 > 0
        {
            let mut seen = seen.borrow_mut();
            let (holds, sum) = seen.entry(path).or_default();
            *holds += 1.0;
            *sum += f64::from(pages.0);
        }
    });
    let length = Nanos::from_ms(length_ms);
    load.start(&testbed, length);
    testbed.sim.run_until(length);
    let recording = recorder.finish(&testbed.sim, design.name, "make-like".to_owned());
    let (stats, log) = testbed.finish();
    let holds = holds.take();
    Run {
        recording,
        stats,
        log,
        holds,
    }
}

#[test]
fn holds_and_firings_are_those_that_the_simulator_counted() {
    let run = run(LIGHT, "linux", usize::MAX);
    let counted = rows(&table(&run.recording, "holds")).into_iter();
    let counted: BTreeMap<String, (f64, f64)> = counted
        .map(|(path, values)| (path, (values[0], values[1])))
        .collect();
    let seen: BTreeMap<String, (f64, f64)> = run
        .holds
        .iter()
        .map(|(path, of)| ((*path).to_owned(), *of))
        .collect();
    assert_eq!(counted, seen);
    assert!(
        ["refill", "spill", "decay"]
            .iter()
            .all(|path| seen.contains_key(*path)),
        "{seen:?}"
    );

    let firings = rows(&table(&run.recording, "firings"));
    let kicked = firings[0].1[1];
    assert_eq!(firings[0].1[0], run.log.starts.len() as f64);
    assert!(kicked > 0.0 && kicked <= run.log.kicks as f64, "{kicked}");
    assert_eq!(
        rows(&table(&run.recording, "shepherd"))[0].1[1],
        run.log.kicks as f64
    );

    assert!(run.recording.events.is_sorted_by_key(|event| event.time_ns));
}

#[test]
fn waits_are_those_that_perf_would_count() {
    let run = run(HEAVY, "linux", usize::MAX);
    let waits = rows(&table(&run.recording, "contentions"));
    let sum = |nth: usize| waits.iter().map(|(_, values)| values[nth]).sum::<f64>();
    let all = LockClass::ALL.map(|class| run.stats.class(class).perf_contentions);
    assert_eq!(sum(0), all.iter().sum::<u64>() as f64);
    assert!(sum(0) > 0.0, "no CPU waited");
    let longest = LockClass::ALL.map(|class| run.stats.class(class).wait_max);
    let longest = longest.iter().flatten().map(|longest| longest.wait.0).max();
    let shown = waits
        .iter()
        .map(|(_, values)| values[2])
        .fold(0.0, f64::max);
    assert!(
        shown > 0.0 && shown <= longest.unwrap_or(0) as f64,
        "{shown} of {longest:?}"
    );
}

#[test]
fn what_does_not_fit_counts_as_lost_and_what_fits_is_the_beginning() {
    let (whole, cut) = (
        run(LIGHT, "ours", usize::MAX).recording,
        run(LIGHT, "ours", 1000).recording,
    );
    assert_eq!(cut.events.len(), 1000);
    let lost: u64 = cut.header.lost.iter().map(|(_, count)| count).sum();
    assert_eq!(lost + 1000, whole.events.len() as u64);
    assert_eq!(
        cut.header.symbols,
        whole.header.symbols[..cut.header.symbols.len()]
    );
}
