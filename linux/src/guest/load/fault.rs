//! The load `fault`: every CPU maps, touches and unmaps pages. In the first part, all CPUs run
//! together. In the second part, the CPUs run one after the other. In the third part, all CPUs run
//! together again, but each worker unmaps its pages on the next CPU.

use std::io;

use super::{Guest, Load, Parameter, Values, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

pub(super) const LOAD: Load = Load {
    name: "fault",
    about: "Every CPU touches fresh pages and unmaps them: all CPUs at once, then one after the \
            other, then freed by the CPU beside the one that allocated",
    parameters: &[
        Parameter::number("rounds", "mappings of each CPU and part", 3, (1, 1000)),
        Parameter::number("pages", "pages of one mapping", 4096, (1, 1 << 18)),
        Parameter::number(
            "pause",
            "milliseconds between two mappings",
            100,
            (0, 60_000),
        ),
        Parameter::word(
            "mode",
            "which of the three parts run",
            &["all", "together", "in-turn", "freed-elsewhere"],
        ),
    ],
    modules: &[],
    settles: true,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    let mode = values.text("mode");
    let part = |name: &str| mode == "all" || mode == name;
    if part("together") {
        mark("all CPUs at once")?;
        ready(guest, values, |_| None)?.together()?;
    }
    if part("in-turn") {
        mark("one CPU after the other")?;
        ready(guest, values, |_| None)?.in_turn()?;
    }
    if part("freed-elsewhere") {
        mark("freed by the CPU beside")?;
        ready(guest, values, |cpu| Some(guest.neighbour(cpu)))?.together()?;
    }
    Ok(())
}

/// Returns one worker for each working CPU. A worker unmaps on the CPU that `elsewhere` returns for
/// the worker's own CPU; if `elsewhere` returns `None`, the worker unmaps on its own CPU.
fn ready(
    guest: &Guest,
    values: &Values,
    elsewhere: impl Fn(u32) -> Option<u32>,
) -> io::Result<Crew> {
    let program = |cpu: u32| {
        let mut round = vec![Op::Map(values.count("pages"))];
        if let Some(other) = elsewhere(cpu) {
            round.extend([Op::Cpu(other), Op::UnmapAll, Op::Cpu(cpu)]);
        } else {
            round.push(Op::UnmapAll);
        }
        round.push(Op::Sleep(values.number("pause")));
        vec![round; values.count("rounds")].concat()
    };
    Crew::ready(&guest.programs(program))
}
