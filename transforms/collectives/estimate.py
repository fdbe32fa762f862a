"""What collectives have in common: bytes per ring edge, estimates, BlueConnect's decomposition.

Sizes count what the field counts: of all_gather and reduce_scatter the whole, of all_to_all what
one rank holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.topology import by_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foretrace.transforms.cluster.link_load import Traffic
    from foretrace.transforms.cluster.model import Cluster

ALGORITHMS = ("auto", "ring", "tree", "hierarchical")
PROTOCOLS = ("auto", "ll", "ll128", "simple")


@dataclass(frozen=True)
class Estimate:
    """The parts of a collective's time, in ns, and how far off they may be (shares).

    ``busy`` is how long each directed link carries bytes, ``form`` what was assumed, in words.
    """

    start_ns: float
    transfer_ns: float
    busy: dict[str, float]
    start_spread: float
    transfer_spread: float
    copy_ns: float = 0.0
    form: str = ""
    note: str = ""

    @property
    def ns(self) -> float:
        """The whole time."""
        return self.start_ns + self.transfer_ns + self.copy_ns

    @property
    def spread(self) -> float:
        """Half-width of the interval, as a share of the whole time."""
        moved = (self.transfer_ns + self.copy_ns) * self.transfer_spread
        return (self.start_ns * self.start_spread + moved) / self.ns if self.ns else 0.0


def edge_share(kind: str, ranks: int) -> float:
    """Return the share of the size that crosses each edge of the ring.

    For all_to_all it is what each rank sends to each other one.
    """
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in {"all_gather", "reduce_scatter"}:
        return (ranks - 1) / ranks
    return 1 / ranks if kind == "all_to_all" else 1.0


def busy(traffic: Traffic, size: float) -> dict[str, float]:
    """Return how long each link carries *size* bytes of a pattern, in ns."""
    return {name: ns_per_byte * size for name, ns_per_byte in traffic.loads.items()}


def in_series(stages: Iterable[Estimate], form: str) -> Estimate:
    """Return the estimate of one stage after the other."""
    parts = list(stages)
    links: dict[str, float] = {}
    for part in parts:
        for name, ns in part.busy.items():
            links[name] = links.get(name, 0.0) + ns
    return Estimate(
        start_ns=sum(p.start_ns for p in parts),
        transfer_ns=sum(p.transfer_ns for p in parts),
        copy_ns=sum(p.copy_ns for p in parts),
        busy=links,
        start_spread=max(p.start_spread for p in parts),
        transfer_spread=max(p.transfer_spread for p in parts),
        form=form,
        note=next((p.note for p in parts if p.note), ""),
    )


def hierarchical(
    cluster: Cluster,
    devices: tuple[int, ...],
    size: float,
    stage: Callable[[str, list[tuple[int, ...]], float], Estimate],
) -> Estimate:
    """Estimate an all_reduce decomposed as BlueConnect does it (Cho and others, MLSys 2019).

    The devices are split by machine, then by each level of switches: reduce_scatter from the
    inside outwards, all_reduce on the outermost level, all_gather on the way back. *stage* costs
    one kind of collective that several groups run at the same time.

    Raises
    ------
    TransformError
        The group is uneven: some machine or switch has more of it than another.
    """
    stages = [groups for groups in nested_groups(cluster, devices) if len(groups[0]) > 1]
    inner, outer = stages[:-1], stages[-1]
    sizes = [size]
    for groups in inner:
        sizes.append(sizes[-1] / len(groups[0]))
    out = [stage("reduce_scatter", g, s) for g, s in zip(inner, sizes, strict=False)]
    back = [stage("all_gather", g, s) for g, s in zip(inner, sizes, strict=False)]
    text = " x ".join(str(len(groups[0])) for groups in stages)
    return in_series([*out, stage("all_reduce", outer, sizes[-1]), *back], f"hierarchical {text}")


def nested_groups(cluster: Cluster, devices: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Return, for each level from the inside outwards, the groups that work at the same time.

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import ethernet
    >>> nested_groups(ethernet(4, 1.0, racks=2), (0, 1, 2, 3))
    [[(0,), (1,), (2,), (3,)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    """
    most = cluster.machines
    spans = [1, *(level.machines for level in cluster.levels if level.machines < most), most]
    members = [[device] for device in sorted(devices)]
    levels = []
    for span in spans:
        joined = [
            [list(peers) for peers in together]
            for _, together in groupby(
                members,
                lambda m: cluster.place(m[0])[0] // span,  # noqa: B023 - used at once
            )
        ]
        if len({len(units) for units in joined}) > 1 or len({len(m) for m in members}) > 1:
            raise TransformError(
                "a hierarchical all_reduce needs as many of its devices in each machine and "
                f"switch: {_counts(cluster, devices)} do not fit"
            )
        levels.append([tuple(rail) for units in joined for rail in zip(*units, strict=True)])
        members = [[device for unit in units for device in unit] for units in joined]
    return levels


def _counts(cluster: Cluster, devices: tuple[int, ...]) -> str:
    return ", ".join(str(len(members)) for members in by_machine(cluster, devices).values())
