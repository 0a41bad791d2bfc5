//! The load `bursts`: each CPU allocates and frees many pages in a row, then stays idle for a
//! while, so that the kernel lowers `high`, the limit of the CPU's page lists.

use std::io;

use super::{Guest, Load, Parameter, Values};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

pub(super) const LOAD: Load = Load {
    name: "bursts",
    about: "Every CPU frees a large mapping at once, then is idle while its lists decay",
    parameters: &[
        Parameter::number("rounds", "bursts of each CPU", 2, (1, 1000)),
        Parameter::number("pages", "pages of one burst", 8192, (1, 1 << 18)),
        Parameter::number("idle", "milliseconds after each burst", 4000, (0, 600_000)),
    ],
    modules: &[],
    settles: true,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    let program = |_| {
        let round = [
            Op::Map(values.count("pages")),
            Op::UnmapAll,
            Op::Sleep(values.number("idle")),
        ];
        vec![round; values.count("rounds")].concat()
    };
    Crew::ready(&guest.programs(program))?.together()
}
