"""What DDP exchanges in a step: buckets of gradients, and what their all-reduce costs.

In: the gradients of a job, its workers, and how DDP is set up. Out: an `ExchangePlan`, which
`gloo` and `nccl` put into a graph.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.transforms.collectives.cost import Cost, collective_cost
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.distributed.common.buckets import Caps, fill_buckets
from foretrace.transforms.distributed.common.gradient_sizes import MB
from foretrace.transforms.distributed.common.sparse_rows import INDEX_BYTES
from foretrace.transforms.edit.columns import Rows, is_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.distributed.common.gradients import Gradient

HALF = 2
"""Bytes of an element on the wire with the fp16 or bf16 hook."""
STATISTICS = slice(3, 5)
"""Inputs of batch_norm that are buffers: running mean and variance."""
BUFFER_WIDTH = 4
SPARSE_HEADER_BYTES = 72
"""What gloo tells of a sparse tensor before its rows: nine int64 (torch, ``ProcessGroupGloo``)."""


class BucketExchange(NamedTuple):
    """The all-reduce of one bucket in one step: its gradients, and bytes and cost on the wire.

    That of a sparse gradient, which is alone in its bucket, gathers the rows of all workers.
    """

    step: int
    members: tuple[Gradient, ...]
    wire_bytes: int
    cost: Cost

    @property
    def bytes(self) -> int:
        """Bytes of the gradients."""
        return sum(each.bytes for each in self.members)

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied out of the bucket: none of a sparse gradient."""
        return sum(each.bytes for each in self.members if not each.rows)

    @property
    def turn(self) -> int:
        """The backward pass of the step that makes them."""
        return self.members[-1].turn


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
    """Group the gradients of each step into buckets, with the cost of each one's exchange."""
    costs: dict[tuple[str, int], Cost] = {}
    made: list[BucketExchange] = []
    for step in dict.fromkeys(each.step for each in gradients):
        mine = [each for each in gradients if each.step == step]
        for bucket in bucketed(mine, limits):
            members = tuple(mine[i] for i in bucket)
            size = sum(_wire_bytes(each, compressed=compressed) for each in members)
            made.append(BucketExchange(step, members, size, _cost(placed, members, size, costs)))
    return tuple(made)


def bucketed(gradients: Sequence[Gradient], limits: Caps) -> list[list[int]]:
    """Return the buckets of the gradients of a step, in the order in which they are exchanged."""
    buckets = [
        [model[at] for at in bucket]
        for model in split_models(gradients)
        for bucket in _fill([gradients[at] for at in model], limits)
    ]
    return sorted(buckets, key=lambda indices: indices[-1])


def split_models(gradients: Sequence[Gradient]) -> list[list[int]]:
    """Return the gradients of a step by the DDP model and backward pass that they belong to.

    In every pass DDP waits for all parameters of a model: those that take part in other passes are
    of another model, as the two networks of a GAN are.

    >>> from foretrace.transforms.distributed.common.gradients import Gradient
    >>> passes = [("critic", 0), ("critic", 1), ("maker", 1)]
    >>> split_models([Gradient(name, 4, 0, 0, turn=turn) for name, turn in passes])
    [[0], [1], [2]]
    """
    seen: Counter[tuple[int, Hashable]] = Counter()
    keys: list[Hashable] = []
    for each in gradients:
        alike = each.name or (each.module, each.shape)
        keys.append((alike, seen[each.turn, alike]))
        seen[each.turn, alike] += 1
    turns: dict[Hashable, set[int]] = {}
    for key, each in zip(keys, gradients, strict=True):
        turns.setdefault(key, set()).add(each.turn)
    models: dict[Hashable, list[int]] = {}
    for at, (key, each) in enumerate(zip(keys, gradients, strict=True)):
        models.setdefault((each.turn, frozenset(turns[key])), []).append(at)
    return list(models.values())


def _fill(gradients: Sequence[Gradient], limits: Caps) -> list[list[int]]:
    """Return the buckets of one model in one pass; a sparse gradient has one of its own."""
    dense = [at for at, each in enumerate(gradients) if not each.rows]
    sizes, widths = ([getattr(gradients[at], name) for at in dense] for name in ("bytes", "width"))
    alone = [[at] for at, each in enumerate(gradients) if each.rows]
    return [[dense[at] for at in bucket] for bucket in fill_buckets(sizes, limits, widths)] + alone


def _cost(
    placed: Placement, members: Sequence[Gradient], size: int, known: dict[tuple[str, int], Cost]
) -> Cost:
    """Return what the exchange of a bucket costs.

    Of a sparse gradient gloo gathers first how many rows each worker has, then indices, then rows.
    """
    if not (rows := members[-1].rows):
        return _collective(placed, "all_reduce", size, known)
    indices = rows * members[-1].dims * INDEX_BYTES
    first, *others = (
        _collective(placed, "all_gather", part * len(placed.devices), known)
        for part in (size - indices, indices, SPARSE_HEADER_BYTES)
    )
    return replace(first, ns=first.ns + sum(each.ns for each in others))


def _collective(
    placed: Placement, kind: str, size: int, known: dict[tuple[str, int], Cost]
) -> Cost:
    if (kind, size) not in known:
        known[kind, size] = collective_cost(placed.cluster, placed.devices, kind, size)
    return known[kind, size]


def describe_passes(plan: ExchangePlan) -> list[str]:
    """Say which passes exchange gradients where a step has several, and what sparse ones have."""
    step = plan.exchanges[0].step
    mine = [each for each in plan.exchanges if each.step == step]
    passes = len({each.turn for each in mine})
    notes = [f"ddp: {passes} backward passes of a step exchange gradients"] if passes > 1 else []
    sparse = [each.members[0] for each in mine if each.members[0].rows]
    if sparse:
        rows = sum(each.rows for each in sparse)
        size = sum(each.bytes for each in sparse) / MB
        notes.append(f"ddp: sparse gradients have {rows:,} rows, {size:.4g} MB with their indices")
    return notes


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
