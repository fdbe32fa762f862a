"""The constants of NCCL's own cost model, by which it chooses algorithm and protocol.

They are those of its tuning model (src/graph/tuning.cc, NCCL 2.2x): latencies in microseconds,
bandwidths in GB/s, by algorithm and protocol.
"""

from __future__ import annotations

import math

BASE_US = {
    "ring": {"ll": 6.6, "ll128": 14.0, "simple": 8.4},
    "tree": {"ll": 6.8, "ll128": 14.0, "simple": 8.4},
}
HOP_US = {
    ("nvlink", "ring"): {"ll": 0.6, "ll128": 1.9, "simple": 3.4},
    ("nvlink", "tree"): {"ll": 0.6, "ll128": 1.25, "simple": 4.0},
    ("pcie", "ring"): {"ll": 1.0, "ll128": 2.5, "simple": 5.7},
    ("pcie", "tree"): {"ll": 1.0, "ll128": 1.9, "simple": 4.0},
    ("network", "ring"): {"ll": 2.7, "ll128": 4.0, "simple": 14.0},
    ("network", "tree"): {"ll": 5.0, "ll128": 8.5, "simple": 14.0},
}
POST_US = {"ll": 1.0, "ll128": 1.0, "simple": 3.0}
"""Least time of a step inside a machine while others leave it: what posting to a NIC costs."""
BANDWIDTH = {
    "ring": {"ll": 0.5, "ll128": 0.92, "simple": 1.0},
    "tree": {"ll": 0.92 / 3.8, "ll128": 0.92 * 120 / 128, "simple": 0.92},
}
"""Share of the bandwidth of the links that each protocol reaches."""
TREE_LL128_INSIDE = 0.92 * 7 / 9
"""The same for trees that stay in one machine."""
LL_GB_PER_S = {7.0: 39.0, 8.0: 87.7, 9.0: 141.0}
"""Most that LL reaches inside a machine, by compute capability (Volta, Ampere, Hopper)."""
VOLTA, HOPPER = 7.0, 9.0
"""Compute capabilities between which LL128 is used."""
TREE_BY_SIZE = {
    "ll": (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1),
    "ll128": (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1),
    "simple": (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8,
               .9, .9),
}  # fmt: skip
"""Share of its bandwidth that a tree reaches, by powers of two from 64 bytes on."""


def bandwidth_share(algorithm: str, protocol: str, *, size: float, machines: int) -> float:
    """Return the share of the links' bandwidth that the protocol reaches with *size* bytes.

    Examples
    --------
    >>> bandwidth_share("ring", "ll", size=1e9, machines=1)
    0.5
    """
    share = BANDWIDTH[algorithm][protocol]
    if algorithm == "ring":
        return share
    if (protocol, machines) == ("ll128", 1):
        share = TREE_LL128_INSIDE
    octave = max((int(size) >> 6).bit_length() - 1, 0)
    by_size = TREE_BY_SIZE[protocol]
    return share * (by_size[octave] if octave < len(by_size) else 1.0)


def most_gb_per_s(protocol: str, capability: float, *, machines: int) -> float:
    """Return the bandwidth that the protocol cannot exceed, whatever the links."""
    if protocol != "ll" or machines > 1:
        return math.inf
    return LL_GB_PER_S.get(capability // 1, math.inf)


def steps(kind: str, algorithm: str, *, ranks: int, machines: int) -> tuple[float, float]:
    """Return the steps inside machines, and those between them, that follow each other.

    Examples
    --------
    >>> steps("all_reduce", "ring", ranks=16, machines=2)
    (26, 4)
    >>> steps("all_reduce", "tree", ranks=16, machines=2)
    (14.0, 2)
    """
    if algorithm == "tree":
        return 2 * (ranks / machines - 1), 2 * int(math.log2(machines))
    if kind in {"send", "all_to_all"}:
        return (1, 0) if machines == 1 else (0, 1)
    if kind != "all_reduce":
        return ranks - machines, machines - 1
    whole = 2 * (ranks - 1)
    between = min(2 * machines, whole) if machines > 1 else 0
    return whole - between, between
