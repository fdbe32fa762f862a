"""Measured cells of distributed runs: one job, one scheme, one link speed each; their archive.

An archive holds ``cells.json`` and the compressed recordings of the jobs alone, from which
predictions start. Needs the standard library only; `cell_archive` reads what this writes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import chain
from statistics import mean
from typing import TYPE_CHECKING, Any

from foretrace.tracer.lab.network.collective_sweep import CollectiveCost, relative_deviation
from foretrace.tracer.lab.pairs.archive import write_tar
from foretrace.tracer.step_stats import drift, trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

CELLS = "cells.json"
REPEAT_LIMIT = 0.05
FORWARD_LIMIT = 0.08  # a forward pass holds no communication: if it differs, the machine does
BYTES_LIMIT, BYTES_SLACK = 0.01, 50_000  # headers, acknowledgements, barriers
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "ping_pong")


@dataclass(frozen=True)
class CellRun:
    """One visit to a cell; an entry per process, servers last, times in ns.

    ``lone_ns`` are steps of the same job on all ranks at once but connected with nobody, just
    before and after; ``tx_bytes`` what each sent in all of ``step_ns``, ``expected_bytes`` what the
    scheme's formula says.
    """

    step_ns: tuple[tuple[int, ...], ...]
    forward_ns: tuple[tuple[int, ...], ...] = ()
    lone_ns: tuple[tuple[int, ...], ...] = ()
    lone_forward_ns: tuple[tuple[int, ...], ...] = ()
    tx_bytes: tuple[int, ...] = ()
    expected_bytes: tuple[int | None, ...] = ()
    drops: int = 0

    def problems(self) -> list[str]:
        """Return why this visit proves nothing: packets were dropped, bytes do not add up."""
        found = [f"{self.drops} packets dropped"] if self.drops else []
        counted = zip(self.tx_bytes, self.expected_bytes, strict=True)
        for rank, (sent, expected) in enumerate(counted):
            if expected is not None and abs(sent - expected) > BYTES_LIMIT * expected + BYTES_SLACK:
                found.append(f"rank {rank} sent {sent:,} bytes, not {expected:,}")
        return found


@dataclass(frozen=True)
class MeasuredCell:
    """One cell as it lies on disk.

    ``scheme`` is "ddp", "fp16", "powersgd", "no_sync", "slow_rank", "fsdp", "pipeline",
    "parameter_server", "contention" or one of `COLLECTIVES`; ``options`` are its parameters,
    ``facts`` what was observed. ``rate_mbit`` is ``None`` on an unshaped link. ``racks`` has the
    rack of each process. ``job`` names the recording of the job alone.
    """

    name: str
    scheme: str
    model: str | None
    ranks: int
    rate_mbit: int | None
    burst_bytes: int
    congestion_control: str
    racks: tuple[int, ...]
    uplink_mbit: int | None
    options: dict[str, Any]
    runs: tuple[CellRun, ...]
    job: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def step_ns(self) -> int:
        """Time of a step, or of a collective: trimmed mean, averaged over ranks."""
        return _over_ranks([run.step_ns for run in self.runs]) or 0

    @property
    def forward_ns(self) -> int | None:
        """Forward time in a step, where it was measured."""
        return _over_ranks([run.forward_ns for run in self.runs])

    @property
    def passes(self) -> int:
        """How many forward passes a step has."""
        return int(self.options.get("accumulation", 1))

    @property
    def lone_ns(self) -> int | None:
        """Time of a step of the job alone, with as many copies running as there are ranks."""
        return _over_ranks([run.lone_ns for run in self.runs])

    @property
    def lone_forward_ns(self) -> int | None:
        """Forward time of the job alone."""
        return _over_ranks([run.lone_forward_ns for run in self.runs])

    @property
    def noise(self) -> float:
        """Share by which visits differ; with one visit, its halves."""
        visits = [_over_ranks([run.step_ns]) or 0 for run in self.runs]
        if len(visits) > 1:
            return round(max(visits) / min(visits) - 1, 6)
        return max((drift(times) for times in self.runs[0].step_ns if times), default=0.0)

    @property
    def spread(self) -> float:
        """Standard deviation of single steps, as a share of their mean."""
        return relative_deviation([ns for run in self.runs for ns in chain(*run.step_ns)])

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the cell is inconclusive, in words; empty where it is conclusive."""
        found = [problem for run in self.runs for problem in run.problems()]
        if self.noise > REPEAT_LIMIT:
            found.append(f"repeats differ by {self.noise:.1%}")
        forward, lone = self.forward_ns, self.lone_forward_ns
        if forward and lone:
            off = forward / (lone * self.passes) - 1
            if abs(off) > FORWARD_LIMIT:
                found.append(f"forward differs by {off:+.1%} from the job alone")
        return tuple(dict.fromkeys(found))

    @property
    def is_conclusive(self) -> bool:
        """Whether a prediction may be judged on this cell."""
        return not self.problems


def write_cells(
    folder: Path, cells: Sequence[MeasuredCell], jobs: dict[str, Any], archive: Path
) -> None:
    """Pack *cells* and the recordings of *jobs*, which lie compressed in *folder*."""
    content = {"cells": [asdict(cell) for cell in cells], "jobs": jobs}
    (folder / CELLS).write_text(json.dumps(content), "utf-8")
    recordings = [folder / f"{job['trace']}.xz" for job in jobs.values()]
    write_tar(archive, folder, [folder / CELLS, *recordings])


def collective_costs(cells: Iterable[MeasuredCell]) -> list[CollectiveCost]:
    """Return what collectives alone took that ran within one rack."""
    return [
        CollectiveCost(
            kind=cell.scheme,
            ranks=cell.ranks,
            bytes=cell.options["bytes"],
            rate_mbit=cell.rate_mbit,
            ns=cell.step_ns,
            spread=cell.spread,
        )
        for cell in cells
        if cell.scheme in COLLECTIVES and not max(cell.racks)
    ]


def _over_ranks(visits: Sequence[Sequence[Sequence[int]]]) -> int | None:
    """Return the mean over ranks of the trimmed mean over all visits; ``None`` without times."""
    ranks = [[ns for times in each for ns in times] for each in zip(*visits, strict=True)]
    measured = [trimmed_mean(times) for times in ranks if times]
    return round(mean(measured)) if measured else None
