"""The doubts of several ranks in, each once out, with the ranks that it is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt

_NUMBERS = re.compile(r"\d[\d.,]*")


def join_doubts(graphs: Sequence[Graph]) -> tuple[Doubt, ...]:
    """Return the doubts of all ranks; those that differ by numbers and place are one.

    It names the worst rank and how many have it, unless all have the very same.
    """
    alike: dict[tuple[str, str], list[tuple[int, Doubt]]] = {}
    for number, graph in enumerate(graphs):
        for doubt in graph.state.doubts:
            kind = doubt.code, _NUMBERS.sub("#", doubt.text)
            alike.setdefault(kind, []).append((number, doubt))
    ranks = [int(graph.lanes["rank"].iloc[0]) for graph in graphs]
    return tuple(_join(told, ranks) for told in alike.values())


def _join(told: Sequence[tuple[int, Doubt]], ranks: Sequence[int]) -> Doubt:
    number, worst = max(told, key=lambda each: each[1].share)
    count = len({number for number, _ in told})
    if count == len(ranks) and len({doubt for _, doubt in told}) == 1:
        return worst
    which = f"{count} of {len(ranks)} ranks, {'worst' if worst.share else 'such as'} "
    where = f"{which if count > 1 else ''}rank {ranks[number]}"
    return worst._replace(place=f"{where}, {worst.place}" if worst.place else where)
