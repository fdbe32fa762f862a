"""How much later than one rank the slowest of several is, from the recorded variation of steps.

In: step times of one rank. Out: ns by which the last of n such ranks is late, on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

TRIMMED = 0.1
"""Share of the steps left out at either end, as in the means this project measures with."""
FEWEST = 4
"""Fewer steps than this say nothing about how they vary."""


def slowest_of(samples_ns: Sequence[int], count: int) -> float:
    """Return the mean of the largest of *count* steps drawn from *samples_ns*.

    Exact for draws with replacement: the k-th smallest of m samples is the largest of n draws with
    probability (k/m)^n − ((k−1)/m)^n.

    Examples
    --------
    >>> slowest_of([10, 20], 1), slowest_of([10, 20], 2)
    (15.0, 17.5)
    """
    ordered = np.sort(np.asarray(samples_ns, np.float64))
    reached = (np.arange(len(ordered) + 1) / len(ordered)) ** count
    return float(ordered @ np.diff(reached))


def late_ns(graph: Graph, workers: int) -> int:
    """Return how much later than the average rank the last of *workers* finishes a step, in ns.

    Ranks are taken to vary as the recorded steps do, independently of each other. 0 where too few
    steps were recorded to tell.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("a", "host", 0, 10, None)])
    >>> late_ns(replace(graph, step_samples_ns=(10, 14, 10, 14)), 2)
    1
    """
    samples = sorted(_steps(graph))
    cut = int(len(samples) * TRIMMED)
    kept = samples[cut : len(samples) - cut]
    if len(kept) < FEWEST or workers == 1:
        return 0
    return round(slowest_of(kept, workers) - float(np.mean(kept)))


def _steps(graph: Graph) -> Sequence[int]:
    """Return single steps: unprofiled ones on a CPU; on a device those are means of blocks."""
    plain = graph.meta.unprofiled_step_ns
    return graph.step_samples_ns if has_device(graph) or len(plain) < FEWEST else plain
