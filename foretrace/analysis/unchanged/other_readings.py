"""Replays of a job before and after a change in; the step if its recording is read otherwise out.

A recording may leave open what a time in it was. The replay takes one reading; where another one
gives about the same answer, what is open does not matter to this answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.unchanged.loader_readings import (
    read_bursts,
    read_handover,
    read_hidden_handover,
)
from foretrace.errors import GraphError
from foretrace.graph.assemble.edge_table import UNTRACED
from foretrace.graph.infer.loading.loader_workers import BURSTS
from foretrace.graph.state import MISSING
from foretrace.replaying.replay import replay
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.primitives import edge_rows, scale_lags, whole_ns
from foretrace.transforms.edit.select import launch_edges, on_device
from foretrace.transforms.host.dataloader import HANDOVER_ASSUMED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

    Ints = NDArray[np.int64]

WORK = (
    ("kernel", "memcpy", "memset"),
    ("collective", "p2p"),
    ("host", "launch", "sync"),
)
"""Kinds of tasks that change together: work of the device, transfers, work of the host."""
GAP_UNKNOWN = "kernel-gap-unknown"
HANDOVER_HIDDEN = "loader-handover-hidden"
LAUNCH_RANGE = (0.5, 2.0)
"""What launches cost, over what is assumed: 3 to 12 us, the medians of 43 public recordings."""
ALIKE = 0.01
"""Factors of kernels that differ by no more are the same change."""


def read_otherwise(before: Timeline, after: Timeline) -> dict[str, tuple[float, ...]]:
    """Return per code of a doubt the steps, in ns, that other readings give after the change.

    Of doubts that say which reading was taken; none at all where another one cannot be replayed.
    """
    state = after.graph.state
    codes = {doubt.code for doubt in state.doubts} | ({GAP_UNKNOWN} if state.gap_range else set())
    codes -= {MISSING} if state.period_spread is None else set()
    codes |= {BURSTS} if state.loader and state.loader.slack != (1.0, 1.0) else set()
    codes |= {HANDOVER_HIDDEN} if state.loader and not state.loader.handover_seen else set()
    steps: dict[str, tuple[float, ...]] = {}
    for code, read in READINGS.items():
        if code in codes and after is not before:
            try:
                steps[code] = tuple(read(before, after))
            except GraphError:  # what a change has moved need not fit: then the doubt stands
                steps[code] = (0.0, np.inf)
    return steps


def _read_waits(before: Timeline, after: Timeline) -> Iterator[float]:
    """Let waits of unknown cause change as the work does that changes most: they may be for it.

    The replay keeps them as long as they were.
    """
    ratio = _find_largest_ratio(before.graph, after.graph)
    untraced = matches(after.graph.edges["rule"], f"^{UNTRACED}$")
    of_calls = after.graph.state.untraced_call_ns * (ratio - 1)
    step = after.step_ns
    if untraced.any() and ratio != 1.0:
        step = replay(scale_lags(after.graph, untraced, ratio), like=after).step_ns
    yield step + of_calls


def _find_largest_ratio(before: Graph, after: Graph) -> float:
    """Return how many times as much work there is after the change, of what changed most."""
    ratios = [1.0]
    for kinds in WORK:
        was, now = (
            graph.tasks["work_ns"].to_numpy()[is_in(graph.tasks["kind"], *kinds)].sum()
            for graph in (before, after)
        )
        if was and now:
            ratios.append(float(now / was))
    return max(ratios, key=lambda ratio: abs(np.log(ratio)))


def _read_graphs(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let kernels of a CUDA graph wait for all those of it that ended before they began.

    More they cannot wait for. The replay lets them wait for what the recording proves.
    """
    graph, tasks, edge = after.graph, after.graph.tasks, launch_edges(after.graph)
    inside = np.flatnonzero(on_device(graph) & (edge >= 0))
    call = graph.edges["src"].to_numpy()[edge[inside]]
    start, work, duration = (tasks[c].to_numpy() for c in ("start_ns", "work_ns", "duration_ns"))
    lane, factor = tasks["lane"].to_numpy(), work / np.maximum(duration, 1)
    order = np.lexsort((start[inside], call))
    first = np.flatnonzero(np.diff(call[order]))
    pairs = [
        pair
        for nodes in np.split(inside[order], first + 1)
        if np.ptp(factor[nodes]) > ALIKE
        for pair in _pair_branches(nodes, lane[nodes], start[nodes], (start + duration)[nodes])
    ]
    if pairs:
        src, dst = np.concatenate(pairs, axis=1)
        joined = replace(graph, edges=edge_rows(graph.edges, src, dst, "event", 0))
        yield replay(joined, like=after).step_ns


def _pair_branches(nodes: Ints, lane: Ints, start: Ints, end: Ints) -> Iterator[Ints]:
    """Yield sources and destinations: of each other branch the last of *nodes* done by then."""
    branches = np.unique(lane)
    for of in branches:
        mine = np.flatnonzero(lane == of)
        for other in branches[branches != of]:
            theirs = np.flatnonzero(lane == other)
            slot = np.searchsorted(np.maximum.accumulate(end[theirs]), start[mine], "right") - 1
            is_new = (slot >= 0) & (np.diff(slot, prepend=-1) > 0)
            yield np.stack([nodes[theirs[slot[is_new]]], nodes[mine[is_new]]])


def _read_launches(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let launches whose cost is assumed cost the least and the most that is usual."""
    graph, tasks, names = after.graph, after.graph.tasks, after.graph.state.assumed_launches
    assumed = is_in(tasks["kind"], "launch") & is_in(tasks["name"], *names)
    for factor in LAUNCH_RANGE:
        work = whole_ns(tasks["work_ns"].to_numpy() * np.where(assumed, factor, 1.0))
        yield replay(replace(graph, tasks=tasks.assign(work_ns=work)), like=after).step_ns


def _read_gaps(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let kernels follow one another at the least and at the largest gap that is usual."""
    graph, edges = after.graph, after.graph.edges
    kernel = is_in(graph.tasks["kind"], "kernel")
    between = is_in(edges["kind"], "stream")
    between &= kernel[edges["src"].to_numpy()] & kernel[edges["dst"].to_numpy()]
    between &= edges["lag_ns"].to_numpy() == graph.platform.gap_ns.get(("kernel", "kernel"), 0)
    for factor in graph.state.gap_range or ():
        yield replay(scale_lags(graph, between, factor), like=after).step_ns


def _read_earlier_work(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let steps that were taken from others be as short, and as long, as those were."""
    spread = after.graph.state.period_spread or 0.0
    yield from (after.step_ns * (1 - spread), after.step_ns * (1 + spread))


READINGS = {
    "untraced-wait": _read_waits,
    "graph-dependencies": _read_graphs,
    "launch-cost-unknown": _read_launches,
    BURSTS: read_bursts,
    HANDOVER_ASSUMED: read_handover,
    HANDOVER_HIDDEN: read_hidden_handover,
    GAP_UNKNOWN: _read_gaps,
    MISSING: _read_earlier_work,
}
"""By code of the doubt: replays before and after a change in, steps of other readings in ns out."""
