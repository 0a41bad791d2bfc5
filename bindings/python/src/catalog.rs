//! Lists of the names that an experiment can use: machines, designs, variants (the algorithms of
//! which a design consists) and knobs (settings, like the sysctls of Linux).

use plimsoll_lab::Card;
use plimsoll_lab::catalog::{designs as lab_designs, knobs as lab_knobs, machines as lab_machines};
use plimsoll_mm::tunables::{Knob, Spec};
use pyo3::prelude::*;

use crate::raised;

/// A machine: name, description, CPUs, nodes, and bytes of memory.
type MachineRow = (String, String, u32, usize, u64);

/// The built-in machines.
#[pyfunction]
pub(crate) fn machines() -> PyResult<Vec<MachineRow>> {
    let machine = |row: Vec<String>| {
        let mut cells = row.into_iter();
        let name = cells.next().unwrap_or_default();
        let about = cells.next().unwrap_or_default();
        let profile = lab_machines::load(&name, Card::Mid).map_err(|error| raised(&error))?;
        let (cpus, nodes) = (profile.topology.cpus(), profile.node_bytes.len());
        Ok((name, about, cpus, nodes, profile.node_bytes.iter().sum()))
    };
    lab_machines::list().rows.into_iter().map(machine).collect()
}

/// The named designs: name, and the names of the algorithms (variants) that the design uses, joined
/// by ` + `.
#[pyfunction]
pub(crate) fn designs() -> Vec<Vec<String>> {
    lab_designs::list().swap_remove(0).rows
}

/// The variants, which are the algorithms that a design can use: name, the mechanism that the
/// variant implements, description.
#[pyfunction]
pub(crate) fn variants() -> Vec<Vec<String>> {
    lab_designs::list().swap_remove(1).rows
}

/// A knob (a setting, like a sysctl of Linux): name, description, unit, default, minimum, maximum;
/// then the name and the unit in Linux, and the number of units that equal one unit of Linux.
type KnobRow = (
    &'static str,
    &'static str,
    &'static str,
    u64,
    u64,
    u64,
    (&'static str, &'static str, u64),
);

/// The knobs.
#[pyfunction]
pub(crate) fn knobs() -> Vec<KnobRow> {
    let row = |knob: Knob| {
        let Spec {
            name,
            linux,
            linux_unit: (linux_unit, factor),
            unit,
            default,
            min,
            max,
            ..
        } = knob.spec();
        let of_linux = (linux, linux_unit, factor);
        (
            name,
            lab_knobs::about(knob),
            unit,
            default,
            min,
            max,
            of_linux,
        )
    };
    Knob::ALL.map(row).to_vec()
}
