"""Which data-parallel replicas gather and reduce together: all, or those of a shard.

In: the rows of one kind of collective and when each began. Out: groups of replicas. A timeline does
not name them; members of a group begin within a moment of each other, step after step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

TOGETHER = 0.02
"""Of the length of a collective: members begin closer than this."""
ALWAYS = 0.9
"""Share of the collectives that two members must begin together."""
COMPARED = 200
"""Collectives that are looked at."""
LEAST_MEMBERS = 2


def find_shards(rows: Ints, start: Ints, duration: Ints) -> list[Ints]:
    """Return the replicas of each group, of *rows* [step, replica, stage, place].

    Groups must be of one size and have at least two members; else all replicas are one group.

    >>> rows = np.arange(4).reshape(1, 4, 1, 1)
    >>> [shard.tolist() for shard in find_shards(rows, np.array([0, 90, 1, 91]), np.full(4, 100))]
    [[0, 2], [1, 3]]
    """
    replicas = rows.shape[1]
    everybody = [np.arange(replicas)]
    each = np.moveaxis(rows, 1, -1).reshape(-1, replicas)
    each = each[(each >= 0).all(axis=1)][:COMPARED]
    if not len(each):
        return everybody
    together = np.zeros((replicas, replicas))
    for members in each:
        apart = np.abs(start[members][:, None] - start[members])
        together += apart <= TOGETHER * np.median(duration[members])
    leader = (together >= ALWAYS * len(each)).argmax(axis=1)
    shards = [np.flatnonzero(leader == number) for number in np.unique(leader)]
    sizes = {len(shard) for shard in shards}
    return shards if len(sizes) == 1 and sizes.pop() >= LEAST_MEMBERS else everybody
