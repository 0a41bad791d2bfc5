//! `reproduce oom-latency` and `reproduce oom-accuracy`: when memory is out, how long does it take
//! to choose the victim, and is it the right one?
//!
//! Every process has real counters of the simulated machine, to which its pages were added on the
//! CPUs it ran on. A selector then runs on one CPU and pays for each process it looks at, for each
//! cache line it fetches, and for each CPU it sums.
//!
//! `population`: the processes, and where their pages were touched. `set`: a population on a
//! machine, and one selection. `oracle`: the right choice. `latency`, `accuracy`: the experiments.

mod accuracy;
mod latency;
mod oracle;
mod population;
mod processes;

pub(super) use self::accuracy::EXPERIMENT as ACCURACY;
pub(super) use self::latency::EXPERIMENT as LATENCY;
use crate::catalog::designs::Named;

/// The machine of the published times.
const MACHINE: &str = "epyc-9654-256";

/// Linux from 6.18 on.
const PRECISE: &str = "select-precise+flat";
/// Linux before 6.18.
const APPROXIMATE: &str = "select-approximate+flat";
const PATCH: &str = "select-two-pass+tree";
const OURS: &str = "select-bounded+one-sided";

/// The designs with their column heads.
fn heads(designs: &[Named]) -> impl Iterator<Item = (String, &Named)> {
    designs.iter().map(|design| (short(design), design))
}

/// The column head of a design in tables.
fn short(design: &Named) -> String {
    let name = design.name.replace('+', " ");
    name.trim_start_matches("select-").to_owned()
}
