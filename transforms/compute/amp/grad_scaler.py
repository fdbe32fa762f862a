"""The gradient scaler of fp16: unscaled gradients, and a host that waits for a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import pad
from foretrace.transforms.edit.primitives import edge_rows, insert, insert_kernels
from foretrace.transforms.edit.select import call_of, first_per_step, task_before

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.costs.optimizer_traffic import Update
    from foretrace.transforms.edit.columns import Rows

UNSCALE_PASSES = 2
FOUND_INF_BYTES = 4
COPY_NS = 1_500
"""Device time of a copy of a few bytes (all public traces: 1 to 2 us)."""


def add_scaler(graph: Graph, update: Update) -> Graph:
    """Unscale the gradients before the update, and wait for the verdict on the host.

    Raises
    ------
    TransformError
        One call launches the whole update, as a CUDA graph does: nothing can be read in between.
    """
    first = first_per_step(graph, pad(update.where, len(graph.tasks)))
    calls = call_of(graph)
    if (np.bincount(calls[calls >= 0], minlength=1)[calls[first]] > 1).any():
        raise TransformError(
            "amp with fp16 reads a verdict before each update, which a captured graph cannot: "
            'put amp first, or use dtype="bf16"'
        )
    earlier = _other_threads_call(graph, first)
    launches = update.launches
    work = round(UNSCALE_PASSES * update.pass_ns / launches) + update.floor_ns
    graph, _ = insert_kernels(
        graph,
        np.repeat(first, launches),
        place="before",
        name="multi_tensor_apply_kernel<unscale> (predicted)",
        work_ns=work,
        cost="roofline",
    )
    calls = call_of(graph)[first]
    first, calls, earlier = first[calls >= 0], calls[calls >= 0], earlier[calls >= 0]
    if not len(calls):
        return graph
    graph, copies = insert(
        graph,
        first,
        place="before",
        name="Memcpy DtoH (Device -> Pageable)",
        kind="memcpy",
        work_ns=COPY_NS,
        bytes=FOUND_INF_BYTES,
        cost="prior",
    )
    graph, waits = insert(
        graph,
        calls,
        place="before",
        name="cudaMemcpyAsync",
        kind="launch",
        wait="own",
        return_ns=graph.platform.return_lag_ns,
        work_ns=graph.platform.launch_ns,
        cost="prior",
    )
    lag = graph.platform.launch_latency_ns
    edges = edge_rows(graph.edges, waits, copies, "launch", lag)
    edges = edge_rows(edges, earlier[earlier >= 0], waits[earlier >= 0], "join", 0)
    return replace(graph, edges=edges)


def _other_threads_call(graph: Graph, kernels: Rows) -> Rows:
    """Return, per kernel, the last call of another thread that launched earlier on its stream.

    −1 where its step has none. A call that blocks until the stream is done must come after it,
    also where the recording does not show how the threads wait for each other: else it would
    hold the driver's lock against the launch that it waits for.
    """
    call, before = call_of(graph), task_before(graph)
    lane = graph.tasks["lane"].to_numpy()
    own, at = lane[call[kernels]], before[kernels]
    while (on := (at >= 0) & ((call[at] < 0) | (lane[call[at]] == own))).any():
        at[on] = before[at[on]]
    return np.where(at >= 0, call[at], -1)
