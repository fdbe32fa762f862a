"""The TOML file of ``foretrace job resources``: a job, a machine, and what to try on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from foretrace.util.toml_file import read_toml

if TYPE_CHECKING:
    from pathlib import Path

Count = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Cores = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Workers = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Positive = Annotated[float, msgspec.Meta(ge=1e-9, le=1e12)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
MOST_VALUES = 32
"""Of one axis of the grid."""
Times = Positive | Annotated[list[Positive], msgspec.Meta(min_length=1)]
"""One time, or one per repeat of the measurement."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; unknown keys are refused, and numbers out of range, nan among them."""


class GivenJob(_Table, frozen=True):
    """What a step costs: training alone, making a batch from memory, taking it from a worker.

    What a recording says may be left out if one is given beside the file.
    """

    samples: Count
    dataset_gb: Positive
    batch_size: Count | None = None
    compute_ms: Times | None = None
    prepare_ms: Times | None = None
    hand_over_ms: NotNegative | None = None
    threads: Positive | None = None


class GivenMachine(_Table, frozen=True):
    """What the machine has; ``stream_mbps`` is what one reader gets of the disk's ``disk_mbps``."""

    disk_mbps: Positive
    cores: Cores | None = None
    effective_cores: Positive | None = None
    stream_mbps: Positive | None = None
    memory_gbps: Positive = 10.0


class GivenGrid(_Table, frozen=True):
    """What to try; without ``workers`` every number up to twice the cores."""

    cores: Annotated[list[Cores], msgspec.Meta(min_length=1, max_length=MOST_VALUES)]
    cache: Annotated[list[Fraction], msgspec.Meta(min_length=1, max_length=MOST_VALUES)]
    workers: Annotated[list[Workers], msgspec.Meta(min_length=1, max_length=MOST_VALUES)] | None = (
        None
    )


class GivenStep(_Table, frozen=True):
    """A step that was measured with everything cached."""

    cores: Cores
    workers: Workers
    step_ms: Positive


class Price(_Table, frozen=True):
    """Prices per hour: of a core, of a GB of memory for the cache, of the rest of the machine."""

    core: Positive
    memory_gb: Positive
    rest: NotNegative = 0.0
    currency: str = "USD"


class Resources(_Table, frozen=True):
    """The whole file."""

    job: GivenJob
    machine: GivenMachine
    grid: GivenGrid
    measured: list[GivenStep] = []
    price: Price | None = None


def read_resources(path: Path) -> Resources:
    """Read the file at *path*.

    Raises
    ------
    RefusedError
        It cannot be read, is no TOML, misses a value, has an unknown key or a number out of range.
    """
    return read_toml(path, Resources)
