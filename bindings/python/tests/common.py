"""Helpers that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow

ROOT = Path(__file__).resolve().parents[3]
#: The command `plimsoll`, with which results are compared.
COMMAND = Path(os.environ.get("PLIMSOLL_COMMAND", ROOT / "target/debug/plimsoll"))

#: An experiment of a few milliseconds.
SHORT = """
schema = 1
name = "short"
machines = ["laptop-2"]
seeds = 2
length_ms = 20
[workload]
name = "stress-vm"
[[design]]
design = "linux"
[[design]]
design = "ours"
"""

SWEEP = """
[sweep]
"knob:vm.stat_interval" = [1, 2, 3, 5, 8, 13]
"workload.workers" = [1, 2, 4, 6]
"""


def samples(table: pyarrow.Table) -> pyarrow.Table:
    """The samples in a fixed order, without the columns about the run that made them."""
    about_the_run = ["run", "started", "commit", "command", "inputs"]
    keys = ["comparison", "about", "machine", "design", "seed", "metric"]
    order = [(key, "ascending") for key in keys]
    return table.drop_columns(about_the_run).sort_by(order)  # type: ignore[arg-type]


def keys(table: pyarrow.Table) -> list[tuple[object, ...]]:
    """Returns the key of each sample. No two samples may have the same key."""
    names = ["comparison", "about", "machine", "design", "seed", "metric"]
    return list(zip(*(table.column(name).to_pylist() for name in names)))
