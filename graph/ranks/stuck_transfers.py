"""Which transfers of several ranks wait for each other in a circle: such ranks could never run.

In: all ranks with their transfers. Out: the transfers to give up, those first whose members were
not even in them at the same time. What a lane, a launch, an event or a synchronisation waits for
counts; what only the replay knows (a full queue, a lock) does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from foretrace.graph.ranks.align import CLOSE_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph
    from foretrace.graph.ranks.match_collectives import Transfers

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_FROM_START, _TO_END = ("launch", "collective"), ("return",)
"""Kinds of edges that lead from a start, or to an end; all others lead from an end to a start."""


def find_stuck_transfers(graph: Graph, transfers: Transfers) -> Flags:
    """Tell which *transfers*, the last tasks of *graph*, must go for the ranks to run."""
    count = len(graph.tasks)
    src, dst = _list_moments(graph)
    circular = _find_circular(2 * count, src, dst)
    stuck = circular[0::2] | circular[1::2]
    in_circle: Flags = stuck[count - len(transfers.first) :]
    apart = in_circle & _are_apart(graph, transfers)
    return apart if apart.any() else in_circle


def _list_moments(graph: Graph) -> tuple[Ints, Ints]:
    """Return what must come before what within a window: a task starts at 2 i, ends at 2 i + 1."""
    edges = graph.edges[(graph.edges["shift"] == 0).to_numpy()]
    src, dst = (edges[end].to_numpy(np.int64) for end in ("src", "dst"))
    from_start = edges["kind"].isin(_FROM_START).to_numpy()
    to_end = edges["kind"].isin(_TO_END).to_numpy()
    tasks = np.arange(len(graph.tasks))
    waited, waiting = _list_waits(graph)
    befores = (2 * src + ~from_start, 2 * tasks, 2 * waited + 1)
    afters = (2 * dst + to_end, 2 * tasks + 1, 2 * waiting + 1)
    return np.concatenate(befores), np.concatenate(afters)


def _list_waits(graph: Graph) -> tuple[Ints, Ints]:
    """Return what each synchronisation waits for: the last task launched before it per stream."""
    tasks, edges = graph.tasks, graph.edges
    lane = tasks["lane"].to_numpy(np.int64)
    start = tasks["start_ns"].to_numpy()
    rank = graph.lanes["rank"].to_numpy(np.int64)
    launch = (edges["kind"] == "launch").to_numpy()
    call, task = (edges[end].to_numpy(np.int64)[launch] for end in ("src", "dst"))
    calls = np.flatnonzero(tasks["wait"].isin(("device", "stream")).to_numpy())
    one = (tasks["wait"] == "stream").to_numpy()[calls]
    target = tasks["wait_lane"].to_numpy(np.int64)[calls]
    befores, afters = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for stream in np.unique(lane[task]).tolist():
        here = np.flatnonzero(lane[task] == stream)
        here = here[np.argsort(start[call[here]], kind="stable")]
        waits = calls[np.where(one, target == stream, rank[lane[calls]] == rank[stream])]
        last = np.searchsorted(start[call[here]], start[waits], side="right") - 1
        befores.append(task[here[last[last >= 0]]])
        afters.append(waits[last >= 0])
    return np.concatenate(befores), np.concatenate(afters)


def _are_apart(graph: Graph, transfers: Transfers) -> Flags:
    """Tell of which transfers one member had left before another arrived."""
    start, length = (graph.tasks[column].to_numpy() for column in ("start_ns", "duration_ns"))
    leaves = np.full(len(transfers.first), np.iinfo(np.int64).max)
    np.minimum.at(leaves, transfers.transfer, (start + length)[transfers.row])
    apart: Flags = transfers.begins_ns > leaves + CLOSE_NS
    return apart


def _find_circular(count: int, src: Ints, dst: Ints) -> Flags:
    """Tell which of *count* moments are on a circle, or between two."""
    forward = _peel(count, *_group(count, src, dst), np.bincount(dst, minlength=count))
    backward = _peel(count, *_group(count, dst, src), np.bincount(src, minlength=count))
    circular: Flags = ~forward & ~backward
    return circular


def _group(count: int, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(src, kind="stable")
    return np.searchsorted(src[order], np.arange(count + 1)), dst[order]


@njit(cache=True)
def _peel(count: int, first: Ints, after: Ints, waits: Ints) -> Flags:
    """Tell which moments can happen once all that come before them have."""
    done = np.zeros(count, np.bool_)
    ready = np.empty(count, np.int64)
    end = 0
    for moment in range(count):
        if waits[moment] == 0:
            ready[end] = moment
            end += 1
    at = 0
    while at < end:
        moment = ready[at]
        at += 1
        done[moment] = True
        for place in range(first[moment], first[moment + 1]):
            waits[after[place]] -= 1
            if waits[after[place]] == 0:
                ready[end] = after[place]
                end += 1
    return done
