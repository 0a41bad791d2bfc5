//! Finds the mechanisms in which two designs differ, and says whether runs of a workload can show
//! the difference.

use plimsoll_mm::tunables::Knob;

use super::workloads::Workload;
use crate::catalog::tuned::Tuned;
use crate::error::Error;

/// The length of a run if the user chooses none, in milliseconds.
const LENGTH_MS: u64 = 1500;
/// If the designs differ in the times at which vmstat work runs, a run lasts at least this number
/// of intervals of vmstat work.
const INTERVALS: u64 = 5;

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
fn mechanisms(a: &Tuned, b: &Tuned) -> Vec<usize> {
    let (a, b) = (a.named.design.variants(), b.named.design.variants());
    (0..a.len()).filter(|&nth| a[nth] != b[nth]).collect()
}

/// The virtual length of a run, in milliseconds, for a plan that states none: [`LENGTH_MS`], or at
/// least [`INTERVALS`] intervals of the vmstat work if `designs` differ in the times at which this
/// work runs.
pub(super) fn length_ms(designs: &[Tuned]) -> u64 {
    let differs = |other: &Tuned| {
        let interval = |of: &Tuned| of.tunables.get(Knob::StatInterval);
        interval(other) != interval(&designs[0])
            || mechanisms(&designs[0], other).iter().any(|&nth| nth < 2)
    };
    if !designs.iter().any(differs) {
        return LENGTH_MS;
    }
    let intervals = designs.iter().map(|of| of.tunables.get(Knob::StatInterval));
    LENGTH_MS.max(INTERVALS * intervals.max().unwrap_or(0))
}

/// Makes the error for two designs whose runs were identical. The error names the mechanisms in
/// which the designs differ, and commands whose runs depend on these mechanisms.
pub(super) fn identical(a: &Tuned, b: &Tuned, workload: &Workload) -> Error {
    let differing = mechanisms(a, b);
    let known = differing.iter().filter_map(|&nth| MECHANISMS.get(nth));
    let (what, instead): (Vec<&str>, Vec<&str>) = known.copied().unzip();
    let ran = format!(
        "`{a}` and `{b}` ran identically on every seed: nothing in {} depends on",
        workload.name
    );
    Error::Invalid(if what.is_empty() {
        format!(
            "{ran} the knobs in which they differ; try a longer run, aged memory, or another \
             workload"
        )
    } else {
        format!(
            "{ran} {}; use `{}` instead",
            what.join(" or "),
            instead.join("` or `")
        )
    })
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

    #[test]
    fn identical_runs_name_the_mechanism_and_a_command_that_uses_it() {
        let text = |designs: &[&str]| {
            let plan = command::plan("stress-vm", "laptop-2", designs, &[]).unwrap();
            let prepared = prepare::prepare(&plan).unwrap();
            let [a, b] = &prepared.designs[..] else {
                panic!("two designs")
            };
            identical(a, b, prepared.workload).to_string()
        };
        assert_eq!(
            text(&["linux", "linux+tree"]),
            "`linux` and `linux+tree` ran identically on every seed: nothing in stress-vm depends \
             on how resident pages are counted; use `plimsoll reproduce rss-accuracy rss-cost` \
             instead"
        );
        assert!(text(&["linux", "linux@hold_time_max_ns=0"]).contains("the knobs"));
    }

    #[test]
    fn every_mechanism_has_its_command() {
        let variants = plimsoll_mm::design::Design::OURS.variants();
        assert_eq!(MECHANISMS.len(), variants.len());
    }
}
