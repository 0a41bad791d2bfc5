//! `reproduce oom-latency` and `reproduce oom-accuracy`: when memory runs out, how long does it
//! take to choose a victim, and is the victim the right one?
//!
//! Every simulated process has the counters of `plimsoll-mm`. Before the selection, the CPUs on
//! which a process ran have added the process's pages to its counters. A selector then runs on one
//! CPU. The simulator charges the selector for each process that the selector examines, each cache
//! line that it fetches, and each CPU whose part of a counter the selector adds to a sum.
//!
//! The submodule `population` has the processes, and the CPUs on which they touched their pages.
//! `processes` puts a population on a machine and makes one selection. `oracle` computes the right
//! choice. `latency` and `accuracy` are the two experiments. `matrix` is a part of `latency`.

mod accuracy;
mod latency;
mod matrix;
mod oracle;
mod population;
mod processes;

use plimsoll_sim::profile::Profile;

pub(super) use self::accuracy::SUBJECT as ACCURACY;
pub(super) use self::latency::SUBJECT as LATENCY;
use crate::error::Error;
use crate::experiment::driver::{Setting, Tried};

/// The machine for which selection times were published.
#[cfg(test)]
const MACHINE: &str = "epyc-9654-256";

/// The design with the selection of Linux 6.18 and later, which sums every counter precisely.
const PRECISE: &str = "select-precise+flat";
/// The design with the selection of Linux before version 6.18, which does not read every CPU's part
/// of a counter.
const APPROXIMATE: &str = "select-approximate+flat";
const PATCH: &str = "select-two-pass+tree";
const OURS: &str = "select-bounded+one-sided";

/// Returns the machine's profile. The machine must have at least 4 CPUs, because two CPUs other
/// than CPU 0 are needed: one for the selection of a victim, and one for the process that grows.
fn profile(setting: &Setting<'_>) -> Result<Profile, Error> {
    let profile = setting.profile()?;
    if profile.topology.cpus() < 4 {
        let why = "a selection needs a machine with at least 4 CPUs";
        return Err(Error::Invalid(why.to_owned()));
    }
    Ok(profile)
}

/// Pairs each design with the heading of its column in tables.
fn heads(designs: &[Tried]) -> impl Iterator<Item = (String, &Tried)> {
    designs.iter().map(|design| (short(design), design))
}

/// The heading of a design's column in tables: its name without `select-`, and with spaces for `+`.
fn short(design: &Tried) -> String {
    let name = design.name.replace('+', " ");
    name.trim_start_matches("select-").to_owned()
}
