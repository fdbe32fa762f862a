"""Tensor parallelism: each pair of linear layers shared by several devices, as Megatron-LM does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import place_workers
from foretrace.transforms.collectives.cost import cost_at_once
from foretrace.transforms.costs.rules import HOST_FIXED_NS, floor_ns
from foretrace.transforms.distributed.common.blocking_host import lend, wake_ns
from foretrace.transforms.distributed.common.gradient_ready import last_launched
from foretrace.transforms.distributed.common.transfers import (
    add_lane,
    after,
    block,
    communicates,
    device_of,
    send,
    wait,
)
from foretrace.transforms.distributed.common.workers import check_transport, with_workers
from foretrace.transforms.distributed.tensor_parallel.shardable_layers import share_layers
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.collectives.cost import Cost
    from foretrace.transforms.distributed.tensor_parallel.shardable_layers import SharedLayers

NAME = "all_reduce of activations (predicted)"


def tensor_parallel(
    graph: Graph,
    *,
    degree: int,
    cluster: str | None = None,
    network: str | None = None,
    nodes: int | None = None,
    placement: list[int] | None = None,
) -> Graph:
    """Share pairs of linear layers among *degree* devices: the first by columns, then by rows.

    Parameters
    ----------
    graph
        The job of one worker, recorded with modules and shapes.
    degree
        Devices that share each layer.
    cluster, network, nodes, placement
        What joins them, as in `ddp`.

    Notes
    -----
    Assumes: a pair is a linear layer (or several of the same input), something non-linear, and a
    linear layer back to the width of the input: attention and MLP of a transformer. All between
    takes 1/*degree* of its time, less a fixed part per kernel or operator; a product whose grid no
    longer fills the device takes as long as the whole waves of its part. Its output is reduced
    after the second layer forward, and the gradient of its input after the first backward; nothing
    overlaps with that. The rest of the network runs on every device as before.
    Unknown: a vocabulary that is shared as well, sequence parallelism, kernels picked for the new
    shapes. Layers whose shapes the recording does not tell are refused.
    Source: Megatron-LM (2019); wave quantisation as in `batch_size`.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.graph.literal import literal
    >>> steps = [("aten::addmm", "0", "[[64],[8,16],[16,64]]"), ("aten::gelu", "1", "[[8,64]]"),
    ...          ("aten::addmm", "2", "[[16],[8,64],[64,16]]")]
    >>> graph = literal(
    ...     [(name, "host", 0, 1_004_000, "forward") for name, _, _ in steps],
    ...     columns={"operator": [0, 1, 2], "module": pd.Categorical([m for _, m, _ in steps])},
    ...     operators={"name": [n for n, _, _ in steps], "parent": [-1] * 3,
    ...                "phase": ["forward"] * 3, "shapes": [s for _, _, s in steps],
    ...                "dtypes": ['["float","float","float"]'] * 3},
    ... )
    >>> changed = tensor_parallel(graph, degree=2, network="10Gbps")
    >>> changed.tasks.work_ns.tolist()[:3], float(changed.tasks.bytes[3])
    ([504000, 504000, 504000], 512.0)
    """
    whole("degree", degree, 1)
    if degree == 1:
        return graph
    if communicates(graph).any():
        raise TransformError(
            "this job has several ranks already; put tensor_parallel(...) before what adds others"
        )
    sharing = share_layers(graph, degree)
    placed = place_workers(
        degree, cluster=cluster, network=network, nodes=nodes, placement=placement
    )
    check_transport(graph, placed.cluster)
    changed = _insert_sums(_share(graph, sharing, degree), sharing, placed)
    changed = with_workers(changed.with_state(tensor_parallel=degree), placed)
    return add_note(
        changed,
        f"tensor_parallel: {degree} devices share {len(sharing.pairs)} pairs of linear layers, "
        f"from {sharing.pairs[0]!r} to {sharing.pairs[-1]!r}",
    )


def degree_of(graph: Graph) -> int:
    """Return how many devices share each layer."""
    return graph.state.tensor_parallel or 1


def _share(graph: Graph, sharing: SharedLayers, degree: int) -> Graph:
    """Let each device compute its part."""
    work = graph.tasks["work_ns"].to_numpy().astype(np.float64)
    floor = floor_ns(graph) if has_device(graph) else HOST_FIXED_NS
    least = np.minimum(work, floor)
    part = np.full(len(work), 1 / degree)
    fill = graph.tasks["fill"].to_numpy()
    grid = sharing.grid & np.isfinite(fill) & (fill > 0)
    part[grid] = np.maximum(part[grid], np.ceil(fill[grid] / degree) / np.ceil(fill[grid]))
    new = least + (work - least) * (1 - sharing.share * (1 - part))
    where = (sharing.share > 0) & (work > 0)
    return scale(graph, where, new / np.maximum(work, 1), cost="roofline")


def _insert_sums(graph: Graph, sharing: SharedLayers, placed: Placement) -> Graph:
    """Add up the devices' parts; what comes next waits for that."""
    hosts = np.array([each.host for each in sharing.sums], np.int64)
    sizes = np.array([each.bytes for each in sharing.sums], np.float64)
    costs = sum_costs(placed.cluster, [placed.devices], sizes.tolist())
    columns: dict[str, Any] = {
        "name": NAME,
        "work_ns": [costs[size].ns for size in sizes.tolist()],
        "bytes": sizes,
        "cost": pd.Categorical([costs[size].source for size in sizes.tolist()]),
    }
    if not has_device(graph):
        columns["work_ns"] = lend(graph, placed.cluster, hosts, np.array(columns["work_ns"]))
        graph, lane = add_lane(graph)
        graph, rows = send(graph, lane, hosts, **columns)
        return block(graph, rows, return_ns=wake_ns(placed.cluster))[0]
    kernels = last_launched(graph, hosts)
    graph, lane = add_lane(graph, kind="stream", device=device_of(graph, int(kernels[0])))
    behind, shift = after(graph, kernels)
    graph, rows = send(graph, lane, kernels, **columns)
    return wait(graph, rows, behind, shift=shift)


def sum_costs(
    cluster: Cluster, groups: Sequence[Sequence[int]], sizes: Iterable[float]
) -> dict[float, Cost]:
    """Return what a sum of each size costs in the first of *groups*, while all of them add up."""
    return {
        size: cost_at_once(cluster, groups, "all_reduce", size) for size in dict.fromkeys(sizes)
    }
