"""Trace in, dependency graph out: one way for each shape of recording."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.assemble.assemble import assemble
from foretrace.graph.check import check
from foretrace.graph.infer.rank import infer_rank, infer_ranks
from foretrace.graph.model import Graph, Rules
from foretrace.graph.operation_timeline.operation_graph import build_operation_graph
from foretrace.graph.ranks.merge import merge_ranks
from foretrace.tracer.readers.operation_timeline import SHAPE
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import TASKS

if TYPE_CHECKING:
    from foretrace.tracer.trace import Trace

DAY_NS = 24 * 3600 * 10**9
MOST_NS = 10**16
"""No job's window holds 115 days of work; sums of it must not leave 64 bits, either."""


class Recorded(Enum):
    """What a recording shows of each rank."""

    CALLS_AND_KERNELS = "host calls and operators, and the device work that they launched"
    OPERATIONS = "whole operations: forward, backward, transfers, and nothing below"


def build(trace: Trace, *, rules: Rules | None = None, step_pattern: str | None = None) -> Graph:
    """Build the dependency graph of the whole steps in *trace*.

    Parameters
    ----------
    trace
        A recording of one or several ranks.
    rules
        Which inferences are on; all of them by default.
    step_pattern
        Regular expression of the annotation that begins a step, where guessing goes wrong.

    Raises
    ------
    GraphError
        When the recording holds no work to build from, or *step_pattern* matches too little.
    """
    rules = rules or Rules()
    with within_means(trace.meta.source, GraphError):
        match recorded_shape(trace):
            case Recorded.CALLS_AND_KERNELS:
                graph = _build_from_calls(trace, rules, step_pattern)
            case Recorded.OPERATIONS:
                graph = build_operation_graph(trace, rules)
        return _refuse_endless(check(graph), trace.meta.source)


def _refuse_endless(graph: Graph, source: str) -> Graph:
    """Return *graph* unless its step, or all the work in it, takes longer than any job does.

    Raises
    ------
    GraphError
        A time in the recording is broken: it lies years from the others.
    """
    TASKS.check(len(graph.tasks), source, GraphError)
    for frame, column in ((graph.tasks, "work_ns"), (graph.edges, "lag_ns")):
        total = np.abs(frame[column].to_numpy().astype(np.float64)).sum()
        if not total <= MOST_NS:
            raise GraphError(f"{source}: {column} adds up to more than 115 days: a time is broken")
    if not 0 < graph.measured_step_ns <= MOST_NS:
        days = graph.measured_step_ns / DAY_NS
        raise GraphError(f"{source}: a step takes {days:,.1f} days: a time of it is broken")
    return graph


def recorded_shape(trace: Trace) -> Recorded:
    """Return what *trace* shows of each rank."""
    return Recorded.OPERATIONS if SHAPE in trace.meta.extra else Recorded.CALLS_AND_KERNELS


def _build_from_calls(trace: Trace, rules: Rules, step_pattern: str | None) -> Graph:
    """Infer what every rank did, write it down as tables, and let the ranks meet."""
    ranks = np.unique(trace.events["rank"].to_numpy()).tolist()
    if not ranks:
        raise GraphError(f"{trace.meta.source}: the trace is empty, there is nothing to replay")
    if len(ranks) == 1:
        return assemble(infer_rank(trace, ranks[0], rules, step_pattern), trace.meta, rules)
    inferred = infer_ranks(trace, ranks, rules, step_pattern)
    return merge_ranks([assemble(rank, trace.meta, rules) for rank in inferred])
