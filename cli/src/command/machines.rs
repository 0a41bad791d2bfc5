//! `plimsoll machines`: lists all simulated machines, describes one with the sources of its costs,
//! or copies the profile of one.

use std::path::Path;

use plimsoll_lab::catalog::machines;
use plimsoll_lab::report::table;

use crate::args::Machines;
use crate::output;

pub(crate) fn run(args: &Machines) -> anyhow::Result<()> {
    let tables = match (&args.machine, &args.copy) {
        (None, _) => vec![machines::list()],
        (Some(machine), Some(file)) => return copy(machine, file),
        (Some(machine), None) => machines::describe(machine)?,
    };
    output::print(&table::render_tables(&tables, output::width()))
}

/// Copies the profile of the built-in machine `machine` to the new file `file`.
fn copy(machine: &str, file: &Path) -> anyhow::Result<()> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    output::write_new(file, &machines::copy_of(machine, &name)?)?;
    let file = file.display();
    output::print(&format!(
        "wrote {file}, a copy of {machine} with the name {name}; change what differs, and name \
         {file} where a command takes a machine\n"
    ))
}
