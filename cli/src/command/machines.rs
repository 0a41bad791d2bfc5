//! `plimsoll machines`: lists all simulated machines, or describes one with the sources of its
//! costs.

use plimsoll_lab::catalog::machines;
use plimsoll_lab::report::table;

use crate::args::Machines;
use crate::output;

pub(crate) fn run(args: &Machines) -> anyhow::Result<()> {
    let tables = match &args.machine {
        None => vec![machines::list()],
        Some(machine) => machines::describe(machine)?,
    };
    output::print(&table::render_tables(&tables, output::width()))
}
