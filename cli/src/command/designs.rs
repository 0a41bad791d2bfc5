//! `plimsoll designs`: lists the designs that can be compared.

use plimsoll_lab::catalog::designs;
use plimsoll_lab::report::table;

use crate::output;

pub(crate) fn run() -> anyhow::Result<()> {
    output::print(&table::render_tables(&designs::list(), output::width()))
}
