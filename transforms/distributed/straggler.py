"""Stragglers: one rank slower than the others, or none that is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.graph.ranks.single_step import begin_together
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.distributed.common.unfold_ranks import (
    check_ranks,
    ranks_of,
    separate_rank,
)
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches, set_label
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import insert, scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import first_per_step, has_device, on_device, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

COMMUNICATION = ("collective", "p2p")
TOLD = ("name", "kind", "phase", "module", "blocks", "bytes")
"""Columns in which tasks that do the same work agree."""


def straggler(graph: Graph, *, rank: int, slowdown: float = 1.0, delay_ms: float = 0.0) -> Graph:
    """Let one rank compute *slowdown* times as slowly, or pause *delay_ms* in every step.

    Parameters
    ----------
    graph
        A job of several ranks, recorded or predicted.
    rank
        Which one.
    slowdown
        1 keeps the rank's computations; below 1 it is the fast one.
    delay_ms
        Time that the rank's host sleeps at the beginning of each forward pass, in ms.

    Notes
    -----
    Assumes: what the rank computes takes longer, on an accelerator its kernels and on a CPU its
    host tasks; communication keeps its cost and starts when the last rank is there. Of ranks that
    are simulated as one, the slow one is simulated apart.
    Unknown: heat, clocks and memory pressure that slow a rank now and then; what a framework does
    about a slow rank.
    Source: runs with a sleeping rank over gloo (within 1 %); the delay is the user's figure.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "host", 0, 50, "forward"), ("mm", "host", 1, 50, "forward")])
    >>> graph.lanes["rank"] = [0, 1]
    >>> straggler(graph, rank=1, slowdown=2).tasks.work_ns.tolist()
    [50, 100]
    """
    positive("slowdown", slowdown)
    if delay_ms:
        positive("delay_ms", delay_ms)
    named = rank
    apart, rank = separate_rank(graph, rank)
    if slowdown == 1 and not delay_ms:
        return graph
    graph = apart
    mine = (graph.lanes["rank"] == rank).to_numpy()[graph.tasks["lane"].to_numpy()]
    computes = on_device(graph) if has_device(graph) else is_in(graph.tasks["kind"], "host")
    computes &= ~communicates(graph)
    where = require(mine & computes, graph, f"computation of rank {named}")
    changed = scale(graph, where, slowdown, cost="user")
    if delay_ms:
        changed = _delay(changed, mine, round(delay_ms * 1e6))
    how = " and ".join(
        text
        for text, said in (
            (f"computes {slowdown:g} times as slowly", slowdown != 1),
            (f"pauses {delay_ms:g} ms per step", bool(delay_ms)),
        )
        if said
    )
    return add_note(changed, f"straggler: rank {named} {how}")


def _delay(graph: Graph, mine: Mask, delay_ns: int) -> Graph:
    """Put a pause before the first forward task of each step on the rank's host."""
    host = mine & ~on_device(graph)
    forward = host & is_in(graph.tasks["phase"], "forward")
    where = forward if forward.any() else require(host, graph, "host task of that rank")
    graph, _ = insert(
        graph,
        first_per_step(graph, where),
        place="before",
        name="pause (predicted)",
        kind="host",
        work_ns=delay_ns,
        cost="user",
    )
    return graph


def remove_stragglers(
    graph: Graph, *, except_ranks: Sequence[int] = (), except_pattern: str | None = None
) -> Graph:
    """Let every task cost what those alike cost on average over all ranks and steps.

    Parameters
    ----------
    graph
        A job of several recorded ranks.
    except_ranks
        Ranks whose tasks keep what was recorded: how much of the slowdown is theirs?
    except_pattern
        Regular expression; tasks of these names keep what was recorded.

    Notes
    -----
    Assumes: tasks alike in all that the recording tells (name, phase, module, shapes, bytes,
    blocks) do the same work. Computation then takes their mean, communication their median, since
    a transfer can only be delayed. Ranks that began their only recorded step late begin with the
    others.
    Unknown: work that truly differs between ranks, such as sequences of other lengths or another
    number of layers, is levelled as well; the host's untraced time stays.
    Source: StragglerAnalysis (ByteDance, OSDI'25), whose published replays it reproduces.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "host", 0, 50, "forward"), ("mm", "host", 1, 70, "forward")])
    >>> graph.lanes["rank"] = [0, 1]
    >>> remove_stragglers(graph).tasks.work_ns.tolist()
    [60, 60]
    """
    if len(ranks_of(graph)) < 2:  # noqa: PLR2004 - a rank is slow beside another
        raise TransformError(
            "nothing to change: this trace holds one rank; give the files of several ranks"
        )
    kept = np.isin(graph.lanes["rank"].to_numpy(), check_ranks(graph, except_ranks))
    kept = kept[graph.tasks["lane"].to_numpy()]
    if except_pattern is not None:
        named = matches(graph.tasks["name"], except_pattern)
        kept |= require(named, graph, f"task named {except_pattern!r}")
    levelled = _level(graph)
    where = ~kept & (levelled != graph.tasks["work_ns"].to_numpy())
    tasks = graph.tasks.assign(
        work_ns=np.where(where, levelled, graph.tasks["work_ns"].to_numpy()),
        cost=set_label(graph.tasks["cost"], where, "measured"),
    )
    return add_note(
        replace(begin_together(graph, except_ranks), tasks=tasks),
        "remove_stragglers: every task costs what those alike cost on average over ranks and steps",
    )


def _level(graph: Graph) -> Rows:
    """Return the mean work of the tasks alike, for communication the median; in ns."""
    work = graph.tasks["work_ns"].to_numpy().astype(np.float64)
    group = _alike(graph)
    mean = np.bincount(group, weights=work) / np.bincount(group)
    transfers = is_in(graph.tasks["kind"], *COMMUNICATION)
    median = pd.Series(work[transfers]).groupby(group[transfers]).median()
    level = mean[group]
    level[transfers] = median.reindex(group[transfers]).to_numpy()
    return np.rint(level).astype(np.int64)


def _alike(graph: Graph) -> Rows:
    """Return a number per task, the same for those that do the same work as far as is told."""
    told = graph.tasks[[*TOLD]]
    if len(graph.operators):
        shapes = graph.operators["shapes"].cat.codes.to_numpy()
        operator = graph.tasks["operator"].to_numpy()
        told = told.assign(shapes=np.where(operator >= 0, shapes[operator], -1))
    groups = told.groupby(list(told), dropna=False, observed=True, sort=False)
    return groups.ngroup().to_numpy().astype(np.int64)
