"""Shared links, and what computation and transfers do to each other, as data beside a graph.

A `Network` says which lanes carry transfers, over which links, and who slows whom. It changes no
task: ``work_ns`` stays the time that a task takes alone; the replay finds out what sharing adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Network:
    """Links that several lanes share, and the speeds of what overlaps.

    Transfers are the tasks of the lanes that ``routes`` or ``members`` name: all tasks of a lane of
    kind "link"; on a stream of role "communication" all but kernels and memsets.

    - ``links``: names, for reports.
    - ``routes``: (row in lanes, row in links, use). At full speed a transfer takes the share *use*
      (above 0, at most 1) of the capacity of the link. Transfers that want more than a link has
      share it max-min fairly: equal shares, unless one cannot use its own.
    - ``members``: (row in lanes, rank): the ranks that a transfer of this lane joins. A lane that
      is not named here belongs to the rank in lanes, and to the device there if that is not −1.
    - ``compute_share``: speed of tasks of the kinds ``slowed`` while a transfer of their rank runs;
      lags are not slowed.
    - ``transfer_share``: speed of a transfer, relative to its share of the links, while such a
      task of one of its ranks runs.
    """

    links: tuple[str, ...] = ()
    routes: tuple[tuple[int, int, float], ...] = ()
    compute_share: float = 1.0
    transfer_share: float = 1.0
    slowed: tuple[str, ...] = ("kernel",)
    members: tuple[tuple[int, int], ...] = ()

    @property
    def transfer_lanes(self) -> NDArray[np.int64]:
        """Rows in lanes that carry transfers, ascending."""
        named = {lane for lane, *_ in self.routes} | {lane for lane, _ in self.members}
        return np.array(sorted(named), np.int64)

    def columns(self, name: str) -> list[NDArray[Any]]:
        """Return ``routes`` or ``members`` column by column.

        >>> Network(("uplink",), ((2, 0, 0.5),)).columns("routes")
        [array([2]), array([0]), array([0.5])]
        """
        rows = getattr(self, name)
        width = 3 if name == "routes" else 2
        return [np.array(column) for column in zip(*rows, strict=True)] or [
            np.empty(0, int)
        ] * width
