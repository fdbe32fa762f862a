"""What a collective costs in NCCL, by its own model: algorithm, protocol, latency and bandwidth.

NCCL chooses algorithm and protocol by the constants of its tuning model (src/graph/tuning.cc, NCCL
2.2x): latencies in microseconds, bandwidths in GB/s. So does this; what the choice costs is then
taken from the cluster where it says more (`Start`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.link_load import (
    UNTESTED,
    Traffic,
    exchange_traffic,
    flow_traffic,
    merge_traffic,
    ring_traffic,
    tree_traffic,
)
from foretrace.transforms.cluster.topology import by_machine, fabric, hop_inside, hop_outside
from foretrace.transforms.collectives.estimate import Estimate, busy, edge_share
from foretrace.transforms.costs.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.transforms.cluster.model import Cluster

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
DIRECT = ("send", "all_to_all")
"""Kinds whose bytes go straight from sender to receiver."""
START_SPREAD = 0.5
"""Times of small messages differ from these constants by up to 36 % (V100 and A100 all_reduce of
1 MiB and less, in vTrain's tables and a recorded DLRM); rounded up."""
PROTOCOL_SPREAD = {"ll": 1.4, "ll128": 0.6, "simple": 0.0}
"""In vTrain's tables (1 to 16 MiB) LL took up to 2.4 times and LL128 up to 1.6 times what NCCL's
constants say; what Simple may differ by, the links say."""
EXCHANGE_BYTES = 100_000
"""all_to_all above this size (what one rank holds) has not been compared with any measurement."""


def nccl_estimate(
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
        The algorithm or protocol does not exist for this kind or on these devices.
    """
    return _best(_Call(cluster, tuple(groups), kind, size), algorithm, protocol)


@dataclass(frozen=True)
class _Call:
    """One kind of collective that *groups* of equal shape run at the same time."""

    cluster: Cluster
    groups: tuple[tuple[int, ...], ...]
    kind: str
    size: float

    @cached_property
    def ranks(self) -> int:
        return len(self.groups[0])

    @cached_property
    def machines(self) -> int:
        return len(by_machine(self.cluster, self.groups[0]))

    @cached_property
    def capability(self) -> float:
        device = find_device(self.cluster.device)
        return device.capability if device else 0.0

    @cached_property
    def hop(self) -> tuple[str, float]:
        """Medium of the hops inside a machine, and their latency in microseconds."""
        medium, latency_ns = hop_inside(self.cluster, self.groups[0])
        return medium, latency_ns / 1000

    @property
    def has_ll128(self) -> bool:
        """NCCL uses LL128 over NVLink only, from Volta to Hopper."""
        linked = fabric(self.cluster) != "pcie" and self.hop[0] == "nvlink"
        return linked and VOLTA <= self.capability <= HOPPER

    @cached_property
    def ring(self) -> Traffic:
        """Per byte of a ring edge; of kinds without a ring, per byte between two devices."""
        if self.kind == "all_to_all":
            return _merge([exchange_traffic(self.cluster, group) for group in self.groups])
        if self.kind == "send":
            return flow_traffic(self.cluster, tuple((g[0], g[1], 1.0) for g in self.groups))
        return _merge([ring_traffic(self.cluster, group) for group in self.groups])

    @cached_property
    def tree(self) -> Traffic:
        """Per byte of the whole."""
        return _merge([tree_traffic(self.cluster, group) for group in self.groups])

    @property
    def crossing(self) -> float:
        """Bytes over each edge of the ring; a chain carries the whole in both directions."""
        if self.kind == "all_reduce" and self.ring.is_chain and self.machines == 1:
            return self.size
        return self.size * edge_share(self.kind, self.ranks)

    def transfer_us(self, algorithm: str, protocol: str, *, by_library: bool) -> float:
        """Return the time of the bytes; the library takes a tree to move them twice."""
        crossing, traffic = self.crossing, self.ring
        if algorithm == "tree":
            crossing, traffic = (2 * self.size, self.ring) if by_library else (self.size, self.tree)
        share = bandwidth_share(algorithm, protocol, size=self.size, machines=self.machines)
        most = most_gb_per_s(protocol, self.capability, machines=self.machines)
        return crossing * max(traffic.ns_per_byte / share, 1 / most) / 1000

    def start_us(self, algorithm: str, protocol: str, *, by_library: bool) -> float:
        """Return the latency; *by_library* leaves out what the cluster says."""
        start, (medium, latency_us) = self.cluster.start, self.hop
        base = BASE_US[algorithm][protocol]
        hop = max(HOP_US[medium, algorithm][protocol], latency_us)
        if not by_library and (algorithm, protocol) == ("ring", "simple"):
            base = base if start.base_us is None else start.base_us
            hop = hop if start.hop_us is None else start.hop_us / 2
        if self.machines > 1:
            hop = max(hop, POST_US[protocol])
        latency_us = hop_outside(self.cluster, self.groups[0]) / 1000
        out = max(HOP_US["network", algorithm][protocol], latency_us)
        within, between = steps(self.kind, algorithm, ranks=self.ranks, machines=self.machines)
        return base + within * hop + between * out

    def library_us(self, option: tuple[str, str]) -> float:
        """Return the time by which NCCL compares algorithms and protocols."""
        start = self.start_us(*option, by_library=True)
        return start + self.transfer_us(*option, by_library=True)

    @property
    def copy_ns(self) -> float:
        """Work per byte inside a machine; all_reduce does it twice, in both of its halves."""
        rate = self.cluster.start.copy_gb_per_s
        if rate is None or self.machines > 1 or self.kind in DIRECT:
            return 0.0
        return self.size / rate / (1 if self.kind == "all_reduce" else 2)


def _best(call: _Call, algorithm: str, protocol: str) -> Estimate:
    """Return the estimate of what NCCL would choose among what is allowed."""
    chosen = min(_options(call, algorithm, protocol), key=call.library_us)
    is_tree = chosen[0] == "tree"
    traffic, crossing = (call.tree, call.size) if is_tree else (call.ring, call.crossing)
    note = traffic.note
    if call.kind == "all_to_all" and call.size > EXCHANGE_BYTES:
        note = "the bandwidth of all_to_all has not been compared with a measurement"
    return Estimate(
        start_ns=1000 * call.start_us(*chosen, by_library=False),
        transfer_ns=1000 * call.transfer_us(*chosen, by_library=False),
        copy_ns=call.copy_ns,
        busy=busy(traffic, crossing),
        start_spread=START_SPREAD,
        transfer_spread=max(traffic.spread, PROTOCOL_SPREAD[chosen[1]], UNTESTED if note else 0.0),
        form=" ".join(chosen if call.kind not in DIRECT else ("direct", chosen[1])),
        note=note,
    )


def _merge(traffics: list[Traffic]) -> Traffic:
    return traffics[0] if len(traffics) == 1 else merge_traffic(traffics)


def _options(call: _Call, algorithm: str, protocol: str) -> list[tuple[str, str]]:
    algorithms = ["ring", "tree"] if call.kind == "all_reduce" else ["ring"]
    protocols = ["ll", "ll128", "simple"] if call.has_ll128 else ["ll", "simple"]
    if algorithm not in {"auto", *algorithms}:
        raise TransformError(f"NCCL has no {algorithm} {call.kind}")
    if protocol not in {"auto", *protocols}:
        raise TransformError(f"NCCL does not use {protocol} on these devices: NVLink only")
    return list(
        product(
            algorithms if algorithm == "auto" else [algorithm],
            protocols if protocol == "auto" else [protocol],
        )
    )


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
