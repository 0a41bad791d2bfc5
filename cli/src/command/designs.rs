//! `plimsoll designs` and `plimsoll knobs`: list the designs that can be compared, and the knobs
//! that can be set in them. `plimsoll host`: shows what a machine on this computer uses.

use plimsoll_lab::catalog::{designs, host, knobs};
use plimsoll_lab::report::table;

use crate::output;

pub(crate) fn run() -> anyhow::Result<()> {
    output::print(&table::render_tables(&designs::list(), output::width()))
}

pub(crate) fn host() -> anyhow::Result<()> {
    output::print(&table::render_tables(&host::here(), output::width()))
}

pub(crate) fn knobs() -> anyhow::Result<()> {
    output::print(&table::render_tables(&[knobs::list()], output::width()))
}
