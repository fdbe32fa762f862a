"""A loader behind a throttled disk and a cache: section of docs/accuracy-job.md.

In: parts of a step that were measured alone, and steps that were measured together. Out: how far
off the closed form is, for each share of cached data and number of workers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.accuracy.markdown import percent, table
from foretrace.job.resources.throughput import Step, Storage, fixed_hits, pace, recent_hits, synergy
from foretrace.tracer.step_stats import trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from foretrace.job.resources.throughput import Pace

NAMES = {
    "even": "Training, preparing and reading take about as long",
    "slow-disk": "Training and a slow disk decide",
}
TEXT = """\
Real training of a small CNN on two cores beside a loader: items are compressed in a file, reading \
it is limited to a rate that all workers share, and a share of the items lies in memory.
"From parts" predicts a step from parts that were measured alone.
"Optimistic" has the step with everything cached as it was measured with as many workers, as \
Synergy profiles, and adds what is missed; Synergy's own form takes the larger of that step and of \
the time to fetch.
That handing a batch over costs the worker as much as the training process was found on the first \
loader; the second was measured and predicted afterwards.
"""


class LoadingCell(NamedTuple):
    """A step that was measured, in seconds, and what was said of it."""

    cache: str
    fraction: float
    workers: int
    measured: float
    parts: Pace
    optimistic: float
    synergy: float

    def errors(self) -> tuple[float, float, float]:
        """Return the relative errors: from parts, optimistic, Synergy's."""
        steps = (self.parts.seconds, self.optimistic, self.synergy)
        return tuple(each / self.measured - 1 for each in steps)  # type: ignore[return-value]


def loading_section(recorded: Path) -> list[str]:
    """Return the section of the page; *recorded* is the folder of own recordings."""
    loaders = {
        title: cells_of(json.loads((recorded / f"loading-{name}.json").read_text("utf-8")))
        for name, title in NAMES.items()
    }
    lines = ["## Cores and cached data", "", TEXT, *_summary(loaders)]
    for title, cells in loaders.items():
        lines += ["", f"{title}:", "", *_table(cells)]
    return lines


def cells_of(recorded: dict[str, Any]) -> list[LoadingCell]:
    """Return every measured cell of a loader with its predictions, fixed caches first."""
    step, cores = parts_of(recorded)
    storage = Storage(recorded["disk"], recorded["disk"])
    dataset_gb = recorded["items"] * recorded["item_bytes"] / 1e9
    measured: dict[tuple[str, float, int], list[float]] = {}
    for cell in recorded["cells"]:
        key = (cell["cache"], cell["fraction"], cell["workers"])
        measured.setdefault(key, []).extend(cell["seconds"])
    steps = recorded["items"] / recorded["batch"]
    rows = []
    for (cache, fraction, workers), seconds in sorted(measured.items(), key=_by_workers):
        full = float(np.mean(measured["fixed", 1.0, workers]))
        hits = (fixed_hits if cache == "fixed" else recent_hits)(fraction)
        parts = pace(step, storage, workers=workers, hits=hits, cores=cores)
        ours = pace(step, storage, workers=workers, hits=hits, cores=cores, measured=full)
        published = synergy(
            full * steps,
            dataset_gb=dataset_gb * 1000 / 1024,  # its GB have 1,024 MB
            fraction=hits,
            memory_gb_per_s=_rate(recorded) / 1e9,
            disk_mb_per_s=recorded["disk"] / 1e6,
        )
        means = (float(np.mean(seconds)), parts, ours.seconds, published.epoch / steps)
        rows.append(LoadingCell(cache, fraction, workers, *means))
    return rows


def _by_workers(cell: tuple[tuple[str, float, int], list[float]]) -> tuple[str, int, float]:
    (cache, fraction, workers), _seconds = cell
    return cache, workers, fraction


def parts_of(recorded: dict[str, Any]) -> tuple[Step, float]:
    """Return what a step costs by its parts, and the effective cores for training."""
    compute, prepare, handed_over = (
        float(np.mean([trimmed_mean(parts[name]) for parts in recorded["parts"]]))
        for name in ("compute", "prepare", "handed_over")
    )
    _arithmetic, training = np.mean([p["effective_cores"] for p in recorded["parts"]], axis=0)
    batch_bytes = recorded["item_bytes"] * recorded["batch"]
    return Step(compute, prepare, batch_bytes, max(handed_over - compute, 0.0)), float(training)


def _rate(recorded: dict[str, Any]) -> float:
    return float(np.mean([parts["memory_bytes_per_second"] for parts in recorded["parts"]]))


def _summary(loaders: dict[str, list[LoadingCell]]) -> list[str]:
    heads = ("loader", "cells", "from parts", "optimistic", "Synergy's form")
    lines = []
    for title, cells in loaders.items():
        fixed = np.abs([cell.errors() for cell in cells if cell.cache == "fixed"])
        missing = np.abs(
            [c.errors() for c in cells if c.cache == "fixed" and c.fraction < 1]  # others are given
        )
        cells_each = (_errors(fixed[:, 0]), *(_errors(missing[:, at]) for at in (1, 2)))
        lines.append([title, str(len(fixed)), *cells_each])
    return ["Median error of a step, and in brackets the largest:", "", *table(heads, lines)]


def _errors(errors: Iterable[float]) -> str:
    off = np.asarray(errors)
    return f"{np.median(off):.1%} ({off.max():.1%})"


def _table(cells: list[LoadingCell]) -> list[str]:
    heads = (
        "cache", "cached", "workers", "measured, ms", "from parts, ms", "limited by",
        "from parts", "optimistic", "Synergy's form",
    )  # fmt: skip
    lines = [
        [
            cell.cache,
            f"{cell.fraction:.0%}",
            str(cell.workers),
            f"{1e3 * cell.measured:.1f}",
            f"{1e3 * cell.parts.seconds:.1f}",
            cell.parts.limit,
            *map(percent, cell.errors()),
        ]
        for cell in cells
    ]
    return table(heads, lines)
