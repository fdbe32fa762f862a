"""Change the collectives that a graph holds: what they are, and what runs before and after them.

In: rows of transfers. Out: new graphs. Whatever led to a transfer still does, whatever waited too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.costs.memcpy_cost import insert_moves
from foretrace.transforms.distributed.common.collective_tasks import kinds_of
from foretrace.transforms.edit.columns import Mask, Rows, is_in, set_label
from foretrace.transforms.edit.primitives import CHAINS, insert, scale
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement

    Floats = npt.NDArray[np.float64]


def recast(graph: Graph, rows: Rows, *, name: str, work_ns: Rows, size: Floats, cost: str) -> Graph:
    """Let the transfers *rows* be called *name*, take other times, and move other bytes."""
    where = np.zeros(len(graph.tasks), bool)
    where[rows] = True
    work, moved = (graph.tasks[c].to_numpy().copy() for c in ("work_ns", "bytes"))
    work[rows], moved[rows] = np.maximum(work_ns, 0), size
    columns: dict[str, Any] = {
        "name": set_label(graph.tasks["name"], where, name),
        "cost": set_label(graph.tasks["cost"], where, cost),
    }
    return replace(graph, tasks=graph.tasks.assign(work_ns=work, bytes=moved, **columns))


def recost(graph: Graph, before: Placement, after: Placement) -> Graph:
    """Return *graph* whose collectives cost what they do among *after* instead of *before*.

    Raises
    ------
    TransformError
        There are transfers, but none of a kind whose cost is known by its size.
    """
    ratios: dict[tuple[str, float], float] = {}
    factor = np.ones(len(graph.tasks))
    sizes = graph.tasks["bytes"].to_numpy()
    sized = [(at, kind) for at, kind in enumerate(kinds_of(graph)) if kind and sizes[at] > 0]
    if not sized:
        raise TransformError(
            "nothing to change: no collective of known size in this graph; give the network, or "
            "the devices, to the what-if that adds its transfers"
        )
    for row, kind in sized:
        key = (kind, float(sizes[row]))
        if key not in ratios:
            old, new = (
                collective_cost(placed.cluster, placed.devices, *key) for placed in (before, after)
            )
            ratios[key] = new.ns / max(old.ns, 1)
        factor[row] = ratios[key]
    return scale(graph, factor != 1.0, factor, cost="roofline")


def redirect_edges(graph: Graph, old: Rows, first: Rows, last: Rows) -> Graph:
    """Let what led to each of *old* lead to *first*, and what each led to follow *last*.

    The order on the lanes stays as it is.
    """
    count = len(graph.tasks)
    begins, ends = np.arange(count), np.arange(count)
    begins[old], ends[old] = first, last
    src, dst = (graph.edges[end].to_numpy() for end in ("src", "dst"))
    free = ~is_in(graph.edges["kind"], *CHAINS)
    moved = {
        "src": np.where(free, ends[src], src).astype(src.dtype),
        "dst": np.where(free, begins[dst], dst).astype(dst.dtype),
    }
    return replace(graph, edges=graph.edges.assign(**moved))


def insert_before(graph: Graph, rows: Rows, sizes: Floats, name: str, what: str) -> Graph:
    """Insert, before each of the transfers *rows*, work that moves *sizes* bytes of memory.

    Raises
    ------
    TransformError
        The graph does not tell where the data of a transfer comes from; *what* is the what-if.
    """
    edges = _arrivals(graph, rows)
    if (edges < 0).any():
        raise TransformError(
            f"{what} cannot tell from this graph which task makes the data of each all-reduce; put "
            "ddp(workers=..., cluster=...) before it, on a recording of one worker"
        )
    sources = graph.edges["src"].to_numpy().astype(np.int64)[edges]
    graph, new = insert_moves(graph, sources, sizes, name=name)
    src = graph.edges["src"].to_numpy().copy()
    src[edges] = new
    return replace(graph, edges=graph.edges.assign(src=src))


def _arrivals(graph: Graph, rows: Rows) -> Rows:
    """Return the edge by which the data of each transfer arrives; −1 where there is none."""
    arrival = np.full(len(graph.tasks), -1, np.int64)
    edges = np.flatnonzero(is_in(graph.edges["kind"], "event"))
    arrival[graph.edges["dst"].to_numpy()[edges]] = edges
    return arrival[rows]


def insert_behind_wait(graph: Graph, rows: Rows, sizes: Floats, name: str) -> Graph:
    """Insert, behind the first wait for each of *rows*, work that moves *sizes* bytes of memory."""
    by = _first_waits(graph, rows)
    has_wait = by >= 0
    place = "before" if has_device(graph) and not _on_host(graph, by[has_wait]).any() else "after"
    return insert_moves(graph, by[has_wait], sizes[has_wait], name=name, place=place)[0]


def _on_host(graph: Graph, rows: Rows) -> Mask:
    return is_in(graph.lanes["kind"], "thread")[graph.tasks["lane"].to_numpy()[rows]]


def _first_waits(graph: Graph, rows: Rows) -> Rows:
    """Return the task that waits first for each of *rows*; −1 where none does."""
    src, dst = (graph.edges[end].to_numpy().astype(np.int64) for end in ("src", "dst"))
    waits = np.flatnonzero(is_in(graph.edges["kind"], "event", "return"))
    start = graph.tasks["start_ns"].to_numpy()
    waits = waits[np.argsort(-start[dst[waits]], kind="stable")]
    first = np.full(len(graph.tasks), -1, np.int64)
    first[src[waits]] = dst[waits]
    return first[rows]


def insert_behind(graph: Graph, rows: Rows, **columns: Any) -> tuple[Graph, Rows]:
    """Insert a task behind each of *rows*, on their lane; whoever waited for them waits for it."""
    graph, new = insert(graph, rows, gap_ns=0, **columns)
    return redirect_edges(graph, rows, rows, new), new


def share_network(graph: Graph, like: int, lanes: Sequence[int]) -> Graph:
    """Let transfers on *lanes* slow down, and be slowed down by, what those of lane *like* do."""
    network = graph.state.network
    if network is None:
        return graph
    members = tuple((lane, rank) for of, rank in network.members if of == like for lane in lanes)
    return graph.with_state(network=replace(network, members=network.members + members))
