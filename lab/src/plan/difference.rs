//! Finds the mechanisms in which two designs differ, and says whether runs of a workload can show
//! the difference.

use plimsoll_mm::design::Design;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::Nanos;

use super::text::Time;
use super::workloads::Workload;
use crate::catalog::tuned::Tuned;
use crate::report::answer::words::list;

/// How long a run lasts if the user chooses no length, in milliseconds.
const LENGTH_MS: u64 = 1500;
/// If the designs differ in the times at which vmstat work runs, a run lasts at least this number
/// of intervals of vmstat work.
const INTERVALS: u64 = 5;
/// If a run has fewer intervals of the vmstat work than this number, two runs can be identical even
/// if their designs run this work at different times. The reason is that each CPU's first interval
/// begins at boot.
const INTERVALS_MIN: u64 = 2;

/// How many of [`MECHANISMS`] decide when vmstat work runs. These mechanisms are the first in that
/// list.
const OF_VMSTAT_WORK: usize = 2;

/// The mechanisms in the order of [`Design::variants`](plimsoll_mm::design::Design::variants), each
/// with a command whose runs depend on the mechanism.
const MECHANISMS: [(&str, &str); 7] = [
    ("when vmstat work fires", "plimsoll reproduce vmstat"),
    ("when dormant CPUs are kicked", "plimsoll reproduce vmstat"),
    ("pages per zone-lock hold", "plimsoll reproduce drain"),
    (
        "whether page lists own blocks",
        "plimsoll reproduce purge exits",
    ),
    (
        "how resident pages are counted",
        "plimsoll reproduce rss-accuracy rss-cost",
    ),
    (
        "how a dying address space is emptied",
        "plimsoll compare killed-apps",
    ),
    (
        "how the victim is chosen when memory is out",
        "plimsoll reproduce oom-latency oom-accuracy",
    ),
];

/// The indices of the mechanisms in which two designs differ.
fn mechanisms(a: Design, b: Design) -> Vec<usize> {
    let (a, b) = (a.variants(), b.variants());
    (0..a.len()).filter(|&nth| a[nth] != b[nth]).collect()
}

/// Says why the replays of a recording under `a` and `b` were identical. The text is a clause
/// without a full stop.
pub(crate) fn why_replays_are_identical(a: Design, b: Design) -> String {
    let differing = mechanisms(a, b).into_iter();
    let what: Vec<&str> = differing
        .filter_map(|nth| Some(MECHANISMS.get(nth)?.0))
        .collect();
    format!(
        "nothing in this replay depends on {}, or the recording is too short to show it",
        what.join(" or ")
    )
}

/// How long a run lasts, in milliseconds of virtual time, if the plan gives no length. The length
/// is [`LENGTH_MS`], and at least [`INTERVALS`] intervals of vmstat work if `designs` differ in the
/// times at which this work runs.
pub(super) fn length_ms(designs: &[Tuned]) -> u64 {
    if !designs
        .iter()
        .any(|of| differ_in_vmstat_work(&designs[0], of))
    {
        return LENGTH_MS;
    }
    let intervals = designs.iter().map(|of| of.tunables.get(Knob::StatInterval));
    LENGTH_MS.max(INTERVALS * intervals.max().unwrap_or(0))
}

/// Returns whether vmstat work runs at different times with the two designs.
fn differ_in_vmstat_work(a: &Tuned, b: &Tuned) -> bool {
    let interval = |of: &Tuned| of.tunables.get(Knob::StatInterval);
    interval(a) != interval(b)
        || mechanisms(a.named.design, b.named.design)
            .iter()
            .any(|&nth| nth < OF_VMSTAT_WORK)
}

/// Returns a text which says that runs of `length` are too short to show the difference between the
/// first of `designs` and another one. Returns `None` if they are long enough, or if all designs
/// run vmstat work at the same times.
pub(super) fn too_short(designs: &[Tuned], length: Nanos) -> Option<String> {
    let (first, others) = designs.split_first()?;
    let differing = others.iter().filter(|of| differ_in_vmstat_work(first, of));
    let interval = |of: &Tuned| of.tunables.get(Knob::StatInterval);
    let longest = differing
        .map(|of| interval(first).max(interval(of)))
        .max()?;
    let longest = Nanos::from_ms(longest);
    (length.0 < INTERVALS_MIN * longest.0).then(|| {
        format!(
            "the designs differ in the vmstat work, whose interval is {}, but a run lasts only {}; \
             with fewer than {INTERVALS_MIN} intervals, runs can be identical although the designs \
             are not: leave the length out, and a run lasts {}",
            Time(longest),
            Time(length),
            Time(Nanos::from_ms(length_ms(designs))),
        )
    })
}

/// Says why the runs of `a` and `b` were identical under `workload`, and what the user could run
/// instead. The text is a clause without a full stop. Unless the runs were too short, it names the
/// mechanisms or the knobs in which the two designs differ.
pub(super) fn why_identical(a: &Tuned, b: &Tuned, workload: &Workload, length: Nanos) -> String {
    if let Some(short) = too_short(&[a.clone(), b.clone()], length) {
        return short;
    }
    let differing = mechanisms(a.named.design, b.named.design);
    let known = differing.iter().filter_map(|&nth| MECHANISMS.get(nth));
    let (what, instead): (Vec<&str>, Vec<&str>) = known.copied().unzip();
    let knobs = Knob::ALL.into_iter();
    let knobs = knobs.filter(|&knob| a.tunables.get(knob) != b.tunables.get(knob));
    let knobs: Vec<String> = knobs
        .map(|knob| format!("`{}`", knob.spec().name))
        .collect();
    let these = format!("nothing in these runs of {} depends on", workload.name);
    match (&what[..], &knobs[..]) {
        ([], []) => format!(
            "{these} the knobs that the timeline changes; try a longer run, aged memory, or \
             another workload"
        ),
        ([], knobs) => format!(
            "{these} {}; try a longer run, aged memory, or another workload",
            list(knobs)
        ),
        (what, _) => format!(
            "{these} {}; use `{}` instead",
            what.join(" or "),
            instead.join("` or `")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{command, prepare};

    fn length(designs: &[&str], all: &[&str]) -> u64 {
        let plan = command::plan("stress-vm", "laptop-2", designs, all).unwrap();
        length_ms(&prepare::prepare(&plan).unwrap().designs)
    }

    #[test]
    fn a_run_is_as_long_as_the_difference_needs() {
        assert_eq!(length(&["linux", "linux+bounded"], &[]), 1500);
        assert_eq!(
            length(&["linux", "linux+bounded", "linux+phased"], &[]),
            5000
        );
        assert_eq!(length(&["linux", "linux@vm.stat_interval=3"], &[]), 15_000);
        assert_eq!(length(&["linux", "linux@batch_scale_max=0"], &[]), 1500);
        assert_eq!(
            length(&["linux", "linux+phased"], &["vm.stat_interval=2"]),
            10_000
        );
    }

    fn why(workload: &str, designs: &[&str], ms: u64) -> String {
        let plan = command::plan(workload, "laptop-2", designs, &[]).unwrap();
        let prepared = prepare::prepare(&plan).unwrap();
        let [a, b] = &prepared.designs[..] else {
            panic!("two designs")
        };
        why_identical(a, b, prepared.workload, Nanos::from_ms(ms))
    }

    #[test]
    fn identical_runs_name_the_mechanism_and_a_command_that_uses_it() {
        assert_eq!(
            why("stress-vm", &["linux", "linux+tree"], 1500),
            "nothing in these runs of stress-vm depends on how resident pages are counted; use \
             `plimsoll reproduce rss-accuracy rss-cost` instead"
        );
        let knob = why("stress-vm", &["linux", "linux@hold_time_max_ns=0"], 1500);
        assert!(
            knob.contains("depends on `hold_time_max_ns`; try"),
            "{knob}"
        );
    }

    #[test]
    fn a_run_that_is_too_short_is_named_as_the_cause() {
        let designs = ["linux", "linux@vm.stat_interval=5"];
        let short = why("make-like", &designs, 1000);
        assert_eq!(
            short,
            "the designs differ in the vmstat work, whose interval is 5s, but a run lasts only 1s; \
             with fewer than 2 intervals, runs can be identical although the designs are not: \
             leave the length out, and a run lasts 25s"
        );
        assert!(!why("make-like", &designs, 10_000).contains("a run lasts"));
        let phased = why("make-like", &["linux", "linux+phased"], 1000);
        assert!(phased.contains("whose interval is 1s"), "{phased}");
        let bounded = why("make-like", &["linux", "linux+bounded"], 1000);
        assert!(!bounded.contains("a run lasts"), "{bounded}");
    }

    #[test]
    fn every_mechanism_has_its_command() {
        let variants = Design::OURS.variants();
        assert_eq!(MECHANISMS.len(), variants.len());
    }
}
