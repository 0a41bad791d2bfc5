"""The names that an experiment can use: machines, designs, variants and knobs."""

from __future__ import annotations

from dataclasses import dataclass

from . import _native


@dataclass(frozen=True)
class Machine:
    """A built-in simulated machine."""

    name: str
    about: str
    cpus: int
    nodes: int
    memory_bytes: int


@dataclass(frozen=True)
class Design:
    """A named choice of one variant for each mechanism."""

    name: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One implementation of a mechanism. `linux+phased` is `linux` with the variant `phased`."""

    name: str
    mechanism: str
    about: str


@dataclass(frozen=True)
class Knob:
    """A setting of the memory manager. A value under the name in Linux has the unit of Linux."""

    name: str
    about: str
    unit: str
    default: int
    minimum: int
    maximum: int
    #: The name in Linux, or the reason why Linux does not have the knob.
    linux_name: str
    linux_unit: str
    #: The number of `unit` that one `linux_unit` equals.
    linux_factor: int


def machines() -> list[Machine]:
    """The built-in machines and their variants, such as those with KASAN."""
    return [Machine(*of) for of in _native.machines()]


def designs() -> list[Design]:
    """The named designs."""
    return [Design(name, tuple(of.split(" + "))) for name, of in _native.designs()]


def variants() -> list[Variant]:
    """The variants of every mechanism."""
    return [Variant(*of) for of in _native.variants()]


def knobs() -> list[Knob]:
    """The knobs of the memory manager."""
    rows = _native.knobs()
    return [
        Knob(name, about, unit, default, low, high, *of_linux)
        for name, about, unit, default, low, high, of_linux in rows
    ]


def experiments() -> dict[str, str]:
    """The built-in experiments that `reproduce` runs: the question of each by its name."""
    return dict(_native.experiments())
