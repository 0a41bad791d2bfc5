//! Brings the per-CPU lists into a known state, so that a replay can begin with the same state.
//!
//! Besides its pages, a list has `high` and the number of pages that frees move at once. With
//! `percpu_pagelist_high_fraction` at its largest, `high` is as small as it can be, and taking a
//! CPU offline empties its lists. A few allocations and frees then settle the rest. CPU 0 cannot be
//! taken offline.

use std::fs;
use std::io;

use super::{Guest, leave, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";
/// Reading this file makes each CPU fold its differentials into the counters of zones.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
/// A fraction so large that `high` is four batches on every computer.
const LEAST_HIGH: &str = "1000000";
/// Pages that cause several refills and spills at the smallest `high`.
const PAGES_BEFORE: usize = 300;
/// Pages that are fewer than one batch: they need one refill, and all stay on the list when they
/// are freed.
const PAGES_AFTER: usize = 40;

pub(super) fn settle(guest: &Guest) -> io::Result<()> {
    fs::write(FRACTION, LEAST_HIGH)?;
    use_lists(guest, PAGES_BEFORE)?;
    for cpu in 1..guest.cpus {
        set_online(cpu, "0")?;
        mark(&format!("cpu {cpu} is off"))?;
    }
    for cpu in 1..guest.cpus {
        set_online(cpu, "1")?;
        mark(&format!("cpu {cpu} is on"))?;
    }
    use_lists(guest, PAGES_AFTER)?;
    fs::write(FRACTION, "0")?;
    mark("high is free again")?;
    // Each CPU has counted some free pages that the zone's counter does not include yet; this read
    // makes the CPUs fold them.
    let _ = fs::read(STAT_REFRESH)?;
    // The note follows immediately, because whatever happens before it is part of the state that
    // this text describes.
    let zoneinfo = fs::read_to_string("/proc/zoneinfo")?;
    mark("settled")?;
    leave("zoneinfo settled", &zoneinfo)
}

fn use_lists(guest: &Guest, pages: usize) -> io::Result<()> {
    let program = |_| vec![Op::Map(pages), Op::UnmapAll];
    Crew::ready(&guest.programs(program))?.together()
}

fn set_online(cpu: u32, state: &str) -> io::Result<()> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&file, state).map_err(|error| {
        let text = format!("cannot write {state} to {file}: {error}");
        io::Error::new(error.kind(), text)
    })
}
