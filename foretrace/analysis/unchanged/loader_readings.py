"""A replay after a change in; the steps, in ns, if its loader is read otherwise out.

A recording that is too short for what workers deliver together leaves open what a batch costs, and
one without workers what taking over from them does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.replaying.replay import replay
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.primitives import whole_ns
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.host.dataloader import HANDOVER_CPU_NS, HANDOVER_NS, LOADED, TAKE_OVER
from foretrace.transforms.host.loader_processes import LOAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.replaying.timeline import Timeline

SHORT_HANDOVER_NS, LONG_HANDOVER_NS = 70_000, 1_400_000
"""What taking over a batch took at least and at most in public recordings."""


def read_bursts(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let a batch cost the least and the most that recorded waits leave open.

    Who asks for another number of workers has said how many made a burst: then the fewest did.
    """
    tasks, seen = after.graph.tasks, after.graph.state.loader
    predicted = is_in(tasks["name"], LOAD, LOADED)
    loads = is_in(tasks["kind"], "load") | predicted
    if seen is None or not loads.any():
        return
    least, most = seen.slack
    for share in (max(least, 2 - most) if seen.burst_ns and predicted.any() else least, most):
        yield _replay_work(after, tasks["work_ns"].to_numpy() * np.where(loads, share, 1.0))


def read_handover(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let taking over a batch, where that is assumed, take as little as it did anywhere."""
    tasks = after.graph.tasks
    assumed = is_in(tasks["name"], TAKE_OVER) & is_in(tasks["cost"], "prior")
    usual = HANDOVER_NS if has_device(after.graph) else HANDOVER_CPU_NS
    work = tasks["work_ns"].to_numpy()
    yield _replay_work(
        after, np.where(assumed, np.maximum(work - usual + SHORT_HANDOVER_NS, 0), work)
    )


def read_hidden_handover(_before: Timeline, after: Timeline) -> Iterator[float]:
    """Let taking over a batch take as long as it may where every call took longer than usual.

    Calls that are alike may take all of their time for that: then nobody waits for the loader.
    """
    tasks, edges, seen = after.graph.tasks, after.graph.edges, after.graph.state.loader
    loads = is_in(tasks["kind"], "load")
    if seen is None or seen.handover_seen:
        return
    takes = np.zeros(len(tasks), bool)
    fed = is_in(edges["kind"], "data") & loads[edges["src"].to_numpy()]
    takes[edges["dst"].to_numpy()[fed]] = True
    work, hidden = tasks["work_ns"].to_numpy(), seen.shortest_ns - seen.handover_ns
    longest = min(LONG_HANDOVER_NS - seen.handover_ns, hidden)
    if takes.any() and longest > 0:
        yield _replay_work(after, work + np.where(takes, longest, 0))
    loaded = is_in(tasks["name"], LOADED)
    if seen.alike and (takes.any() or loaded.any()):
        nobody_waits = np.where(loads | loaded, 0, work + np.where(takes, hidden, 0))
        yield _replay_work(after, nobody_waits)


def _replay_work(after: Timeline, work: NDArray[np.float64]) -> float:
    """Return the step with tasks that take *work*."""
    tasks = after.graph.tasks.assign(work_ns=whole_ns(work))
    return replay(replace(after.graph, tasks=tasks), like=after).step_ns
