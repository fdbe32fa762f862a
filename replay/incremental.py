"""Replay many edits of one graph: what an edit leaves alone is worked out once.

Most what-ifs change what tasks cost and nothing else. Then the waits, the grouping of the edges
and the order of the moments are those of the graph that was edited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.model import EDGE_COLUMNS, TASK_COLUMNS
from foretrace.replaying.engine.event_driven import run_events
from foretrace.replaying.engine.static import run_static
from foretrace.replaying.engine.topological import Prepared, group_outgoing, prepare, sort_moments
from foretrace.replaying.lower import lower

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.replaying.engine.program import Ints, Program
    from foretrace.replaying.engine.schedule import Schedule
    from foretrace.replaying.engine.topological import GroupedEdges

_READ_AS_TIMES = {"work_ns", "lag_ns"}
_NOT_READ = {"duration_ns", "step", "phase", "module", "operator", "bytes", "flops", "cost", "rule"}
"""Columns that a replay has no use for; whatever else a table has is structure."""
_TASKS, _EDGES = (
    [c.name for c in columns if c.name not in _READ_AS_TIMES | _NOT_READ]
    for columns in (TASK_COLUMNS, EDGE_COLUMNS)
)


@dataclass
class Layout:
    """What an engine needs of a program besides its times, filled in as it is found."""

    into: GroupedEdges | None = None
    out: GroupedEdges | None = None
    order: Ints | None = None


@dataclass(frozen=True)
class Lowered:
    """A lowered graph, and how its program is laid out; graphs that differ in times share that."""

    graph: Graph
    window: Program
    layout: Layout

    def program(self, repetitions: int) -> Program:
        """Return the program of so many repetitions of the window."""
        return replace(self.window, repetitions=repetitions)

    def run(self, program: Program) -> Schedule:
        """Replay one of our programs, just as `foretrace.replaying.engine.static.run` does."""
        layout = self.layout
        if layout.into is None:
            prepared = prepare(program)
            layout.into = prepared.into
        else:
            prepared = Prepared(program, layout.into.with_lags(program.lag_ns))
        if program.has_resources:
            layout.out = layout.out or group_outgoing(program)
            return run_events(prepared, layout.out.with_lags(program.lag_ns))
        if layout.order is None:
            layout.order = sort_moments(prepared)
        return run_static(prepared, layout.order)


def lower_window(graph: Graph, like: Lowered | None = None) -> Lowered:
    """Lower *graph*; take from *like* what the two have in common if only times differ."""
    if like is None or not _have_same_structure(graph, like.graph):
        return Lowered(graph, lower(graph, 1), Layout())
    lag_ns = like.window.lag_ns.copy()
    lag_ns[: len(graph.edges)] = graph.edges["lag_ns"]  # waits follow what was recorded
    work_ns = graph.tasks["work_ns"].to_numpy(np.int64)
    return Lowered(graph, replace(like.window, work_ns=work_ns, lag_ns=lag_ns), like.layout)


def _have_same_structure(one: Graph, other: Graph) -> bool:
    """Tell whether the graphs differ in times at most, as far as a replay looks at them."""
    depths = one.platform.queue_depth, other.platform.queue_depth
    if one.rules != other.rules or depths[0] != depths[1] or one.lanes is not other.lanes:
        return False
    if one.state.network != other.state.network:
        return False
    return _have_same_columns(one.tasks, other.tasks, _TASKS) and _have_same_columns(
        one.edges, other.edges, _EDGES
    )


def _have_same_columns(one: pd.DataFrame, other: pd.DataFrame, columns: list[str]) -> bool:
    if one is other:
        return True
    return len(one) == len(other) and all(_is_equal(one[c].array, other[c].array) for c in columns)


def _is_equal(one: Any, other: Any) -> bool:
    """Compare two columns; those that share their memory, as unedited ones do, at once."""
    if hasattr(one, "codes"):
        same = one.categories is other.categories or one.categories.equals(other.categories)
        return same and _is_equal(one.codes, other.codes)
    one, other = np.asarray(one), np.asarray(other)
    if one.__array_interface__ == other.__array_interface__:
        return True
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
