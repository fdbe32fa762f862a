"""Number of ranks in, what a collective takes beside its bytes where nothing measured it.

By the published constants of NCCL's tuning model, and by what gloo took over shaped links.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from foretrace.transforms.collectives.gloo import START_SPREAD
from foretrace.transforms.collectives.nccl import BASE_US, HOP_US, steps

DEVICES_OF_A_MACHINE = 8
"""NVLink joins so many devices in the usual machine; in the best case it is full."""
GLOO_NS = 65_000
"""Middle of what gloo's all_reduce took beside its bytes, as in shaped-links.toml."""


class Latency(NamedTuple):
    """What collectives take beside their bytes, in ns: the likely value, and its range."""

    least_ns: int
    likely_ns: int
    most_ns: int


def nccl_latency(ranks: int) -> Latency:
    """Return what NCCL's constants say of an all_reduce among *ranks* whose links are not known.

    At least LL over NVLink in as few machines as possible, at most Simple over a network with a
    machine for each rank, by ring or tree, whichever is sooner; likely is their geometric mean.

    Examples
    --------
    >>> nccl_latency(2)
    Latency(least_ns=7800, likely_ns=16850, most_ns=36400)
    """
    least = _sooner_us(ranks, -(-ranks // DEVICES_OF_A_MACHINE), "ll")
    most = _sooner_us(ranks, ranks, "simple")
    return Latency(*(round(1_000 * us) for us in (least, math.sqrt(least * most), most)))


def gloo_latency() -> Latency:
    """Return what gloo took over shaped links.

    Examples
    --------
    >>> gloo_latency()
    Latency(least_ns=29900, likely_ns=65000, most_ns=100100)
    """
    off = round(GLOO_NS * START_SPREAD)
    return Latency(GLOO_NS - off, GLOO_NS, GLOO_NS + off)


def _sooner_us(ranks: int, machines: int, protocol: str) -> float:
    """Return the latency of ring or tree over NVLink inside *machines* and the network between."""
    times = []
    for algorithm, base in BASE_US.items():
        within, between = steps("all_reduce", algorithm, ranks=ranks, machines=machines)
        inside, outside = (HOP_US[medium, algorithm] for medium in ("nvlink", "network"))
        hops = within * inside[protocol] + between * outside[protocol]
        times.append(base[protocol] + hops)
    return min(times)
