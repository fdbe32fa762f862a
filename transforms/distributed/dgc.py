"""Deep gradient compression: workers exchange the largest gradients only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.common.collective_tasks import collectives
from foretrace.transforms.distributed.common.recast_collectives import (
    insert_before,
    insert_behind_wait,
    recast,
)
from foretrace.transforms.distributed.common.workers import workers_of
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.provenance import add_note

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

PREFIX = "DGC "
"""Names of the tasks that it adds or changes begin so."""
COMPRESS_PASSES = 11
"""Passes over the gradients' memory, operation by operation: momentum takes the gradient (3), what
is kept back takes the momentum (3), its size is compared with the threshold (1), and what is sent
is taken out of both (4)."""
RESTORE_PASSES = 1
"""The gradient is zeroed before what came is added at its places."""
WIRE = 2
"""A value travels with a 32-bit index: twice its 4 bytes."""


def dgc(graph: Graph, *, ratio: float = 0.001) -> Graph:
    """Exchange only the share *ratio* of all gradients, the largest ones, and keep back the rest.

    Parameters
    ----------
    graph
        A job of several workers, after ddp(...).
    ratio
        Share of the gradients that is sent.

    Notes
    -----
    Assumes: every all-reduce becomes an all-gather of values and 32-bit indices. Before it a worker
    updates momentum and what it keeps back and finds the largest values, after it the values are
    added up; each operation moves its bytes at the memory's bandwidth.
    Unknown: how evenly the largest values are spread; sampling of the threshold; warm-up, in which
    more is sent; convergence.
    Source: DGC (ICLR 2018); Daydream (ATC 2020) scales the communication by the ratio.

    Examples
    --------
    >>> from foretrace.transforms.distributed.ddp.ddp import ddp
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "host", 0, 9_000_000, "backward"), ("step", "host", 0, 9, None)])
    >>> job = ddp(graph, workers=2, network="1Gbps", gradient_mb=50.0)
    >>> new = dgc(job).tasks
    >>> new[new.name == "DGC all_gather"].bytes.tolist()
    [6250.0, 106250.0, 87500.0]
    """
    if positive("ratio", ratio) > 1:
        raise TransformError(f"ratio={ratio!r} is out of range; give a share of at most 1")
    rows = collectives(graph, "all_reduce", "dgc")
    placed = workers_of(graph, "dgc")
    old = graph.tasks["bytes"].to_numpy()[rows]
    sent = WIRE * ratio * old * len(placed.devices)
    costs = {
        (kind, size): collective_cost(placed.cluster, placed.devices, kind, size).ns
        for kind, sizes in (("all_reduce", old), ("all_gather", sent))
        for size in set(sizes.tolist())
    }
    work = graph.tasks["work_ns"].to_numpy()[rows]
    work = work + [
        costs["all_gather", after] - costs["all_reduce", before]
        for before, after in zip(old.tolist(), sent.tolist(), strict=True)
    ]
    changed = recast(
        graph, rows, name=f"{PREFIX}all_gather", work_ns=work, size=sent, cost="roofline"
    )
    changed = insert_before(changed, rows, COMPRESS_PASSES * old, f"{PREFIX}compress", "dgc")
    changed = insert_behind_wait(changed, rows, RESTORE_PASSES * old + sent, f"{PREFIX}restore")
    return add_note(
        changed,
        f"dgc: {ratio:.3g} of the gradients and their places travel, {np.sum(sent) / 1e6:.3g} MB "
        f"instead of {np.sum(old) / 1e6:.3g} in {graph.steps} steps",
    )
