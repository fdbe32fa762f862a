"""Graph to timeline: lowering, two compiled engines, steady state and critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.check import list_ranks
from foretrace.replaying.engine.program import ReplayError
from foretrace.replaying.incremental import lower_window
from foretrace.replaying.steady_state import find_steady_state
from foretrace.replaying.timeline import Timeline, cut_timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

NAMED = 4
"""How many tasks an error spells out at most."""


def replay(graph: Graph, *, like: Timeline | None = None) -> Timeline:
    """Repeat the window of *graph* until its period settles, and return one settled repetition.

    *like*, the timeline of a graph of which this one is an edit, makes it quicker and changes
    nothing else.

    Raises
    ------
    GraphError
        The graph cannot run: its edges form a cycle, or tasks wait for each other forever. Where
        several ranks do, it names them and the collectives they are in.
    """
    on_device = (graph.lanes["kind"] == "stream").to_numpy(bool)
    lowered = lower_window(graph, like.lowered if like else None)
    try:
        steady = find_steady_state(lowered.program, on_device, lowered.run)
    except ReplayError as error:
        raise GraphError(f"replay: {_explain(graph, error)}") from None
    return cut_timeline(lowered, steady)


def _explain(graph: Graph, error: ReplayError) -> str:
    """Return what is wrong, with the names of tasks; of several ranks, those that communicate."""
    rows = np.unique(np.asarray(error.tasks, np.int64) % max(len(graph.tasks), 1))
    lane = graph.tasks["lane"].to_numpy()[rows]
    own = (graph.lanes["kind"] != "link").to_numpy(bool)[lane]
    rank = graph.lanes["rank"].to_numpy()[lane]
    if len(np.unique(rank[own])) < 2:  # noqa: PLR2004  # nobody else to wait for
        spelled = _spell(graph, rows[:NAMED])
        return f"{error} (rows of tasks: {spelled})" if spelled else str(error)
    meets = own & graph.tasks["kind"].isin(("collective", "p2p")).to_numpy()[rows]
    shown = meets if meets.any() else own
    where = _spell(graph, rows[shown][:NAMED], rank[shown][:NAMED])
    return f"deadlock: {list_ranks(rank[own])} wait for each other in {where}"


def _spell(graph: Graph, rows: NDArray[np.int64], ranks: NDArray[np.int16] | None = None) -> str:
    """Return the rows and names of tasks, and their ranks, for an error text."""
    names = graph.tasks["name"].astype(object).take(rows)
    of_rank = [""] * len(rows) if ranks is None else [f" of rank {rank}" for rank in ranks]
    every = zip(rows, names, of_rank, strict=True)
    return ", ".join(f"{row} {name!r}{rank}" for row, name, rank in every)
