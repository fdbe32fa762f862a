"""What a collective costs while others like it run beside it: alike ranks all start together.

In: the groups of devices that do the same at once. Out: the `Cost` of one of them, longer by how
often the busiest link that it uses is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.transforms.collectives.cost import Cost, collective_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.transforms.cluster.cost_tables import CollectiveTable
    from foretrace.transforms.cluster.model import Cluster


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
