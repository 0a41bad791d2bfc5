//! The load `fork`: programs start and exit. For each program, the kernel allocates stacks, page
//! tables, and pages in bulk.

use std::io;

use super::{Guest, Load, Parameter, Values};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

pub(super) const LOAD: Load = Load {
    name: "fork",
    about: "Every CPU starts programs that end at once, first one by one and then many together: \
            kernel stacks, page tables, bulk allocations",
    parameters: &[
        Parameter::number("rounds", "rounds of each CPU", 2, (1, 1000)),
        Parameter::number(
            "programs",
            "programs of one round, one by one",
            8,
            (0, 10_000),
        ),
        Parameter::number("crowd", "programs that then run together", 4, (0, 1000)),
    ],
    modules: &[],
    settles: true,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    let times = |name| u32::try_from(values.number(name)).unwrap_or(u32::MAX);
    let program = |_| {
        let round = [Op::Exec(times("programs")), Op::ExecCrowd(times("crowd"))];
        vec![round; values.count("rounds")].concat()
    };
    Crew::ready(&guest.programs(program))?.together()
}
