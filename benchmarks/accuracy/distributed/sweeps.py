"""Collectives alone and computing in their company: rows of the study, and what clusters learn.

In: cells of an archive of `benchmarks.shaped_network`. Out: rows beside the forms of gloo, and
the measured figures that the preset "shaped-links" holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

from benchmarks.accuracy.distributed.shaped_scenarios import CLUSTERS, devices_of
from foretrace.transforms.cluster.cost_tables import KINDS
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.shaped_network.cell_archive import Cell
    from foretrace.transforms.cluster.model import Cluster


@dataclass(frozen=True)
class SweepRow:
    """One collective alone: measured, and by the form of its library. Times in ns."""

    kind: str
    ranks: int
    racks: bool
    bytes: int
    rate_mbit: int
    measured_ns: float
    form_ns: float
    spread: float

    @property
    def error(self) -> float:
        """Signed relative error of the form."""
        return self.form_ns / self.measured_ns - 1


def sweep_rows(cells: Iterable[Cell]) -> list[SweepRow]:
    """Return the collectives alone, beside what their forms say."""
    return [_sweep_row(cell) for cell in cells if cell.scheme in KINDS and cell.rate_mbit]


def _sweep_row(cell: Cell) -> SweepRow:
    assert cell.rate_mbit is not None
    size, kind = cell.options["bytes"], cell.scheme
    ranks = 2 if kind == "send" else cell.ranks
    cluster = replace(_cluster(cell.rate_mbit, cell.ranks, racks=bool(max(cell.racks))), table=None)
    return SweepRow(
        kind=kind,
        ranks=cell.ranks,
        racks=bool(max(cell.racks)),
        bytes=size,
        rate_mbit=cell.rate_mbit,
        measured_ns=cell.step_ns,
        form_ns=collective_cost(cluster, devices_of(cell.racks)[:ranks], kind, size).ns,
        spread=cell.spread,
    )


def _cluster(rate_mbit: int, ranks: int, *, racks: bool = False) -> Cluster:
    return load_cluster(CLUSTERS[racks], nodes=ranks).with_network(gb_per_s=rate_mbit / 8_000)


def contention(cells: Iterable[Cell]) -> dict[int | None, tuple[float, float]]:
    """Return rate in Mbit/s to the speeds of computing and of transfers that overlap.

    Means over ranks and over what was computed; none above 1.
    """
    by_rate: dict[int | None, list[tuple[float, float]]] = {}
    for cell in cells:
        if cell.scheme == "contention":
            share, stretch = mean(cell.facts["compute_share"]), cell.facts["stretch"]
            by_rate.setdefault(cell.rate_mbit, []).append((share, stretch))
    return {
        rate: (min(mean(shares), 1.0), min(1 / mean(stretches), 1.0))
        for rate, measured in by_rate.items()
        for shares, stretches in [zip(*measured, strict=True)]
    }
