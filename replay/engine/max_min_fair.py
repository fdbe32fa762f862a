"""Max-min fair shares of links that several transfers take, compiled.

In: the groups tied together and the links met, records of `loop_state`. Out: their ``limit``.
Compiled into `event_loop`, which must be told of changes (see ``PARTS`` there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import njit

if TYPE_CHECKING:
    from foretrace.replaying.engine.loop_state import Records

_SAME = 1 + 1e-9
"""Two limits of a rate that are this close are one: they differ by rounding."""


@njit(cache=True)
def fill(groups: Records, links: Records, routes: Records, tally: Any, begin: int) -> None:
    """Find the rates of the groups tied together, into ``limit``: max-min fairness.

    Progressive filling of the links met from *begin* on. A transfer is held to an equal share of
    the link that leaves it least. Those that no link holds back, and those on a link that holds
    back all its transfers, are settled first; where links hold each other's transfers, all rates
    rise alike until one link is full.
    """
    for nth in range(begin, tally.met):
        links[links[nth].met].left = 1.0
    size = tally.tied
    while size > 0:
        if not _equal_shares(groups, links, routes, tally, begin, size):
            _rise_alike(groups, links, tally, begin, size)
        still_open = 0
        for nth in range(size):
            at = groups[nth].tied
            if _is_settled(groups, links, routes, at):
                taken = groups[at].running * groups[at].limit
                for p in range(groups[at].first_route, groups[at].end_route):
                    links[routes[p].link].left -= taken * routes[p].use
            else:  # settled groups gather at the end
                groups[nth].tied, groups[still_open].tied = groups[still_open].tied, at
                still_open += 1
        size = still_open


@njit(cache=True)
def _equal_shares(
    groups: Records, links: Records, routes: Records, tally: Any, begin: int, size: int
) -> bool:
    """Limit groups to equal shares of what their links have left; tell whether any is settled."""
    for nth in range(begin, tally.met):
        link = links[links[nth].met]
        link.users, link.wanted, link.binds = 0, 0.0, True
    for nth in range(size):
        group = groups[groups[nth].tied]
        for p in range(group.first_route, group.end_route):
            links[routes[p].link].users += group.running
            links[routes[p].link].wanted += group.running * routes[p].use
    for nth in range(size):
        group = groups[groups[nth].tied]
        limit = 1.0
        for p in range(group.first_route, group.end_route):
            limit = min(limit, _share(links, routes[p]))
        group.limit = limit if limit * _SAME < 1.0 else 1.0
        for p in range(group.first_route, group.end_route):
            if _share(links, routes[p]) > group.limit * _SAME:
                links[routes[p].link].binds = False
    settled = False
    for nth in range(size):
        settled |= _is_settled(groups, links, routes, groups[nth].tied)
    return settled


@njit(cache=True)
def _share(links: Records, route: Any) -> float:
    """Return the rate that an equal share of what the link has left allows on *route*."""
    link = links[route.link]
    return float(link.left / (link.users * route.use))


@njit(cache=True)
def _rise_alike(groups: Records, links: Records, tally: Any, begin: int, size: int) -> None:
    """Limit all groups to the rate at which the first of their links is full."""
    limit = 1.0
    for nth in range(begin, tally.met):
        link = links[links[nth].met]
        if link.wanted > 0:
            limit = min(limit, link.left / link.wanted)
    for nth in range(begin, tally.met):
        link = links[links[nth].met]
        link.binds = link.left <= link.wanted * limit * _SAME
    for nth in range(size):
        groups[groups[nth].tied].limit = limit


@njit(cache=True)
def _is_settled(groups: Records, links: Records, routes: Records, at: int) -> bool:
    """Tell whether nothing can make the group *at* faster than its limit."""
    settled = groups[at].limit == 1.0
    for p in range(groups[at].first_route, groups[at].end_route):
        settled |= links[routes[p].link].binds
    return bool(settled)
