"""Graph to timeline: lowering, two compiled engines, steady state and critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.replay.again import lowered
from foretrace.replay.program import ReplayError
from foretrace.replay.steady import steady_state
from foretrace.replay.timeline import Timeline, settled_timeline

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

__all__ = ["Timeline", "replay"]

NAMED = 4
"""How many tasks an error spells out at most."""


def replay(graph: Graph, *, like: Timeline | None = None) -> Timeline:
    """Repeat the window of *graph* until its period settles, and return one settled repetition.

    *like*, the timeline of a graph of which this one is an edit, makes it quicker and changes
    nothing else.

    Raises
    ------
    GraphError
        The graph cannot run: its edges form a cycle, or tasks wait for each other forever.
    """
    on_device = (graph.lanes["kind"] == "stream").to_numpy(bool)
    plan = lowered(graph, like.lowered if like else None)
    try:
        found = steady_state(plan.program, on_device, plan.run)
    except ReplayError as error:
        raise GraphError(f"replay: {error}{_named(graph, error.tasks)}") from None
    return settled_timeline(plan, found)


def _named(graph: Graph, tasks: tuple[int, ...]) -> str:
    """Return the names of *tasks*, unrolled indices, for an error text."""
    rows = np.unique(np.asarray(tasks, np.int64) % max(len(graph.tasks), 1))[:NAMED]
    names = graph.tasks["name"].astype(object).take(rows)
    spelled = ", ".join(f"{row} {name!r}" for row, name in zip(rows, names, strict=True))
    return f" (rows of tasks: {spelled})" if spelled else ""
