"""Time that a rank takes to move bytes within its own memory, on a device or on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.rules import STREAMING, floor_ns, machine_rate
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.primitives import insert, insert_kernels
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

MEMORY_GBPS = 900.0
"""Bandwidth of a device that is not in the table (a V100's; prior)."""
HOST_GBPS = 10.0
"""Bytes read plus written per ns on a CPU whose other cores work for other ranks: copies in and out
of FSDP's buffers ran at 8.5 to 10.4, those of DDP's buckets at 10 (two ranks, profiled on the
machine of traces/network-epyc-1). A probe runs alone and says more."""


def moving_ns(graph: Graph, sizes: npt.NDArray[np.float64]) -> Rows:
    """Return how long it takes to read and write *sizes* bytes in all.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> moving_ns(literal([("a", "host", 0, 5, None)]), np.array([1e6])).tolist()
    [100000]
    """
    if not has_device(graph):
        return _whole(sizes / min(machine_rate(graph, "copy_gbps") or HOST_GBPS, HOST_GBPS))
    device = hardware(graph)
    rate = device.memory_gbps if device is not None and device.memory_gbps else MEMORY_GBPS
    return _whole(np.maximum(sizes / (rate * STREAMING), floor_ns(graph)))


def insert_moves(
    graph: Graph, anchors: Rows, sizes: npt.NDArray[np.float64], *, name: str, place: str = "after"
) -> tuple[Graph, Rows]:
    """Insert beside each of *anchors* a task that moves so many bytes: a kernel, or a host task."""
    work = moving_ns(graph, sizes)
    columns: dict[str, Any] = {"name": name, "work_ns": work, "bytes": sizes, "place": place}
    if has_device(graph):
        source = "roofline" if hardware(graph) else "prior"
        return insert_kernels(graph, anchors, cost=source, **columns)
    source = "roofline" if machine_rate(graph, "copy_gbps") else "prior"
    return insert(graph, anchors, kind="host", cost=source, **columns)


def compute_device(graph: Graph) -> int:
    """Return the device that most kernels run on; −1 where there are none."""
    kernels = np.flatnonzero(is_in(graph.tasks["kind"], "kernel"))
    if not len(kernels):
        return -1
    lane = np.bincount(graph.tasks["lane"].to_numpy()[kernels]).argmax()
    return int(graph.lanes["device"].iat[lane])


def _whole(times: npt.NDArray[np.float64]) -> Rows:
    return np.rint(times).astype(np.int64)
