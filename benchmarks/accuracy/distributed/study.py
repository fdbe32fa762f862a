"""All rows on jobs of several workers, gathered for their page: own runs and public measurements.

The list is data (`traces/study.toml`). What is not on this machine is named, never skipped
silently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.distributed.collectives import a100_rows, dlrm_rows, table_rows, v100_rows
from benchmarks.accuracy.distributed.ddp_jobs import FOLDERS, bucket_row, more_rows
from benchmarks.accuracy.distributed.megatron import pipeline_rows, plan_rows
from benchmarks.accuracy.distributed.operation_timelines import JOBS, timeline_rows
from benchmarks.accuracy.distributed.recorded_ranks import DLRM, dlrm
from benchmarks.accuracy.distributed.shaped_links import network_rows, pair_rows
from benchmarks.accuracy.distributed.sweeps import sweep_rows
from benchmarks.shaped_network.cell_archive import read_cells
from foretrace.analysis.evidence.measured_pair import MeasuredPair
from foretrace.util.progress import stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.accuracy.distributed.collectives import CheckRow, CollectiveRow
    from benchmarks.accuracy.distributed.ddp_jobs import BucketRow, MoreRow
    from benchmarks.accuracy.distributed.megatron import MegatronRow
    from benchmarks.accuracy.distributed.operation_timelines import TimelineRow
    from benchmarks.accuracy.distributed.recorded_ranks import RanksStudy
    from benchmarks.accuracy.distributed.shaped_links import NetworkRow
    from benchmarks.accuracy.distributed.sweeps import SweepRow

NCCL, TIMELINES = "vtrain-nccl", "straggler-analysis"
"""Folders of the public set, beside those of `study_ddp` and `study_ranks`."""


@dataclass(frozen=True)
class Distributed:
    """All rows; ``unforeseen`` are cells that no what-if predicts, ``absent`` folders not here."""

    cells: tuple[NetworkRow, ...] = ()
    unforeseen: dict[str, str] = field(default_factory=dict)
    sweeps: tuple[SweepRow, ...] = ()
    buckets: tuple[BucketRow, ...] = ()
    more: tuple[MoreRow, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    messages: tuple[CheckRow, ...] = ()
    plans: tuple[MegatronRow, ...] = ()
    timelines: tuple[TimelineRow, ...] = ()
    ranks: RanksStudy | None = None
    absent: tuple[str, ...] = ()


def run_distributed(listed: dict[str, Any], folder: Path) -> Distributed:
    """Predict everything that *listed* names; its archives lie in *folder*."""
    wanted = listed.get("distributed", {})
    shared = folder.parent / listed["shared"]
    iterations = folder.parent / wanted.get("iterations", MEGATRON)
    parts: dict[str, Any] = _own(wanted, folder)
    absent = []
    for place, rows in _PUBLIC.items():
        where = iterations if place == MEGATRON else shared / place
        if not where.is_dir():
            absent.append(place)
            continue
        with stage(f"studying {place}"):
            for name, made in rows(where, shared).items():
                parts[name] = (*parts.get(name, ()), *made) if isinstance(made, list) else made
    return Distributed(**parts, absent=tuple(absent))


def _own(wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
    cells = [
        cell
        for pattern in wanted.get("archives", ())
        for archive in sorted(folder.glob(pattern))
        for cell in read_cells(archive)
    ]
    with stage(f"predicting {len(cells)} cells"):
        rows, unforeseen = network_rows(
            cells, wanted.get("held_out", ()), wanted.get("tuned_on", ())
        )
    return {"cells": tuple(rows), "unforeseen": unforeseen, "sweeps": tuple(sweep_rows(cells))}


def _nersc(year: str) -> Callable[[Path, Path], dict[str, Any]]:
    return lambda _, shared: {
        "buckets": [bucket_row(shared, year)],
        "more": more_rows(shared, year),
    }


def _collectives(nccl: Path, shared: Path) -> dict[str, Any]:
    rows = {"collectives": [*a100_rows(nccl), *v100_rows(nccl), *table_rows(nccl)]}
    has_messages = (shared / DLRM).is_dir()
    return {**rows, "messages": dlrm_rows(nccl, shared / DLRM)} if has_messages else rows


def _megatron(iterations: Path, _: Path) -> dict[str, Any]:
    return {"plans": [*plan_rows(iterations), *pipeline_rows(iterations)]}


def _timelines(where: Path, _: Path) -> dict[str, Any]:
    return {"timelines": [row for job in JOBS for row in timeline_rows(where, job)]}


def _ranks(_: Path, shared: Path) -> dict[str, Any]:
    return {"ranks": dlrm(shared)}


MEGATRON = "vtrain-iterations"
_PUBLIC: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    **{folder: _nersc(year) for year, folder in FOLDERS.items()},
    NCCL: _collectives,
    MEGATRON: _megatron,
    TIMELINES: _timelines,
    DLRM: _ranks,
}
"""Public measurements by their folder: what makes rows of them."""


def validating_pairs(study: Distributed) -> list[MeasuredPair]:
    """Return the rows that tell the error of what-ifs: own cells on CPUs, NERSC's jobs on GPUs."""
    return [*pair_rows(study.cells), *map(_pair_of, study.more)]


def _pair_of(row: MoreRow) -> MeasuredPair:
    """Return a row as a pair: what NCCL costs kernels was tuned on traces of this job (P11)."""
    return MeasuredPair(
        name=f"NERSC {row.year}, {row.what}",
        model=f"unet-{row.year}",
        change="4 to 8 GPUs",
        hardware="gpu",
        transforms=("ddp",),
        measure="step",
        before_ns=1e6 * row.null_ms,
        after_ns=1e6 * row.measured_ms,
        rule_ns=1e6 * row.nominal_ms,
        paper_ns=None,
        where=row.place.workers if row.place else "",
        place=row.place,
        tuned_on=True,
    )
