"""MeasuredCell cells from disk: archives that `cells` writes, or folders they are unpacked to."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.shaped_network.cells import CELLS, MeasuredCell
from foretrace.errors import TraceError
from foretrace.tracer.lab.pairs.read_archive import members, read_recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.trace import Trace


@dataclass(frozen=True)
class LoneRecording:
    """A job recorded alone, with as many copies running as ranks; what predictions start from.

    ``parameters`` are (name, shape, dtype) in definition order. ``read`` gives the trace.
    """

    name: str
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]
    read: Callable[[], Trace]


@dataclass(frozen=True)
class Cell(MeasuredCell):
    """A measured cell and the recording that its prediction starts from, where there is one."""

    recording: LoneRecording | None = None


def read_cells(where: str | Path) -> list[Cell]:
    """Return the cells of an archive, or of an unpacked one's folder.

    Raises
    ------
    TraceError
        There is none, or it is broken; the text names the file.
    """
    where = Path(where)
    if not where.exists():
        raise TraceError(f"{where} does not exist: give an archive of benchmarks.shaped_network")
    if where.is_dir():
        files = {path.name: path.read_bytes for path in sorted(where.iterdir()) if path.is_file()}
    else:
        files = members(where)
    if CELLS not in files:
        raise TraceError(f"{where} holds no {CELLS}: give an archive of benchmarks.shaped_network")
    return _cells(files, where)


def _cells(files: dict[str, Callable[[], bytes]], where: Path) -> list[Cell]:
    @dataclass
    class Content:
        cells: list[MeasuredCell]
        jobs: dict[str, dict[str, Any]]

    try:
        content = msgspec.convert(json.loads(files[CELLS]()), Content)
        jobs = {name: _recording(files, name, job, where) for name, job in content.jobs.items()}
    except (msgspec.ValidationError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{where}: {CELLS} is broken: {type(error).__name__} {error}") from error
    return [Cell(**_shallow(cell), recording=jobs.get(cell.job or "")) for cell in content.cells]


def _shallow(measured: MeasuredCell) -> dict[str, Any]:
    return {f.name: getattr(measured, f.name) for f in fields(measured)}


def _recording(
    files: dict[str, Callable[[], bytes]], name: str, job: dict[str, Any], where: Path
) -> LoneRecording:
    member = job["trace"]
    if member + ".xz" not in files:
        raise TraceError(f"{where}: {CELLS} names {member}.xz, which is not there")
    read = partial(read_recording, files[member + ".xz"], job["facts"], member, where)
    parameters = tuple((n, tuple(shape), dtype) for n, shape, dtype in job["parameters"])
    return LoneRecording(name, parameters, cache(read))
