"""One recorded rank of a job that is distributed already."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.literal import literal
from tests.support.jobs.simple import META

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MS = 1_000_000
MIB = 1 << 20
RING = "ncclKernel_AllReduce_RING_LL_Sum_float"
STREAM, NCCL = 2, 3


def recorded_job(*, copies: bool = True, steps: int = 1, reduced: int = 2) -> Graph:
    """Build one rank of a DDP job: three backward kernels of 1 ms, an all-reduce each of 2 ms.

    Gradients of 1, 20 and 12 MiB: with default caps they are two buckets, so the last two kernels
    lie between the all-reduces. Lanes: 0 main, 1 autograd, 2 compute, 3 NCCL.
    """
    tasks: list[Any] = []
    edges: list[Any] = []
    step: list[int] = []
    size: list[float] = []
    start: list[int] = []
    free = {STREAM: 0, NCCL: 0}

    def launched(
        number: int, name: str, kind: str, lane: int, work: int, phase: str, moved: float
    ) -> None:
        host = 0 if phase in ("forward", "optimizer") else 1
        where = phase if kind != "collective" else "communication"
        edges.append((len(tasks), len(tasks) + 1, "launch", 6_000))
        tasks.extend([("launch", "launch", host, 5_000, "backward" if host else phase),
                      (name, kind, lane, work, where)])  # fmt: skip
        step.extend([number, number])
        size.extend([np.nan, moved])
        waits = kind == "collective" or phase == "optimizer" or kind == "memcpy"
        begin = max(free.values()) if waits else free[lane]
        free[lane] = begin + work
        start.extend([len(start) * 10_000, begin])

    for number in range(steps):
        launched(number, "fwd", "kernel", STREAM, MS, "forward", np.nan)
        launched(number, "bwd", "kernel", STREAM, MS, "backward", np.nan)
        for bucket in range(reduced):
            launched(number, RING, "collective", NCCL, 2 * MS, "backward", np.nan)
            edges.append((len(tasks) - 3, len(tasks) - 1, "event"))
            if bucket < reduced - 1:
                launched(number, "bwd", "kernel", STREAM, MS, "backward", np.nan)
                launched(number, "bwd", "kernel", STREAM, MS, "backward", np.nan)
        last = len(tasks) - 1
        for moved in (1 * MIB, 20 * MIB, 12 * MIB) if copies else ():
            launched(
                number,
                "Memcpy DtoD (Device -> Device)",
                "memcpy",
                STREAM,
                MS // 10,
                "backward",
                moved,
            )
            edges.append((last, len(tasks) - 1, "event"))
        launched(number, "update", "kernel", STREAM, MS, "optimizer", np.nan)
        edges.append((last, len(tasks) - 1, "event"))
    graph = literal(
        tasks,
        edges,
        columns={"step": np.array(step, np.int32), "bytes": size, "start_ns": start},
        meta=META,
        wrap=True,
    )
    roles = graph.lanes["role"].astype(str).tolist()
    roles[NCCL] = "communication"
    return replace(graph, lanes=graph.lanes.assign(role=roles).astype({"role": "category"}))
