"""Experiments, their points, and the runs of both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

import pyarrow
import pyarrow.parquet

from . import _native

#: A path of an experiment file, an experiment, or a point of a sweep.
Runnable = Union[str, "os.PathLike[str]", "Experiment", "Point"]


@dataclass(frozen=True)
class Experiment:
    """The text of an experiment file, and what to change in it.

    An experiment is plain data: it can be pickled and sent to another computer. If it names machines
    by profile files, these files must be there too.
    """

    #: The text of the file: TOML.
    text: str
    #: The name of the file, for errors and for the column `command`.
    file: str = "experiment.toml"
    #: The folder at which relative paths of profile files begin.
    folder: str = ""
    #: Every design runs with seeds 1 to this number; `None` leaves the number of the file.
    seeds: int | None = None
    #: Knobs that are set in all designs, by their names in Plimsoll or in Linux.
    knobs: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str],
        *,
        seeds: int | None = None,
        knobs: Mapping[str, int] | None = None,
    ) -> Experiment:
        """Reads an experiment file.

        Raises `BadInput` if the file cannot be read. The text is checked when it is used.
        """
        path = Path(file)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInput(f"{path}: cannot be read: {why}") from error
        return cls(text, str(path), str(path.parent), seeds, dict(knobs or {}))

    @property
    def settings(self) -> list[str]:
        """The knobs as the command line takes them: `NAME=VALUE`."""
        return [f"{name}={value}" for name, value in self.knobs.items()]


@dataclass(frozen=True)
class Point:
    """One point of a sweep. Its samples follow from its experiment and its index alone."""

    experiment: Experiment
    #: The number of the point, from 0, among those that the sweep runs.
    index: int
    #: The value on each axis, as text, by the key of the axis in the experiment file.
    values: Mapping[str, str]

    @property
    def title(self) -> str:
        """The point in words: the column `about` of its samples."""
        return ", ".join(f"{axis}={value}" for axis, value in self.values.items())


#: An error of Plimsoll. Its text is that of the command `plimsoll`.
Error = _native.Error
#: An error that the caller can correct, such as an unknown name. Its text says what to do.
BadInput = _native.BadInput


def _experiment(of: str | os.PathLike[str] | Experiment) -> Experiment:
    return of if isinstance(of, Experiment) else Experiment.load(of)


def table(parquet: bytes) -> pyarrow.Table:
    """Returns the table that a Parquet file in memory contains."""
    return pyarrow.parquet.read_table(pyarrow.BufferReader(parquet))


def run(
    experiment: Runnable, *, jobs: int | None = None, progress: bool = False
) -> pyarrow.Table:
    """Runs an experiment, all points of its sweep, or one point, and returns the samples.

    A row is one metric of one case; the columns are those of `plimsoll results export`. The run is
    not kept in a store, so `run` and `started` are empty, and equal runs give equal tables.

    `jobs` is the number of cases that run at once: one per CPU, unless it is given. With
    `progress`, a bar is shown on standard error if that is a terminal.

    Other threads of Python run meanwhile. Ctrl-C raises `KeyboardInterrupt` at once; the cases that
    run then end in the background.
    """
    if isinstance(experiment, Point):
        parquet = _native.run(experiment.experiment, experiment.index, jobs, progress)
    else:
        parquet = _native.run(_experiment(experiment), None, jobs, progress)
    return table(parquet)


def points(experiment: str | os.PathLike[str] | Experiment) -> list[Point]:
    """The points of an experiment's sweep, each of which `run` runs alone.

    Raises `BadInput` if anything is wrong with the experiment or with a point, or if it has no sweep.
    """
    of = _experiment(experiment)
    axes, values = _native.points(of)
    return [Point(of, index, dict(zip(axes, at))) for index, at in enumerate(values)]


def check(experiment: str | os.PathLike[str] | Experiment) -> dict[str, str]:
    """Describes what an experiment would run, as `plimsoll check` does, without running it.

    Raises `BadInput` with every mistake: file, line, column and key.
    """
    return dict(_native.check(_experiment(experiment)))


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    jobs: int | None = None,
    progress: bool = False,
) -> pyarrow.Table:
    """Runs a built-in experiment, one of `experiments()`, and returns the samples.

    With `quick`, runs are shorter, the machines fewer and smaller, and there are 2 seeds unless
    `seeds` says otherwise. Everything else is as for `run`.
    """
    return table(_native.reproduce(name, quick, seeds, jobs, progress))


@dataclass(frozen=True)
class _Replay:
    recording: str
    machine: str
    scale: int
    a: str | None
    b: str | None
    seeds: int
    card: str


def replay(
    recording: str | os.PathLike[str],
    machine: str,
    *,
    scale: int = 1,
    a: str | None = None,
    b: str | None = None,
    seeds: int = 6,
    card: str = "mid",
    jobs: int | None = None,
    progress: bool = False,
) -> pyarrow.Table:
    """Replays a recording on a simulated machine, and returns the samples.

    `scale` copies of the recording run side by side. Design `a` is Linux's unless it is given;
    without `b`, only `a` runs. `card` is `low`, `mid` or `high`. Everything else is as for `run`.
    """
    options = _Replay(os.fspath(recording), machine, scale, a, b, seeds, card)
    return table(_native.replay(options, jobs, progress))
