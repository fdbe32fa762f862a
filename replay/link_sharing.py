"""Which tasks share links or slow each other: the network of a graph, lowered to groups.

A group is a transfer lane, or what transfers slow at one place (a rank, or one device of it). All
tasks of a group that run at one time run at one rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.model import TASK_KINDS
from foretrace.replaying.engine.program import Sharing
from foretrace.replaying.exclusive_resources import match_pairs

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.graph.shared_links import Network
    from foretrace.replaying.engine.program import Flags, Floats, Ints, Longs
    from foretrace.replaying.exclusive_resources import Columns

NO_TRANSFER = ("kernel", "memset")
"""Kinds of tasks that, on a communication stream, only prepare a transfer."""
FULL = 1 + 1e-9
"""A link that is wanted up to here is not short: rounding of uses that add up to all of it."""


def find_sharing(graph: Graph, tasks: Columns) -> Sharing | None:
    """Return the groups of *graph*; ``None`` where every task always runs at full speed."""
    network = graph.state.network
    if network is None:
        return None
    moves = is_transfer(graph, network)
    lane, link, use = _find_short_routes(graph, tasks, network, moves)
    carrier, place, place_of_lane, slows = _find_overlaps(graph, tasks, network, moves)
    lanes, places = np.union1d(lane, carrier), np.unique(place)
    if not len(lanes):
        return None
    group_of_lane, group_of_place = (
        _number(lanes, len(graph.lanes)),
        _number(places, len(graph.lanes)),
    )
    group = np.where(moves, group_of_lane[tasks.lane], -1)
    at_place = np.where(slows, place_of_lane[tasks.lane], -1)
    beyond = np.where(group_of_place >= 0, len(lanes) + group_of_place, -1)
    group = np.where(at_place >= 0, beyond[at_place], group)
    groups = len(lanes) + len(places)
    one, other = group_of_lane[carrier], beyond[place]
    first_neighbour, by_group = _group(np.concatenate((one, other)), groups)
    first_route, by_lane = _group(group_of_lane[lane], groups)
    first_user, by_link = _group(link, len(network.links))
    return Sharing(
        group=group.astype(np.int32),
        share=np.repeat([network.transfer_share, network.compute_share], [len(lanes), len(places)]),
        first_neighbour=first_neighbour,
        neighbour=np.concatenate((other, one))[by_group].astype(np.int32),
        first_route=first_route,
        link=link[by_lane].astype(np.int32),
        use=use[by_lane],
        first_user=first_user,
        user=group_of_lane[lane][by_link].astype(np.int32),
    )


def is_transfer(graph: Graph, network: Network) -> Flags:
    """Tell which tasks are transfers over *network*."""
    carries = np.zeros(len(graph.lanes), bool)
    carries[network.transfer_lanes] = True
    lane, kind = graph.tasks["lane"].to_numpy(), graph.tasks["kind"].array
    prepares = np.append(kind.categories.isin(NO_TRANSFER), [False])[kind.codes]
    is_link = (graph.lanes["kind"] == "link").to_numpy(bool)
    transfers: Flags = carries[lane] & (is_link[lane] | ~prepares)
    return transfers


def _find_short_routes(
    graph: Graph, tasks: Columns, network: Network, moves: Flags
) -> tuple[Longs, Longs, Floats]:
    """Return lane, link and use of the routes over links that can be wanted beyond capacity.

    A link has enough for lanes that never move two things at once and together take no more than
    all of it.
    """
    lane, link, use = network.columns("routes")
    busy = np.bincount(tasks.lane[moves], minlength=len(graph.lanes)) > 0
    lane, link, use = (column[busy[lane]] for column in (lane, link, use))
    serial = _is_serial(graph, tasks)
    wanted = np.bincount(link, np.where(serial[lane], use, np.inf), len(network.links))
    short = wanted[link] > FULL
    return lane[short], link[short], use[short]


def _is_serial(graph: Graph, tasks: Columns) -> Flags:
    """Tell which lanes run one task after another: one chain that closes over the seam once."""
    kind = graph.edges["kind"].array
    chained = np.append(kind.categories.isin(("thread", "stream")), [False])[kind.codes]
    lane = tasks.lane[graph.edges["dst"].to_numpy()[chained]]
    lanes = len(graph.lanes)
    links = np.bincount(lane, minlength=lanes)
    seams = np.bincount(lane, graph.edges["shift"].to_numpy()[chained], lanes)
    serial: Flags = (links == np.bincount(tasks.lane, minlength=lanes)) & (seams == 1)
    return serial


def _find_overlaps(
    graph: Graph, tasks: Columns, network: Network, moves: Flags
) -> tuple[Longs, Longs, Longs, Flags]:
    """Return the pairs of a transfer lane and a place that slow each other.

    Also return the place of each lane, numbered from 0, and which tasks are slowed there.
    """
    kinds = [TASK_KINDS.index(kind) for kind in network.slowed]
    on_link = (graph.lanes["kind"] == "link").to_numpy(bool)
    slows = np.isin(tasks.kind, kinds) & ~moves & ~on_link[tasks.lane]
    rank, device = (graph.lanes[name].to_numpy(np.int64) for name in ("rank", "device"))
    places, place_of_lane = np.unique(np.stack([rank, device]), axis=1, return_inverse=True)
    place_of_lane = place_of_lane.ravel()
    if network.compute_share == network.transfer_share == 1:
        none = np.empty(0, np.int64)
        return none, none, place_of_lane, np.zeros(len(slows), bool)
    member, joined = network.columns("members")
    lanes = np.unique(tasks.lane[moves])
    alone = lanes[~np.isin(lanes, member)]
    member, joined = (column[np.isin(member, lanes)] for column in (member, joined))
    carrier = np.concatenate((alone, member))
    carrier_device = np.concatenate((device[alone], np.full(len(member), -1)))
    used = np.unique(place_of_lane[tasks.lane[slows]])
    one, other = match_pairs(np.concatenate((rank[alone], joined)), places[0][used])
    here, there = carrier_device[one], places[1][used][other]
    meet = (here == there) | (here < 0) | (there < 0)
    return carrier[one[meet]], used[other[meet]], place_of_lane, slows


def _number(chosen: Longs, size: int) -> Longs:
    """Return a number from 0 for each of *chosen* rows, of *size* in all; −1 for the others."""
    number = np.full(size, -1, np.int64)
    number[chosen] = np.arange(len(chosen))
    return number


def _group(owner: Any, count: int) -> tuple[Ints, Longs]:
    """Return where the entries of each of *count* owners begin, and the order that groups them."""
    first = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count))))
    return first.astype(np.int32), np.argsort(owner, kind="stable")
