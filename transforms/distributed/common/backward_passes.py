"""The backward passes of a step: when each gradient becomes final, and which passes exchange them.

In: a graph. Out: one moment per parameter and pass. Passes with an update between them end in an
exchange each. Of several over the same parameters before one update only the last does: that is
gradient accumulation under ``no_sync``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.cpu_matmul import nearest
from foretrace.transforms.costs.operators import ACCUMULATE
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches
from foretrace.transforms.edit.select import on_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.graph.model import Graph

WITHOUT_NO_SYNC = Assumed(
    "backward passes that only add to gradients and yet exchange them, share",
    *(0.0, 0.0, 1.0),
    "a recording of one worker does not say whether passes before one update will run under "
    "no_sync (0) or not (1); ddp(no_sync=...) does",
    more_is_longer=True,
)


class Moments(NamedTuple):
    """When gradients become final: step, host task, and the operator that accumulates each.

    ``turn`` is the backward pass of the step, counted from 0.
    """

    step: Rows
    host: Rows
    operator: Rows
    turn: Rows

    @property
    def passes(self) -> Rows:
        """The number of each one's pass among those of all steps."""
        each = np.column_stack((self.step, self.turn))
        return np.unique(each, axis=0, return_inverse=True)[1].reshape(-1)


def find_moments(graph: Graph, *, no_sync: bool | None = None) -> Moments:
    """Find the tasks that make gradients final, in every pass that exchanges them.

    *no_sync* says whether passes that only add to gradients exchange nothing; where nobody says,
    they do not, which is noted as an assumption.
    """
    moments = _find_all(graph)
    adding = _only_add(graph, moments)
    if not adding.any():
        return moments
    if no_sync is None:
        no_sync = not WITHOUT_NO_SYNC.now()
    return Moments(*(column[~adding] for column in moments)) if no_sync else moments


def count_adding(graph: Graph) -> int:
    """Return how many backward passes of a step only add to the gradients of a later one."""
    moments = _find_all(graph)
    adding = _only_add(graph, moments)
    return len({(step, turn) for step, turn in zip(moments.step[adding].tolist(),
                                                   moments.turn[adding].tolist(), strict=True)
                if step == moments.step[0]})  # fmt: skip


def _find_all(graph: Graph) -> Moments:
    """Return the last task of each operator that accumulates a gradient, in order of time."""
    operators, tasks = graph.operators, graph.tasks
    once = is_in(operators["name"], ACCUMULATE) if len(operators) else np.zeros(0, bool)
    if not once.any():
        return Moments(*(np.empty(0, np.int64) for _ in Moments._fields))
    number = np.where(once, np.arange(len(once), dtype=np.float64), np.nan)
    around = np.append(nearest(operators["parent"].to_numpy().astype(np.int64), number), np.nan)
    own = around[tasks["operator"].to_numpy()]
    start, step = (tasks[c].to_numpy().astype(np.int64) for c in ("start_ns", "step"))
    rows = np.flatnonzero(np.isfinite(own) & ~on_device(graph) & (step >= 0))
    rows = rows[np.lexsort((rows, start[rows], step[rows]))]
    operator = own[rows].astype(np.int64)
    _, from_end = np.unique(operator[::-1], return_index=True)
    last = np.sort(len(rows) - 1 - from_end)
    hosts = rows[last]
    return Moments(step[hosts], hosts, operator[last], _number_passes(graph, hosts))


def _number_passes(graph: Graph, hosts: Rows) -> Rows:
    """Return the pass of each of *hosts* in its step: forward work lies between two of them."""
    start, step = (graph.tasks[c].to_numpy() for c in ("start_ns", "step"))
    forward = is_in(graph.tasks["phase"], "forward") & ~on_device(graph)
    turns = np.zeros(len(hosts), np.int64)
    for one in np.unique(step[hosts]).tolist():
        here = step[hosts] == one
        begun = np.sort(start[forward & (step == one)])
        _, turns[here] = np.unique(np.searchsorted(begun, start[hosts[here]]), return_inverse=True)
    return turns


def _only_add(graph: Graph, moments: Moments) -> Mask:
    """Tell which moments are of passes that a later one repeats before any update."""
    adding = np.zeros(len(moments.step), bool)
    shapes = graph.operators["shapes"].astype(object).fillna("").to_numpy()
    for passes in _between_updates(graph, moments):
        keys = {tuple(shapes[moments.operator[rows]]) for rows in passes}
        if len(passes) > 1 and len(keys) == 1:
            adding[np.concatenate(passes[:-1])] = True
    return adding


def _between_updates(graph: Graph, moments: Moments) -> Iterator[list[Rows]]:
    """Yield the passes that come before the same update, each as places among *moments*."""
    start, step = (graph.tasks[c].to_numpy() for c in ("start_ns", "step"))
    update = is_in(graph.tasks["phase"], "optimizer") & ~on_device(graph)
    update &= ~matches(graph.tasks["name"], "zero")  # zero_grad() ends nothing
    for one in np.unique(moments.step).tolist():
        here = np.flatnonzero(moments.step == one)
        updates = np.sort(start[update & (step == one)])
        passes = [here[moments.turn[here] == turn] for turn in np.unique(moments.turn[here])]
        done = [int(np.searchsorted(updates, start[moments.host[rows[0]]])) for rows in passes]
        for count in sorted(set(done)):
            yield [rows for rows, own in zip(passes, done, strict=True) if own == count]
