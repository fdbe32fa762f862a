"""Several ranks as one graph: they meet at their collectives.

In: one graph per rank, on one clock. Out: one graph in which the wait for peers is separated from
the transfer: the last rank to arrive shows how long the transfer takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.model import EDGE_COLUMNS, LANE_COLUMNS, TASK_COLUMNS, Graph
from foretrace.graph.ranks.join_doubts import join_doubts
from foretrace.graph.ranks.match_collectives import Transfers, leave_out, match_collectives
from foretrace.graph.ranks.single_step import repeat_window
from foretrace.graph.ranks.step_barrier import join_step_starts
from foretrace.graph.ranks.stuck_transfers import find_stuck_transfers
from foretrace.graph.state import MISSING, Doubt
from foretrace.util.schema import stack, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.state import JobState

    Ints = NDArray[np.int64]


def merge_ranks(graphs: Sequence[Graph]) -> Graph:
    """Join the graphs of several ranks.

    The n-th collective of a group on every member is one transfer, where all have as many in every
    step; else those of a step that are alike and end together are, and a doubt says who lacks.

    A single recorded step shows no period: then the repetition is the window in which all ranks
    were recorded, from the first start to the last end.

    Raises
    ------
    GraphError
        The ranks recorded different numbers of steps, so that no period is common to them; or a
        member of a group never arrives.
    """
    steps = [graph.steps for graph in graphs]
    if min(steps) < max(steps):
        raise GraphError(
            f"ranks: between {min(steps)} and {max(steps)} whole steps were recorded,"
            " record the same steps on every rank"
        )
    joined, first_row = _stack_ranks(graphs)
    matched = match_collectives(
        joined, first_row, [graph.state.process_groups or {} for graph in graphs]
    )
    transfers, notes = matched.transfers, [*joined.notes, *matched.notes]
    if transfers is None:
        notes.append("the ranks meet in no recorded collective: each is replayed on its own")
    else:
        spent = joined.tasks["duration_ns"].to_numpy()[transfers.row].sum()
        share = 1 - transfers.duration_ns[transfers.transfer].sum() / max(spent, 1)
        notes.append(f"{share:.0%} of the ranks' collective time is waiting for the last to arrive")
    joined = replace(joined, notes=tuple(notes)).with_state(
        process_groups=None, doubts=(*join_doubts(graphs), *matched.doubts)
    )
    joined = join_step_starts(joined)
    together = joined if transfers is None else _let_meet(joined, transfers)
    return together if max(steps) > 1 else repeat_window(together, graphs)


def _let_meet(graph: Graph, transfers: Transfers) -> Graph:
    """Insert *transfers*, but for those in which ranks would wait for each other forever."""
    together = _insert_transfers(graph, transfers)
    given_up: list[int] = []
    while (stuck := find_stuck_transfers(together, transfers)).any():
        given_up += transfers.first[stuck].tolist()
        transfers = leave_out(transfers, stuck)
        if not len(transfers.first):
            together = graph
            break
        together = _insert_transfers(graph, transfers)
    return _doubt_meetings(together, given_up) if given_up else together


def _doubt_meetings(graph: Graph, given_up: Sequence[int]) -> Graph:
    row = min(given_up)
    text = (
        f"{len(given_up)} collectives of the ranks do not fit together: in them ranks would wait"
        " for each other forever, so each takes as long as recorded; record the same steps on"
        " every rank, and name every process group"
    )
    name, step = graph.tasks["name"].iloc[row], graph.tasks["step"].iloc[row]
    doubt = Doubt("ranks-deadlock", text, f"step {step}, {name}")
    return graph.with_state(doubts=(*graph.state.doubts, doubt))


def _stack_ranks(graphs: Sequence[Graph]) -> tuple[Graph, Ints]:
    """Put the tables of *graphs* one below the other; also return where each rank's tasks begin."""
    row, lane, operator = (
        np.cumsum([0, *(len(getattr(graph, name)) for graph in graphs)])
        for name in ("tasks", "lanes", "operators")
    )
    tasks = stack([graph.tasks for graph in graphs])
    of_task = np.repeat(np.arange(len(graphs)), np.diff(row))
    for column, offset in (("lane", lane), ("operator", operator), ("wait_lane", lane)):
        tasks[column] = _shift(tasks[column], offset[of_task])
    operators = stack([graph.operators for graph in graphs])
    of_operator = np.repeat(operator[:-1], np.diff(operator))
    operators["parent"] = _shift(operators["parent"], of_operator)
    edges = stack([graph.edges for graph in graphs])
    of_edge = np.repeat(row[:-1], [len(graph.edges) for graph in graphs])
    for column in ("src", "dst"):
        edges[column] = _shift(edges[column], of_edge)
    slowest = max(graphs, key=lambda graph: graph.measured_step_ns)
    depths = [graph.platform.queue_depth for graph in graphs]
    platform = replace(
        slowest.platform,
        queue_depth=None if None in depths else slowest.platform.queue_depth,
        locks=any(graph.platform.locks for graph in graphs),
    )
    joined = replace(
        slowest,
        tasks=tasks,
        edges=edges,
        lanes=stack([graph.lanes for graph in graphs]),
        operators=operators,
        platform=platform,
        notes=tuple(dict.fromkeys(note for graph in graphs for note in graph.notes)),
    )
    return _join_states(joined, graphs), row


def _join_states(joined: Graph, graphs: Sequence[Graph]) -> Graph:
    """Return *joined* with what is known of any of its ranks."""
    states = [graph.state for graph in graphs]
    doubts = dict.fromkeys(doubt for state in states for doubt in state.doubts)
    assumed = dict.fromkeys(name for state in states for name in state.assumed_launches)
    return joined.with_state(
        doubts=tuple(doubts),
        assumed_launches=tuple(assumed),
        period_spread=_join_spreads(states),
        gap_range=next((state.gap_range for state in states if state.gap_range), None),
        updates=(),  # rows of one rank
        untraced_call_ns=max(state.untraced_call_ns for state in states),
    )


def _join_spreads(states: Sequence[JobState]) -> float | None:
    """Return the largest spread of the ranks whose work is missing; None where one has none."""
    lacking = [s for s in states if any(doubt.code == MISSING for doubt in s.doubts)]
    spreads = [state.period_spread for state in lacking if state.period_spread is not None]
    return max(spreads) if spreads and len(spreads) == len(lacking) else None


def _shift(rows: pd.Series, offset: Ints) -> NDArray[np.int32]:
    """Return row numbers moved by *offset*; −1 stays "none"."""
    value = rows.to_numpy()
    return np.where(value >= 0, value + offset, -1).astype(np.int32)


def _insert_transfers(graph: Graph, transfers: Transfers) -> Graph:
    """Insert one task per transfer: it begins when all members have begun to wait.

    A collective occupies its stream from its own arrival to the end of the transfer.
    """
    count = len(transfers.first)
    work = graph.tasks["work_ns"].to_numpy().copy()
    work[transfers.row] = np.minimum(work[transfers.row], transfers.duration_ns[transfers.transfer])
    tasks = table(
        TASK_COLUMNS,
        {
            "name": ["transfer"] * count,
            "kind": ["collective"] * count,
            "lane": len(graph.lanes) + transfers.link,
            "start_ns": transfers.begins_ns,
            "duration_ns": transfers.duration_ns,
            "work_ns": transfers.duration_ns,
            "step": graph.tasks["step"].to_numpy()[transfers.first],
            "phase": ["communication"] * count,
            "bytes": graph.tasks["bytes"].to_numpy()[transfers.first],
            "wait": ["none"] * count,
            "return_ns": np.zeros(count),
            "lock": np.zeros(count),
            "cost": ["recorded"] * count,
        },
        count,
    )
    return replace(
        graph,
        tasks=stack([graph.tasks.assign(work_ns=work), tasks]),
        edges=stack([graph.edges, _make_edges(transfers, len(graph.tasks))]),
        lanes=stack([graph.lanes, _make_links(graph, transfers)]),
    )


def _make_links(graph: Graph, transfers: Transfers) -> pd.DataFrame:
    """Return a lane per link; it counts as the first member's."""
    links, at = np.unique(transfers.link, return_index=True)
    lane = graph.tasks["lane"].to_numpy()[transfers.first[at]]
    return table(
        LANE_COLUMNS,
        {
            "kind": ["link"] * len(links),
            "rank": graph.lanes["rank"].to_numpy()[lane],
            "device": np.full(len(links), -1),
            "id": np.arange(len(links)),
            "role": ["communication"] * len(links),
        },
        len(links),
    )


def _make_edges(transfers: Transfers, first_row: int) -> pd.DataFrame:
    """Tie each transfer to the start and the end of every member's collective, and to the next."""
    transfer = first_row + np.arange(len(transfers.first))
    everyone = transfer[transfers.transfer]
    order = [transfer[transfers.link == each] for each in np.unique(transfers.link)]
    before, after = (np.concatenate([np.roll(one, k) for one in order]) for k in (0, -1))
    last = np.concatenate([np.arange(len(one)) == len(one) - 1 for one in order])
    parts = (
        ("collective", transfers.row, everyone, 0),
        ("return", everyone, transfers.row, 0),
        ("thread", before, after, last),
    )
    count = sum(len(src) for _, src, _, _ in parts)
    return table(
        EDGE_COLUMNS,
        {
            "src": np.concatenate([src for _, src, _, _ in parts]),
            "dst": np.concatenate([dst for _, _, dst, _ in parts]),
            "kind": np.repeat([kind for kind, *_ in parts], [len(src) for _, src, _, _ in parts]),
            "lag_ns": np.zeros(count),
            "shift": np.concatenate([np.broadcast_to(s, len(src)) for _, src, _, s in parts]),
            "rule": ["meeting"] * count,
        },
        count,
    )
