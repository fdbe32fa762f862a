"""What a collective costs among devices of a cluster, alone or while others run beside it.

In: cluster, devices (positions in the cluster, ring order as given), kind and size. Out: a `Cost`,
from a table where one has the case, else from the library's form on the cluster's links.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.cost_tables import KINDS
from foretrace.transforms.cluster.link_load import ring_traffic
from foretrace.transforms.cluster.topology import topology_of
from foretrace.transforms.collectives.estimate import ALGORITHMS, PROTOCOLS, Estimate, hierarchical
from foretrace.transforms.collectives.gloo import gloo_estimate, read_held
from foretrace.transforms.collectives.interpolation import Case, look_up
from foretrace.transforms.collectives.nccl import nccl_estimate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from foretrace.transforms.cluster.cost_tables import CollectiveTable
    from foretrace.transforms.cluster.model import Cluster

LONGEST_NS = 86_400 * 1e9
"""No collective is meant to take longer than a day; a mistaken rate does."""


@dataclass(frozen=True)
class Cost:
    """What one collective costs.

    Attributes
    ----------
    ns
        From the arrival of the last rank to the end, alone on its links.
    source
        One of `foretrace.graph.model.COSTS`: "table" or "roofline".
    spread
        Half-width of the interval as a share of ``ns``.
    uses
        Directed links it loads, and the share of each one's capacity while it runs.
    note
        What was assumed: the form or the table, and what is doubtful about it.
    """

    ns: int
    source: str
    spread: float
    uses: tuple[tuple[str, float], ...] = ()
    note: str = ""


def collective_cost(
    cluster: Cluster,
    devices: Sequence[int],
    kind: str,
    size_bytes: float,
    *,
    algorithm: str = "auto",
    protocol: str = "auto",
    table: CollectiveTable | None = None,
) -> Cost:
    """Return the cost of one collective.

    Parameters
    ----------
    cluster, devices
        Where it runs. A ring goes through the devices in this order (NCCL orders those of one
        machine itself); the first one is the root, or sends.
    kind
        One of `KINDS`.
    size_bytes
        Of all_gather and reduce_scatter the whole, of all_to_all what one rank holds.
    algorithm, protocol
        "auto" is what the library would choose; else one of `ALGORITHMS` and `PROTOCOLS`.
    table
        Measured costs, by default the cluster's own; they are used where nothing else was asked for
        than "auto".

    Raises
    ------
    TransformError
        The group, kind or size is impossible, or the table cannot be extended to this group.

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import ethernet
    >>> cost = collective_cost(ethernet(2, 0.3), (0, 1), "all_reduce", 1_000_000)
    >>> round(cost.ns / 1e6, 1), cost.source
    (27.9, 'roofline')
    """
    group = _group(cluster, devices, kind)
    size = _size(size_bytes)
    _one_of("algorithm", algorithm, ALGORITHMS)
    _one_of("protocol", protocol, PROTOCOLS)
    if len(group) == 1:
        return Cost(0, "roofline", 0.0, note="one rank has nothing to exchange")
    estimate = _estimate(cluster, group, kind, size, algorithm, protocol)
    table = table or cluster.table
    if table is None or (algorithm, protocol) != ("auto", "auto"):
        return _by_form(estimate)
    return _by_table(table, cluster, group, kind, size) or _by_form(estimate)


def cost_at_once(
    cluster: Cluster,
    groups: Sequence[Sequence[int]],
    kind: str,
    size_bytes: float,
    *,
    table: CollectiveTable | None = None,
) -> Cost:
    """Return what the first of *groups* takes when all of them run the same collective at once.

    Groups that share no link with it change nothing, so those of other machines may be left out.
    Since all begin and end together, equal shares of the busiest link are max-min fair.

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import ethernet
    >>> racks = ethernet(4, 1.0, racks=2, uplink_gbit=1.0)
    >>> alone = cost_at_once(racks, [(0, 2)], "send", 1e6).ns
    >>> round(cost_at_once(racks, [(0, 2), (1, 3)], "send", 1e6).ns / alone)
    2
    """
    costs = [collective_cost(cluster, group, kind, size_bytes, table=table) for group in groups]
    asked: defaultdict[str, float] = defaultdict(float)
    for cost in costs:
        for link, use in cost.uses:
            asked[link] += use
    first = costs[0]
    crowd = max((asked[link] for link, _ in first.uses), default=1.0)
    if crowd <= 1:
        return first
    uses = tuple((link, min(use, asked[link]) / crowd) for link, use in first.uses)
    note = f"{first.note}; {len(groups)} at once share its links"
    return replace(first, ns=round(first.ns * crowd), uses=uses, note=note)


def _estimate(
    cluster: Cluster,
    group: tuple[int, ...],
    kind: str,
    size: float,
    algorithm: str = "auto",
    protocol: str = "auto",
) -> Estimate:
    if algorithm == "hierarchical" and kind != "all_reduce":
        raise TransformError(f"a hierarchical {kind} is not known: only all_reduce is decomposed")
    library = gloo_estimate if cluster.transport == "tcp" else nccl_estimate

    def stage(kind: str, groups: Sequence[tuple[int, ...]], size: float) -> Estimate:
        return library(cluster, groups, kind, size, algorithm="ring", protocol=protocol)

    if algorithm == "hierarchical":
        estimate = hierarchical(cluster, group, size, stage)
    else:
        estimate = library(cluster, [group], kind, size, algorithm=algorithm, protocol=protocol)
    if not estimate.ns <= LONGEST_NS:
        raise TransformError(
            f"{kind} of {size:.3g} bytes would take more than a day on cluster {cluster.name!r}; "
            "are its rates and latencies right?"
        )
    return estimate


def _by_form(estimate: Estimate) -> Cost:
    return Cost(
        ns=round(estimate.ns),
        source="roofline",
        spread=estimate.spread,
        uses=_shares(estimate, estimate.ns),
        note="; ".join(filter(None, (estimate.form, estimate.note))),
    )


def _by_table(
    table: CollectiveTable, cluster: Cluster, group: tuple[int, ...], kind: str, size: float
) -> Cost | None:
    """Return what the table says, extended by the form where it has to be; None: it has nothing."""

    def form(ranks: int, of_size: float) -> Estimate:
        there, devices = _resize(cluster, group, ranks) or (cluster, group)
        return _estimate(there, devices, kind, of_size)

    def rate(ranks: int) -> float | None:
        resized = _resize(cluster, group, ranks)
        traffic = ring_traffic(*resized) if resized else None
        return 1 / traffic.ns_per_byte if traffic and not traffic.note else None

    case = Case(cluster.device, topology_of(cluster, group), kind, len(group), size)
    measured = look_up(table, case, form, rate)
    if measured is None:
        return None
    there = form(len(group), size)
    ns = max(measured.ns, 1.0)
    if cluster.transport == "tcp" and kind == "all_gather":
        ns = read_held(ns, there.ns)
    uses = _shares(there, ns)
    return Cost(round(ns), "table", measured.spread, uses, measured.note)


@lru_cache(maxsize=256)
def _resize(
    cluster: Cluster, group: tuple[int, ...], ranks: int
) -> tuple[Cluster, tuple[int, ...]] | None:
    """Return *ranks* devices placed as the group is, from the first on; None: impossible."""
    if ranks == len(group):
        return cluster, group
    machines = len({cluster.place(device)[0] for device in group})
    each, left = divmod(len(group), machines)
    if machines == 1:
        return (cluster, cluster.packed(ranks)) if ranks <= len(cluster.devices) else None
    if left or ranks % each:
        return None
    needed = max(ranks // each, cluster.machines)
    larger = cluster if needed == cluster.machines else replace(cluster, machines=needed)
    return larger, larger.packed(ranks, each)


def _shares(estimate: Estimate, ns: float) -> tuple[tuple[str, float], ...]:
    """Return the share of each link's capacity that is used while the collective takes *ns*."""
    return tuple((link, min(t / ns, 1.0)) for link, t in estimate.busy.items()) if ns else ()


def _group(cluster: Cluster, devices: Sequence[int], kind: str) -> tuple[int, ...]:
    """Return the devices if they can be one group of this kind."""
    _one_of("kind", kind, KINDS)
    group = tuple(int(device) for device in devices)
    if not group:
        raise TransformError(f"{kind} among 0 ranks: a group has at least 1")
    twice = {device for device in group if group.count(device) > 1} if _repeats(group) else set()
    if twice:
        raise TransformError(f"{kind}: device {min(twice)} is in the group more than once")
    outside = [device for device in group if not 0 <= device < cluster.size]
    if outside:
        raise TransformError(
            f"{kind}: device {outside[0]} is not in cluster {cluster.name!r}, which has "
            f"{cluster.size} (0 to {cluster.size - 1})"
        )
    if kind == "send" and len(group) != 2:  # noqa: PLR2004
        raise TransformError(f"send is between 2 devices, not {len(group)}")
    return group


def _repeats(group: tuple[int, ...]) -> bool:
    return len(set(group)) < len(group)


def _size(size_bytes: float) -> float:
    if not 0 <= size_bytes < math.inf:
        raise TransformError(f"a collective of {size_bytes} bytes: expected a number from 0 on")
    return float(size_bytes)


def _one_of(what: str, given: str, allowed: Collection[str]) -> None:
    if given not in allowed:
        near = get_close_matches(str(given), allowed, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(allowed)}"
        raise TransformError(f"unknown {what} {given!r}: {hint}")
