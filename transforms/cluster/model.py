"""What a cluster is: machines of devices, and the network between them.

Devices are numbered machine by machine, in the order in which a machine lists them. Bandwidths and
latencies count one direction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from foretrace.errors import TransformError

if TYPE_CHECKING:
    from foretrace.transforms.cluster.cost_tables import CollectiveTable

OUTSIDE = "network"
"""The node of a machine's graph that stands for everything outside the machine."""
MEDIA = ("nvlink", "pcie", "network")
TRANSPORTS = ("nccl", "tcp")
MOST_WORKERS = 1 << 18
"""The largest clusters that companies have announced for one job have some 200,000 devices."""
LARGEST = 1e15
"""No figure of a cluster is meant to be larger: 10^15 ns are eleven days."""


@dataclass(frozen=True)
class Link:
    """One kind of link. Figures count one direction of one link.

    Attributes
    ----------
    name, medium
        As the file calls it, and one of `MEDIA`.
    gb_per_s, latency_ns
        Nominal bandwidth in 10^9 bytes per second; time from one end to the other.
    efficiency
        Share of the nominal bandwidth that large transfers reach.
    spread
        By how much (share) a large transfer may differ from that.
    burst_bytes
        Bytes that pass unshaped after an idle phase; 0 on links that are not shaped.
    """

    name: str
    medium: str
    gb_per_s: float
    latency_ns: int = 0
    efficiency: float = 1.0
    spread: float = 0.5
    burst_bytes: int = 0

    @property
    def bytes_per_ns(self) -> float:
        """What large transfers reach, in bytes per nanosecond (GB/s)."""
        return self.gb_per_s * self.efficiency


@dataclass(frozen=True)
class Level:
    """Switches that each join *machines* neighbouring machines; *count* uplinks lead further."""

    name: str
    machines: int
    uplink: Link
    count: int = 1


@dataclass(frozen=True)
class Start:
    """What a cluster's collectives cost beside its links; None: the library's own constants.

    ``base_us`` and ``hop_us`` (per further rank) belong to large ring all_reduces;
    ``copy_gb_per_s`` is the rate of work per byte that does not shrink with the number of ranks.
    """

    base_us: float | None = None
    hop_us: float | None = None
    copy_gb_per_s: float | None = None


@dataclass(frozen=True)
class Host:
    """What a process and gloo's threads, which communicate for it, cost each other on its core.

    Attributes
    ----------
    wake_us
        From the end of a collective to the return of the thread that sleeps on it.
    bucket_us
        What a collective costs behind computing, beside its bytes.
    contention
        (Gbit/s, speed of computing while a transfer runs, speed of a transfer while its process
        computes), by rising rate of the link.
    """

    wake_us: float = 0.0
    bucket_us: float = 0.0
    contention: tuple[tuple[float, float, float], ...] = ()

    def shares(self, gbit: float) -> tuple[float, float]:
        """Return the speeds of computing and of transfers that overlap, on a link of this rate.

        Between measured rates by the logarithm of the rate, beyond them as at the nearest.

        Examples
        --------
        >>> Host(contention=((0.1, 1.0, 1.0), (10.0, 0.6, 0.5))).shares(1.0)
        (0.8, 0.75)
        """
        if not self.contention or gbit <= 0:
            return 1.0, 1.0
        rates, *speeds = np.array(self.contention).T
        at, log_rates = np.log(gbit), np.log(rates)
        compute, transfer = (float(np.interp(at, log_rates, speed)) for speed in speeds)
        return compute, transfer


@dataclass(frozen=True, eq=False)
class Cluster:
    """Equal machines, and the switches between them.

    Attributes
    ----------
    name, device, transport
        The preset or file; the device as ``devices.toml`` calls it ("" unknown); one of
        `TRANSPORTS`.
    devices
        Names of a machine's devices; device ``i`` of the cluster is number
        ``i % len(devices)`` of machine ``i // len(devices)``.
    machine
        Graph of one machine: devices, switches, NICs and `OUTSIDE`; edges carry ``link`` (a
        `Link`) and ``count``.
    machines
        How many there are.
    levels
        Switches between machines, from the nearest to the farthest; above them one without limit.
    start
        What collectives cost beside the links.
    host
        What communication costs the processes.
    table
        Measured costs of collectives, which go before the forms.
    sources
        Where each figure comes from, by its place in the file.
    """

    name: str
    device: str
    transport: str
    devices: tuple[str, ...]
    machine: nx.Graph
    machines: int = 1
    levels: tuple[Level, ...] = ()
    start: Start = Start()
    host: Host = Host()
    table: CollectiveTable | None = None
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.machines * len(self.devices)

    def place(self, device: int) -> tuple[int, str]:
        """Return the machine that *device* is in, and its name there."""
        machine, at = divmod(device, len(self.devices))
        return machine, self.devices[at]

    def packed(self, workers: int, per_machine: int | None = None) -> tuple[int, ...]:
        """Return *workers* devices that fill machine after machine, *per_machine* in each.

        Raises
        ------
        TransformError
            There are too few devices, too many workers, or these do not fill their machines evenly.
        """
        if workers > MOST_WORKERS:
            raise TransformError(
                f"{workers:,} workers are more than any cluster has; up to {MOST_WORKERS:,} are "
                "modelled"
            )
        most = len(self.devices)
        each = min(workers, most) if per_machine is None else per_machine
        if workers < 1 or each < 1:
            raise TransformError(f"{workers} workers, {each} in each machine: at least 1 is needed")
        if each > most:
            raise TransformError(
                f"a machine of cluster {self.name!r} has {most} devices, {each} were asked for"
            )
        needed, left = divmod(workers, each)
        if left:
            raise TransformError(
                f"{workers} workers do not fill machines with {each} each: take a multiple of "
                f"{each}, or say how many go into a machine"
            )
        if needed > self.machines:
            raise TransformError(
                f"{workers} workers need {needed} machines of cluster {self.name!r}, it has "
                f"{self.machines}: load it with nodes={needed}"
            )
        return tuple(m * most + at for m in range(needed) for at in range(each))

    def with_network(
        self,
        *,
        gb_per_s: float | None = None,
        latency_ns: int | None = None,
        burst_bytes: int | None = None,
    ) -> Cluster:
        """Return the cluster with other links between each machine and the outside.

        *gb_per_s* is what all links of a machine reach together, in one direction; their
        efficiency and its uncertainty stay. *burst_bytes* is what each lets pass after a pause.
        """
        machine = self.machine.copy()
        edges = list(machine.edges(OUTSIDE, data=True)) if OUTSIDE in machine else []
        if not edges:
            raise TransformError(f"cluster {self.name!r} has no network between its machines")
        together = sum(data["link"].gb_per_s * data["count"] for *_, data in edges)
        for *_, data in edges:
            link = data["link"]
            faster = 1.0 if gb_per_s is None else positive(gb_per_s, "a bandwidth") / together
            data["link"] = replace(
                link,
                gb_per_s=link.gb_per_s * faster,
                latency_ns=link.latency_ns if latency_ns is None else latency_ns,
                burst_bytes=link.burst_bytes if burst_bytes is None else burst_bytes,
            )
        return replace(self, machine=machine)

    @cached_property
    def graph(self) -> nx.Graph:
        """Every device, switch and NIC of the cluster; edges carry GB/s (one direction) and ns.

        Nodes of machine 3 are called "m3.gpu0" and so on, switches "rack0" (or as their level is
        called), and the one above all "network".
        """
        whole = nx.Graph()
        inside = [(u, v, edge_figures(**data)) for u, v, data in self.machine.edges(data=True)]
        for machine in range(self.machines):
            nearest = self.switches_above(machine)[0] if self.levels else OUTSIDE
            whole.add_edges_from(
                (_node(machine, u, nearest), _node(machine, v, nearest), figures)
                for u, v, figures in inside
            )
            for level, (below, above) in zip(self.levels, self.switch_path(machine), strict=True):
                whole.add_edge(below, above, **edge_figures(level.uplink, level.count))
        return whole

    def switches_above(self, machine: int) -> list[str]:
        """Return the switch of each level that *machine* is below, from the nearest on."""
        return [f"{level.name}{machine // level.machines}" for level in self.levels]

    def switch_path(self, machine: int) -> list[tuple[str, str]]:
        """Return the uplinks from *machine*'s nearest switch to the top."""
        above = self.switches_above(machine)
        return list(zip(above, [*above[1:], OUTSIDE], strict=True)) if above else []


def edge_figures(link: Link, count: int) -> dict[str, float | int | str]:
    """Return what an edge of the whole graph carries."""
    return {"kind": link.name, "gb_per_s": link.gb_per_s * count, "latency_ns": link.latency_ns}


def positive(value: float, what: str) -> float:
    """Return *value*, or say that *what* must be more than 0."""
    if value > LARGEST:
        raise TransformError(f"{what} is out of range; expected a number up to {LARGEST:g}")
    if not value > 0:
        raise TransformError(f"{what} of {value:g}: expected a number above 0")
    return float(value)


def _node(machine: int, name: str, outside: str) -> str:
    return outside if name == OUTSIDE else f"m{machine}.{name}"
