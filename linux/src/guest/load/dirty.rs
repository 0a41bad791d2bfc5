//! The load `dirty`: each CPU changes a few counters in each period, so that the kernel never stops
//! scheduling the CPU's vmstat work.

use std::io;

use super::{Guest, Load, Parameter, Values};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

/// The number of periods after which a worker unmaps everything it has mapped. With a period of any
/// usual length, 37 periods are not a whole number of seconds. So a worker's unmaps come at
/// different moments of the one-second interval of its CPU's vmstat work.
const PERIODS_KEPT: u64 = 37;

pub(super) const LOAD: Load = Load {
    name: "dirty",
    about: "Every CPU touches a few more pages each period, so that the vmstat work of all CPUs keeps running and arms its timers",
    parameters: &[
        Parameter::number("seconds", "how long", 20, (1, 3600)),
        Parameter::number("period", "milliseconds of a period", 50, (1, 10_000)),
        Parameter::number("pages", "pages of each CPU and period", 16, (1, 4096)),
        Parameter::word(
            "spread",
            "whether the periods of the CPUs begin one after the other",
            &["yes", "no"],
        ),
    ],
    modules: &[],
    settles: false,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    Crew::ready(&programs(guest, values))?.together()
}

fn programs(guest: &Guest, values: &Values) -> Vec<Vec<Op>> {
    let period_us = values.number("period") * 1000;
    let periods = values.number("seconds") * 1_000_000 / period_us;
    // Every CPU gets a worker, including CPU 0, so that the vmstat work of all CPUs runs alike.
    let program = |cpu: u32| {
        let late_us = if values.text("spread") == "yes" {
            u64::from(cpu) * period_us / u64::from(guest.cpus)
        } else {
            0
        };
        let mut program = vec![Op::Cpu(cpu)];
        // Each worker begins to count periods at the number of its CPU, so that not all workers
        // unmap in the same period.
        for (period, kept) in (0..periods).zip(u64::from(cpu)..) {
            program.push(Op::Until(late_us + period * period_us));
            if kept % PERIODS_KEPT == PERIODS_KEPT - 1 {
                program.push(Op::UnmapAll);
            }
            program.push(Op::Map(values.count("pages")));
        }
        program
    };
    (0..guest.cpus).map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_spread_over_the_cpus_and_memory_is_bounded() {
        let values = LOAD.values(&["seconds=5".to_owned()]).unwrap();
        let programs = programs(&Guest { cpus: 4 }, &values);
        for (cpu, program) in (0..).zip(&programs) {
            assert_eq!(program[0], Op::Cpu(cpu));
            assert_eq!(program[1], Op::Until(u64::from(cpu) * 12_500));
            let mut kept = 0;
            for step in program {
                match step {
                    Op::Map(_) => kept += 1,
                    Op::UnmapAll => kept = 0,
                    _ => {}
                }
                assert!(kept <= PERIODS_KEPT, "CPU {cpu} keeps {kept} mappings");
            }
        }
    }
}
