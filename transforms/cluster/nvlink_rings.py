"""NVLink rings: how many a group of directly linked devices can run at the same time.

In: the graph of one machine (edges carry ``count`` links) and the devices that take part.
Out: edge-disjoint Hamiltonian cycles, or one chain where no cycle exists.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAIR = 2


@lru_cache(maxsize=4096)
def rings(machine: nx.Graph, devices: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the largest set of cycles through all *devices* that share no link.

    Each cycle can be used in both directions; of a pair, each link counts as one cycle, which
    occupies both directions of that link. Links that leave the group are not used.

    Examples
    --------
    >>> square = nx.cycle_graph(["a", "b", "c", "d"])
    >>> nx.set_edge_attributes(square, 2, "count")
    >>> len(rings(square, ("a", "b", "c", "d"))), rings(square, ("a", "b", "c"))
    (2, ())
    """
    direct = machine.subgraph(devices)
    if len(devices) == PAIR:
        links = direct.edges[devices]["count"] if direct.has_edge(*devices) else 0
        return (devices,) * links
    if not len(direct) or min(degree for _, degree in direct.degree()) < PAIR:
        return ()
    cycles = [
        tuple(cycle)
        for cycle in nx.simple_cycles(direct, length_bound=len(devices))
        if len(cycle) == len(devices)
    ]
    most = min(links for _, links in direct.degree(weight="count")) // 2
    free = Counter({frozenset((u, v)): n for u, v, n in direct.edges(data="count")})
    return tuple(_disjoint(cycles, free, most))


def directed_rings(machine: nx.Graph, devices: tuple[str, ...]) -> int:
    """Return how many rings run at once, each loading one direction of its links."""
    count = len(rings(machine, devices))
    return count if len(devices) == PAIR else 2 * count


@lru_cache(maxsize=4096)
def chain(machine: nx.Graph, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Return *devices* in an order in which each is linked to the next; empty where there is none.

    Examples
    --------
    >>> line = nx.path_graph(["b", "a", "c"])
    >>> chain(line, ("a", "b", "c")), chain(line, ("b", "c"))
    (('b', 'a', 'c'), ())
    """
    direct = machine.subgraph(devices)
    for start in sorted(devices):
        order = _path(direct, [start])
        if order:
            return tuple(order)
    return ()


def edges_of(cycle: Sequence[str]) -> list[tuple[str, str]]:
    """Return the directed edges of a cycle, the closing one included."""
    return list(pairwise([*cycle, cycle[0]]))


def _disjoint(
    cycles: Sequence[tuple[str, ...]], free: Counter[frozenset[str]], most: int
) -> list[tuple[str, ...]]:
    """Return the most cycles that fit into the *free* links, at most *most*."""
    best: list[tuple[str, ...]] = []
    for at, cycle in enumerate(cycles):
        used = Counter(frozenset(edge) for edge in edges_of(cycle))
        if most and used <= free:
            chosen = [cycle, *_disjoint(cycles[at:], free - used, most - 1)]
            best = max(best, chosen, key=len)
        if len(best) == most:
            break
    return best


def _path(direct: nx.Graph, taken: list[str]) -> list[str]:
    if len(taken) == len(direct):
        return taken
    following: Iterable[str] = sorted(set(direct[taken[-1]]) - set(taken))
    return next((path for n in following if (path := _path(direct, [*taken, n]))), [])
