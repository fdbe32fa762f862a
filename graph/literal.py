"""Small graphs written down by hand, for examples and tests.

In: one tuple per task and per edge. Out: a `Graph` with every other column unknown.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.model import (
    DEVICE_KINDS,
    EDGE_COLUMNS,
    LANE_COLUMNS,
    OPERATOR_COLUMNS,
    TASK_COLUMNS,
    Graph,
    Platform,
)
from foretrace.tracer.trace import TraceMeta
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TaskTuple = tuple[str, str, int, int, "str | None"]
"""Name, kind, lane, work in ns, phase."""


def literal(
    tasks: Sequence[TaskTuple],
    edges: Sequence[tuple[int, int, str] | tuple[int, int, str, int] | tuple[Any, ...]] = (),
    **settings: Any,
) -> Graph:
    """Build a graph from tuples; tasks of one lane are chained in the order given.

    Parameters
    ----------
    tasks
        (name, kind, lane, work in ns, phase or None); the step is 0 unless *steps* says more.
    edges
        (src, dst, kind[, lag in ns[, shift]]), beside the chains.
    **settings
        ``meta`` (a `TraceMeta`), ``platform``, ``columns`` (more task columns by name),
        ``operators`` (operator columns by name), ``lag_ns`` (of every chain edge),
        ``wrap`` (chain each lane's last task to its first, one window later),
        ``measured_step_ns``.

    Examples
    --------
    >>> graph = literal([("a", "kernel", 0, 10, None), ("b", "kernel", 0, 20, None)])
    >>> graph.edges[["src", "dst", "kind"]].values.tolist()
    [[0, 1, 'stream']]
    """
    names, kinds, lanes, works, phases = (list(column) for column in zip(*tasks, strict=True))
    columns = settings.get("columns", {})
    step = np.asarray(columns.get("step", np.zeros(len(tasks), np.int32)))
    work = np.asarray(works, np.int64)
    values = {
        "name": names,
        "kind": pd.Categorical(kinds),
        "lane": lanes,
        "start_ns": np.cumsum(work) - work,
        "duration_ns": work,
        "work_ns": work,
        "step": step,
        "phase": phases,
        "wait": ["none"] * len(tasks),
        "return_ns": np.zeros(len(tasks), np.int64),
        "cost": ["recorded"] * len(tasks),
        **columns,
    }
    frame = table(TASK_COLUMNS, values, len(tasks))
    device = [kind in DEVICE_KINDS for kind in kinds]
    every = _chain_lanes(lanes, device, settings.get("lag_ns", 0), wrap=settings.get("wrap", False))
    every += [(*edge, 0, 0)[:5] if len(edge) == 3 else (*edge, 0)[:5] for edge in edges]  # noqa: PLR2004
    return Graph(
        tasks=frame,
        edges=_make_edge_table(every),
        lanes=_make_lane_table(lanes, device, [kind == "load" for kind in kinds]),
        operators=_make_operator_table(settings.get("operators", {})),
        meta=settings.get("meta", TraceMeta(format="foretrace", source="literal")),
        steps=int(step.max(initial=0)) + 1,
        measured_step_ns=float(settings.get("measured_step_ns", work.sum())),
        platform=settings.get("platform", Platform()),
    )


def _chain_lanes(
    lanes: Sequence[int], device: Sequence[bool], lag_ns: int, *, wrap: bool
) -> list[tuple[Any, ...]]:
    """Return the edges that put the tasks of each lane into the order given."""
    edges: list[tuple[Any, ...]] = []
    for lane in sorted(set(lanes)):
        rows = [row for row, at in enumerate(lanes) if at == lane]
        kind = "stream" if device[rows[0]] else "thread"
        edges += [(a, b, kind, lag_ns, 0) for a, b in pairwise(rows)]
        if wrap:
            edges.append((rows[-1], rows[0], kind, lag_ns, 1))
    return edges


def _make_edge_table(edges: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    src, dst, kind, lag, shift = (
        list(column) for column in (zip(*edges, strict=True) if edges else ([], [], [], [], []))
    )
    values = {
        "src": np.asarray(src, np.int32),
        "dst": np.asarray(dst, np.int32),
        "kind": pd.Categorical(kind, categories=None if kind else pd.Index([], dtype=object)),
        "lag_ns": np.asarray(lag, np.int64),
        "shift": np.asarray(shift, np.int32),
        "rule": ["literal"] * len(edges) if edges else None,
    }
    return table(EDGE_COLUMNS, values, len(edges))


def _make_lane_table(
    lanes: Sequence[int], device: Sequence[bool], load: Sequence[bool]
) -> pd.DataFrame:
    count = max(lanes) + 1
    is_stream = [
        any(d for at, d in zip(lanes, device, strict=True) if at == i) for i in range(count)
    ]
    is_loader = [any(x for at, x in zip(lanes, load, strict=True) if at == i) for i in range(count)]
    threads = [i for i in range(count) if not is_stream[i] and not is_loader[i]]
    roles = [
        "compute"
        if is_stream[i]
        else "loader"
        if is_loader[i]
        else "main"
        if i == threads[0]
        else "autograd"
        for i in range(count)
    ]
    values: Mapping[str, Any] = {
        "kind": [
            "stream" if s else "loader" if r == "loader" else "thread"
            for s, r in zip(is_stream, roles, strict=True)
        ],
        "rank": [0] * count,
        "device": [0 if s else -1 for s in is_stream],
        "id": [7 + i if s else 100 + i for i, s in enumerate(is_stream)],
        "role": roles,
    }
    return table(LANE_COLUMNS, values, count)


def _make_operator_table(columns: Mapping[str, Any]) -> pd.DataFrame:
    rows = len(columns.get("name", ()))
    return table(OPERATOR_COLUMNS, columns, rows)
