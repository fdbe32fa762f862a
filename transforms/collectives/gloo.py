"""What a collective costs in gloo over TCP: the forms that real runs on shaped links showed.

Bytes per rank were read from interface counters (the project's findings on shaped links, torch
2.13, two and four ranks): all_reduce is a ring, reduce_scatter sends and takes as much as a whole
all_reduce, all_gather is a ring, broadcast a binomial tree whose root sends log2(n) times.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.link_load import (
    exchange_traffic,
    flow_traffic,
    merge_traffic,
    ring_traffic,
)
from foretrace.transforms.cluster.topology import hop_outside
from foretrace.transforms.collectives.estimate import (
    Estimate,
    busy,
    edge_share,
    in_series,
)
from foretrace.transforms.costs.assumed import Assumed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.transforms.cluster.link_load import Traffic
    from foretrace.transforms.cluster.model import Cluster

TICK_NS, TICK_BYTES = 4_000_000, 65_536
"""Messages up to this size take either 0.1 to 0.4 ms or about 4 ms, one scheduler tick."""
START_SPREAD = 0.54
"""30 to 100 µs were seen around the middle of 65 µs."""
FREE_BYTES, HELD_PER_DOUBLING, MOST_HELD = 262_144, 0.1, 1.5
"""A rank's message in an all_gather up to this size takes what its form says, larger ones up to 1.5
times that: they go both ways at once and hold up each other's acknowledgements."""
HELD = Assumed(
    "by how much large messages of gloo's all_gather hold up each other, over a tenth per doubling",
    *(1.0, 0.0, 2.0),
    "alone over shaped links, two and four ranks, messages of 0.5 to 8 MB took 1.0 to 1.5 times "
    "their form, the same ones now the one and now the other",
    ("network-epyc-1: all_gather alone", "drawn-200 to drawn-303 under FSDP"),
    more_is_longer=True,
)
SEEN_SPREAD = {"broadcast": 0.09}
"""-2 to +9 % and noisy."""
UNSEEN = {"reduce": 0.5, "all_to_all": 0.5}
"""No run of these was made: spread by estimate of this project."""


def gloo_estimate(
    cluster: Cluster,
    groups: Sequence[tuple[int, ...]],
    kind: str,
    size: float,
    *,
    algorithm: str = "auto",
    protocol: str = "auto",
) -> Estimate:
    """Estimate collectives of *size* bytes that *groups* of equal shape run at the same time.

    Raises
    ------
    TransformError
        gloo has no such algorithm, or a protocol of NCCL was asked for.
    """
    if protocol != "auto":
        raise TransformError(f"gloo has no protocol {protocol!r}: that is NCCL's")
    if algorithm == "tree":
        raise TransformError(f"gloo has no tree {kind}: it uses a ring")
    ranks = len(groups[0])
    if kind == "broadcast":
        return _broadcast(cluster, groups, size)
    if kind == "send":
        traffic = flow_traffic(cluster, tuple((g[0], g[1], 1.0) for g in groups))
        return _form(cluster, groups, kind, size, size, traffic, 1)
    if kind == "all_to_all":
        traffic = merge_traffic(exchange_traffic(cluster, group) for group in groups)
        return _form(cluster, groups, kind, size, size / ranks, traffic, ranks - 1)
    traffic = merge_traffic(ring_traffic(cluster, group) for group in groups)
    share = edge_share("all_gather" if kind == "all_gather" else "all_reduce", ranks)
    steps = ranks - 1 if kind == "all_gather" else 2 * (ranks - 1)
    return _form(cluster, groups, kind, size, size * share, traffic, steps)


def held(message: float) -> float:
    """Return how many times what its form says an all_gather takes with such a message per rank.

    >>> held(262_144), held(1 << 20)
    (1.0, 1.2)
    """
    doublings = math.log2(max(message / FREE_BYTES, 1.0))
    return min(1 + HELD.now() * HELD_PER_DOUBLING * doublings, MOST_HELD) if doublings else 1.0


def read_held(measured_ns: float, form_ns: float) -> float:
    """Return what an all_gather takes that measured runs of it alone took: no less than its form.

    Back to back such runs may be the quick ones; at the least of `HELD` they are taken to be.
    """
    return (min if HELD.now() <= HELD.least else max)(measured_ns, form_ns)


def _broadcast(cluster: Cluster, groups: Sequence[tuple[int, ...]], size: float) -> Estimate:
    """In each round every rank that has the data sends it to one that has not."""
    rounds: list[Estimate] = []
    reached = 1
    while reached < len(groups[0]):
        flows = tuple(
            (group[at], group[at + reached], 1.0)
            for group in groups
            for at in range(min(reached, len(group) - reached))
        )
        traffic = flow_traffic(cluster, flows)
        rounds.append(_form(cluster, groups, "broadcast", size, size, traffic, 1, first=not rounds))
        reached *= 2
    return in_series(rounds, "binomial tree")


def _form(
    cluster: Cluster,
    groups: Sequence[tuple[int, ...]],
    kind: str,
    size: float,
    crossing: float,
    traffic: Traffic,
    steps: int,
    *,
    first: bool = True,
) -> Estimate:
    start = 1000 * (cluster.start.base_us or 0.0) if first else 0.0
    start += steps * hop_outside(cluster, groups[0])
    doubt = UNSEEN.get(kind, SEEN_SPREAD.get(kind, 0.0))
    if kind == "all_gather" and size > FREE_BYTES * len(groups[0]):
        crossing *= held(size / len(groups[0]))
        doubt = MOST_HELD - 1
    note = f"no {kind} of gloo has been measured" if kind in UNSEEN else traffic.note
    tick = TICK_NS / start if start and size <= TICK_BYTES else 0.0
    return Estimate(
        start_ns=start,
        transfer_ns=crossing * traffic.ns_per_byte,
        busy=busy(traffic, crossing),
        start_spread=max(START_SPREAD, tick),
        transfer_spread=max(traffic.spread, doubt),
        form="ring",
        note=note or ("a message this small may wait for a scheduler tick of 4 ms" if tick else ""),
    )
