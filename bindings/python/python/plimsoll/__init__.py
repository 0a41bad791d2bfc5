"""Experiments with the memory manager of a many-core machine, which is simulated.

`run` runs an experiment file, or one point of its sweep, and returns the samples as an Arrow table.
"""

from ._catalog import (
    Design,
    Knob,
    Machine,
    Variant,
    designs,
    experiments,
    knobs,
    machines,
    variants,
)
from ._experiment import (
    BadInput,
    Error,
    Experiment,
    Point,
    Runnable,
    check,
    points,
    replay,
    reproduce,
    run,
)
from ._native import COMMIT as __commit__
from ._native import VERSION as __version__

__all__ = [
    "BadInput",
    "Design",
    "Error",
    "Experiment",
    "Knob",
    "Machine",
    "Point",
    "Runnable",
    "Variant",
    "__commit__",
    "__version__",
    "check",
    "designs",
    "experiments",
    "knobs",
    "machines",
    "points",
    "replay",
    "reproduce",
    "run",
    "variants",
]
