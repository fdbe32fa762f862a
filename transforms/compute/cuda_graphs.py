"""CUDA graphs: the launches of a captured region become one, and kernels follow one another."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches
from foretrace.transforms.edit.parameters import choice
from foretrace.transforms.edit.primitives import edge_rows, insert, rewire, scale_lags
from foretrace.transforms.edit.provenance import add_note, add_warning
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import (
    LONGEST_DISPATCH_NS,
    has_device,
    on_device,
    require,
    within_operator,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

PHASES = ("forward", "backward", "optimizer")
WHOLE = "forward+backward+optimizer"
LAUNCH = Assumed(
    "launch of a CUDA graph, ns",
    *(10_000, 5_000, 50_000),
    "Python included; the call itself takes 2 to 3 us from CUDA 12.6 on, 2 us + 0.2 us per kernel "
    "before (NVIDIA's blog on straight-line graphs)",
    more_is_longer=True,
)

GAP_SHARE = Assumed(
    "gap between kernels inside a CUDA graph, over the gap between launched ones",
    *(0.55, 0.4, 1.0),
    'V100: 0.9 us become 0.5, NVIDIA\'s "Getting started with CUDA graphs"; other devices unknown',
    more_is_longer=True,
)

SHOWN = 3


def cuda_graphs(graph: Graph, *, phases: str = WHOLE, allow: str | None = None) -> Graph:
    """Capture a part of each step once and launch it as one CUDA graph.

    Parameters
    ----------
    graph
        The job.
    phases
        What is captured: "forward", "backward", "optimizer", or several joined by "+"; those
        that follow one another become one graph.
    allow
        Regular expression for waits and loading inside the captured part that the program will
        be changed to do without. All others are an error: a capture would fail there.

    Notes
    -----
    Assumes: shapes and addresses stay the same in every step. From the first to the last kernel
    captured, the host does one launch (10 us). Gaps between kernels shrink to 0.55 of theirs.
    A graph takes one place in the launch queue.
    Unknown: memory of the graph's own pool; kernels of parallel branches that now overlap.
    Source: NVIDIA's published launch times and gaps; no measured pair.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> tasks = [("cudaLaunchKernel", "launch", 0, 6_000, "forward")] * 2
    >>> tasks += [("gemm", "kernel", 1, 2_000, "forward")] * 2
    >>> graph = literal(tasks, [(0, 2, "launch"), (1, 3, "launch")])
    >>> cuda_graphs(graph).tasks[["name", "work_ns"]].values.tolist()
    [['gemm', 2000], ['gemm', 2000], ['cudaGraphLaunch (predicted)', 10000]]
    """
    chosen = {choice("phases", phase.strip(), PHASES) for phase in phases.split("+")}
    if not has_device(graph):
        raise TransformError(
            "nothing to change: a CUDA graph saves the launches of a GPU, and this job uses none"
        )
    where = is_in(graph.tasks["phase"], *chosen) & is_in(graph.tasks["kind"], "launch")
    require(where, graph, f"launch in {phases}")
    together = groupby(PHASES, key=chosen.__contains__)
    parts = [tuple(group) for is_captured, group in together if is_captured]
    graph = add_warning(graph, *_in_vain(graph, parts, allow))
    for each in parts:
        graph = _capture(graph, each, allow)
    platform = replace(graph.platform, queue_depth=None)
    return add_note(
        replace(graph, platform=platform),
        f"cuda_graphs: {phases} is captured; shapes and addresses are the same in every step",
    )


def _capture(graph: Graph, phases: tuple[str, ...], allow: str | None) -> Graph:
    """Capture from the first to the last kernel that *phases* launch in each step."""
    region, first = _region(graph, phases)
    if not len(first):
        return graph
    _refuse(graph, region, allow)
    edges = graph.edges
    src, dst = (edges[end].to_numpy().astype(np.int64) for end in ("src", "dst"))
    moved = is_in(edges["kind"], "launch") & region[src]
    captured = np.zeros(len(graph.tasks), bool)
    captured[dst[moved]] = True
    inner = is_in(edges["kind"], "stream") & captured[src] & captured[dst]
    graph = scale_lags(graph, inner, GAP_SHARE.now())
    key = _step_of(graph)
    graph, launches = insert(
        rewire(graph, moved),
        first,
        place="before",
        name="cudaGraphLaunch (predicted)",
        kind="launch",
        work_ns=round(LAUNCH.now()),
        cost="prior",
    )
    launch_of = np.full(int(key.max()) + 1, -1, np.int64)
    launch_of[key[first]] = launches
    shift = edges["shift"].to_numpy()[moved]
    lag = graph.platform.launch_latency_ns
    linked = edge_rows(graph.edges, launch_of[key[src[moved]]], dst[moved], "launch", lag, shift)
    gone = np.append(region, np.zeros(len(launches), bool))
    return remove(replace(graph, edges=linked), gone, gaps="drop")


def _step_of(graph: Graph) -> Rows:
    """Return a number per rank and step for each task."""
    rank = graph.lanes["rank"].to_numpy().astype(np.int64)[graph.tasks["lane"].to_numpy()]
    step = graph.tasks["step"].to_numpy().astype(np.int64)
    number: Rows = rank * (int(step.max(initial=0)) + 1) + step
    return number


def _region(graph: Graph, phases: tuple[str, ...]) -> tuple[Mask, Rows]:
    """Return the host tasks that a capture of *phases* replaces, and the first call of each step.

    What comes before the first kernel's launch (the batch's upload) stays outside.
    """
    tasks, edges = graph.tasks, graph.edges
    loads = is_in(graph.lanes["role"], "loader")[tasks["lane"].to_numpy()]
    host = ~on_device(graph) & ~loads & (tasks["work_ns"].to_numpy() <= LONGEST_DISPATCH_NS)
    launch = is_in(edges["kind"], "launch")
    src, dst = (edges[end].to_numpy()[launch] for end in ("src", "dst"))
    compute = is_in(tasks["kind"], "kernel", "collective")[dst]
    calls = np.unique(src[compute & (host & is_in(tasks["phase"], *phases))[src]]).astype(np.int64)
    key, start = _step_of(graph), tasks["start_ns"].to_numpy()
    calls = calls[np.lexsort((calls, start[calls]))]
    low = np.full(int(key.max(initial=0)) + 1, np.iinfo(np.int64).max)
    high = np.full(len(low), -1)
    first = low.copy()
    np.minimum.at(low, key[calls], start[calls])
    np.maximum.at(high, key[calls], start[calls])
    first[key[calls[::-1]]] = calls[::-1]
    return host & (start >= low[key]) & (start <= high[key]), first[high >= 0]


def _refuse(graph: Graph, region: Mask, allow: str | None) -> None:
    """Raise where the region holds what cannot be captured."""
    unsafe = region & _unsafe(graph)
    if allow is not None:
        unsafe &= ~_named(graph, allow)
    if not unsafe.any():
        return
    counts = graph.tasks["name"][unsafe].astype(str).value_counts(sort=True)
    refused = [f"{name} ({count / graph.steps:.3g} per step)" for name, count in counts.items()]
    given = "allow='...'" if allow is None else f"an allow that matches it ({allow!r} does not)"
    raise TransformError(
        f"cuda_graphs cannot capture {', '.join(refused[:SHOWN])}: the host waits or loads there; "
        f"take it out first (remove_sync), capture fewer phases, or give {given} to assume so"
    )


def _in_vain(graph: Graph, parts: list[tuple[str, ...]], allow: str | None) -> list[str]:
    """Say that *allow* matches nothing that would keep *parts* from being captured."""
    if allow is None:
        return []
    inside = np.any([_region(graph, each)[0] for each in parts], axis=0)
    if (inside & _unsafe(graph) & _named(graph, allow)).any():
        return []
    return [f"cuda_graphs: allow={allow!r} matches no wait or loading in the captured part"]


def _unsafe(graph: Graph) -> Mask:
    """Return the tasks that no capture can hold: waits, and loading."""
    tasks = graph.tasks
    waits = ~is_in(tasks["wait"], "none") | is_in(tasks["kind"], "sync")
    return waits | (is_in(tasks["phase"], "load") & (tasks["work_ns"].to_numpy() > 0))


def _named(graph: Graph, pattern: str) -> Mask:
    return matches(graph.tasks["name"], pattern) | within_operator(graph, pattern)
