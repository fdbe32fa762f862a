"""Overlapped uploads: the next batch goes to the device while this one is computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.edit.columns import Mask, Rows, append, is_in, matches, set_label
from foretrace.transforms.edit.primitives import chain, edge_rows
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import hops, remove
from foretrace.transforms.edit.select import launch_edges, require

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph

UPLOAD = r"HtoD|Host ?(->|To) ?Device"
PINNED = 0.5
"""Time of a copy from pinned memory, as a share of one from pageable memory (prior: 2.2 to 5.5
against 4.9 to 11.5 GB/s on PCIe 2 and 3, NVIDIA's "How to optimize data transfers")."""


MOST_TASKS_OF_A_COPY = 16
"""Host tasks that one copying operator consists of, at most."""


def overlap_h2d(graph: Graph) -> Graph:
    """Upload each batch from pinned memory on a stream of its own, one step ahead.

    Parameters
    ----------
    graph
        The job.

    Notes
    -----
    Assumes: uploads are the batch, known one step before; the host only issues them and the
    first kernel after each waits for it. A copy from pageable memory takes half its time from
    pinned memory. Whoever makes the batch pins it at no cost to the training process.
    Unknown: bandwidth that copies and kernels share; memory for one more batch.
    Source: the recording; NVIDIA's published copy rates; no measured pair.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("cudaMemcpyAsync", "launch", 0, 900, "forward"),
    ...      ("cudaLaunchKernel", "launch", 0, 5, "forward"),
    ...      ("Memcpy HtoD (Pageable -> Device)", "memcpy", 1, 800, "forward"),
    ...      ("gemm", "kernel", 1, 2_000, "forward")],
    ...     [(0, 2, "launch"), (1, 3, "launch")], columns={"wait": ["own", "none", "none", "none"]},
    ... )
    >>> overlap_h2d(graph).tasks[["name", "lane", "work_ns"]].values.tolist()[-1]
    ['Memcpy HtoD (Pinned -> Device)', 2, 400]
    """
    tasks = graph.tasks
    by = launch_edges(graph)
    where = is_in(tasks["kind"], "memcpy") & matches(tasks["name"], UPLOAD) & (by >= 0)
    call = graph.edges["src"].to_numpy()[by].astype(np.int64) if len(graph.edges) else by
    loads = is_in(graph.lanes["role"], "loader")[tasks["lane"].to_numpy()]
    where &= ~loads[call] & (hops(graph, where)[0].to >= 0)  # not on a stream of its own already
    require(where, graph, "upload (memcpy HtoD) by the training process")
    copies = np.flatnonzero(where)
    copies = copies[np.lexsort((copies, tasks["start_ns"].to_numpy()[call[copies]]))]
    calls = np.zeros(len(tasks), bool)
    calls[call[copies]] = True
    syncs = _syncs_after(graph, calls)
    moved = _on_own_stream(_unblock(graph, calls), copies, by[copies])
    gone = np.zeros(len(moved.tasks), bool)
    gone[copies] = True
    gone[np.flatnonzero(syncs)] = True
    return add_note(
        remove(moved, gone),
        f"overlap_h2d: {len(copies) / graph.steps:.0f} uploads per step run one step ahead on a "
        "stream of their own, from pinned memory",
    )


def _syncs_after(graph: Graph, calls: Mask) -> Mask:
    """Return the synchronisations that directly follow an upload on its thread."""
    tasks, edges = graph.tasks, graph.edges
    syncs = np.zeros(len(tasks), bool)
    outgoing = chain(graph)[1]
    dst = edges["dst"].to_numpy().astype(np.int64)
    is_sync = is_in(tasks["kind"], "sync")
    operator = tasks["operator"].to_numpy()
    here = np.flatnonzero(calls)
    ahead = here.copy()
    for _ in range(MOST_TASKS_OF_A_COPY):
        step = outgoing[ahead]
        here, ahead = here[step >= 0], dst[step[step >= 0]]
        syncs[ahead[is_sync[ahead]]] = True
        inside = (operator[ahead] == operator[here]) & (operator[here] >= 0) & ~is_sync[ahead]
        here, ahead = here[inside], ahead[inside]
    return syncs


def _unblock(graph: Graph, calls: Mask) -> Graph:
    """Let the calls that upload return as soon as they have issued the copy."""
    tasks = graph.tasks
    work = tasks["work_ns"].to_numpy()
    shorter = calls & (work > graph.platform.launch_ns)
    return replace(
        graph,
        tasks=tasks.assign(
            work_ns=np.where(shorter, graph.platform.launch_ns, work),
            cost=set_label(tasks["cost"], shorter, "prior"),
            wait=set_label(tasks["wait"], calls, "none"),
        ),
    )


def _on_own_stream(graph: Graph, copies: Rows, launches: Rows) -> Graph:
    """Append *copies* once more on a new stream; whoever followed them waits for the last step's.

    *launches* are the edges from the calls, which launch the new copies instead.
    """
    tasks, rows = graph.tasks, len(graph.tasks) + np.arange(len(copies))
    lane = len(graph.lanes)
    like = np.array([int(tasks["lane"].to_numpy()[copies[0]])])
    lanes = append(graph.lanes, like, {"role": "copy", "id": int(graph.lanes["id"].max()) + 1})
    pageable = matches(tasks["name"], "(?i)pageable")[copies]
    work = tasks["work_ns"].to_numpy()[copies]
    new = append(
        tasks,
        copies,
        {
            "lane": lane,
            "work_ns": np.rint(np.where(pageable, PINNED, 1.0) * work),
            "duration_ns": 0,
        },
    )
    changed = np.zeros(len(new), bool)
    changed[rows[pageable]] = True
    new = new.assign(
        cost=set_label(new["cost"], changed, "prior"),
        name=set_label(new["name"], changed, "Memcpy HtoD (Pinned -> Device)"),
    )
    dst = graph.edges["dst"].to_numpy().copy()
    dst[launches] = rows
    edges = graph.edges.assign(dst=dst)
    edges = edge_rows(edges, rows[:-1], rows[1:], "stream", 0)
    edges = edge_rows(edges, rows[-1:], rows[:1], "stream", 0, 1)
    return replace(graph, tasks=new, edges=_ahead(graph, edges, copies, rows), lanes=lanes)


def _ahead(graph: Graph, edges: pd.DataFrame, copies: Rows, rows: Rows) -> pd.DataFrame:
    """Let what followed each upload on its stream wait for the one issued a step before."""
    step = graph.tasks["step"].to_numpy().astype(np.int64)
    places: Counter[int] = Counter()
    by_place: dict[tuple[int, int], int] = {}
    for index, number in enumerate(step[copies].tolist()):
        by_place[number, places[number]] = index
        places[number] += 1
    uploads = np.zeros(len(graph.tasks), bool)
    uploads[copies] = True
    ahead = hops(graph, uploads)[0]
    src, dst, shift = [], [], []
    for (number, place), index in by_place.items():
        before = by_place.get(((number - 1) % graph.steps, place))
        if before is not None:
            src.append(int(rows[before]))
            dst.append(int(ahead.to[copies[index]]))
            shift.append(int(number == 0) + int(ahead.shift[copies[index]]))
    return edge_rows(edges, src, dst, "event", 0, shift)
