"""What DDP exchanges in a step: buckets of gradients, and what their all-reduce costs.

In: the gradients of a job, its workers, and how DDP is set up. Out: an `ExchangePlan`, which
`gloo` and `nccl` put into a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.transforms.collectives.cost import Cost, collective_cost
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.distributed.common.buckets import Caps, fill_buckets
from foretrace.transforms.edit.columns import Rows, is_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.distributed.common.gradients import Gradient

HALF = 2
"""Bytes of an element on the wire with the fp16 or bf16 hook."""
STATISTICS = slice(3, 5)
"""Inputs of batch_norm that are buffers: running mean and variance."""
BUFFER_WIDTH = 4


class BucketExchange(NamedTuple):
    """The all-reduce of one bucket in one step: its gradients, and bytes and cost on the wire."""

    step: int
    members: tuple[Gradient, ...]
    wire_bytes: int
    cost: Cost

    @property
    def bytes(self) -> int:
        """Bytes of the gradients."""
        return sum(each.bytes for each in self.members)


@dataclass(frozen=True)
class ExchangePlan:
    """All exchanges in the order in which they are issued, step by step.

    ``late_ns`` is how much later than this rank the slowest is at the end of a step;
    ``copies_back`` tells whether gradients are copied out of their buckets; ``buffers`` are the
    bytes of each buffer that rank 0 broadcasts before the forward pass, in ``broadcast_ns``.
    """

    placed: Placement
    exchanges: tuple[BucketExchange, ...]
    late_ns: int = 0
    copies_back: bool = True
    compressed: bool = False
    buffers: tuple[int, ...] = ()
    broadcast_ns: int = 0

    @property
    def members(self) -> list[Gradient]:
        """All gradients, bucket after bucket."""
        return [gradient for exchange in self.exchanges for gradient in exchange.members]

    @property
    def last_members(self) -> Rows:
        """Place of each exchange's last gradient among `members`."""
        last: Rows = np.cumsum([len(exchange.members) for exchange in self.exchanges]) - 1
        return last

    def per_exchange(self, name: str) -> list[int]:
        """Return an attribute of all exchanges."""
        return [getattr(exchange, name) for exchange in self.exchanges]

    @property
    def sources(self) -> pd.Categorical:
        """Where the cost of each exchange comes from."""
        return pd.Categorical([exchange.cost.source for exchange in self.exchanges])


def plan_exchanges(
    gradients: Sequence[Gradient], limits: Caps, placed: Placement, *, compressed: bool
) -> tuple[BucketExchange, ...]:
    """Group the gradients of each step into buckets, with the cost of each one's all-reduce."""
    costs: dict[int, Cost] = {}
    made: list[BucketExchange] = []
    for step in dict.fromkeys(each.step for each in gradients):
        mine = [each for each in gradients if each.step == step]
        buckets = fill_buckets([g.bytes for g in mine], limits, [g.width for g in mine])
        for bucket in sorted(buckets, key=lambda indices: indices[-1]):
            members = tuple(mine[i] for i in bucket)
            size = sum(_wire_bytes(each, compressed=compressed) for each in members)
            if size not in costs:
                costs[size] = collective_cost(placed.cluster, placed.devices, "all_reduce", size)
            made.append(BucketExchange(step, members, size, costs[size]))
    return tuple(made)


def _wire_bytes(gradient: Gradient, *, compressed: bool) -> int:
    """Return what a gradient has on the wire: the hooks cast wider elements to 16 bits."""
    return gradient.bytes * HALF // max(gradient.width, HALF) if compressed else gradient.bytes


def buffers_of(graph: Graph) -> tuple[int, ...]:
    """Return the bytes of each buffer of the model: as recorded, else those of its batch norms."""
    recorded = graph.meta.extra.get("buffers")
    if recorded is not None:
        return tuple(
            int(np.prod(shape, dtype=np.int64)) * int(width) for _, shape, width in recorded
        )
    operators = graph.operators
    if not len(operators):
        return ()
    norms = is_in(operators["name"], "aten::batch_norm") & operators["shapes"].notna().to_numpy()
    norms &= operators["step"].to_numpy() == operators["step"].to_numpy()[norms].max(initial=-1)
    shapes = [parse_shapes(str(text)) for text in operators["shapes"].astype(object)[norms]]
    return tuple(
        int(np.prod(shape, dtype=np.int64)) * BUFFER_WIDTH
        for inputs in shapes
        for shape in inputs[STATISTICS]
        if shape
    )
