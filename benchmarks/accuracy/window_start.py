"""A recording opened later or closed earlier must answer alike: the same what-ifs on parts of it.

In: a recording of several steps. Out: a row per part: what it answers, what the whole recording
answers, and what the whole one answers of the very steps that the part keeps: steps differ, and so
do their answers; what was inferred from a part may not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import foretrace
from benchmarks.accuracy.rows import PartRow
from foretrace.graph.assemble.assemble import assemble
from foretrace.graph.infer.rank import infer_rank
from foretrace.graph.infer.steps.window import choose_window
from foretrace.graph.model import Rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.accuracy.rows import Answers
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.model import Graph
    from foretrace.tracer.trace import Trace

WHAT_IFS = (
    "faster_kernels(speedup=3)",
    "faster_host(speedup=2)",
    "faster_kernels(pattern='gemm|conv', speedup=2)",
)
DROPPED = ((1, 0), (2, 0), (4, 0), (0, 1), (0, 2), (1, 1))
"""Steps left out at the beginning and at the end."""
LEAST_STEPS = 2


def compare_parts(name: str, trace: Trace) -> Iterator[PartRow]:
    """Ask the what-ifs of *trace*, a recording of one rank, and of its parts."""
    whole = infer_rank(trace, trace.meta.ranks[0], Rules(), None)
    steps = whole.steps
    if steps is None or steps.single:
        return
    answers = ask(assemble(whole, trace.meta, Rules()))
    for first, last in DROPPED:
        if steps.count - first - last < LEAST_STEPS:
            continue
        end = steps.count - last
        part = cut(trace, int(steps.starts_ns[first]), int(steps.starts_ns[end]))
        try:
            own = infer_rank(part, part.meta.ranks[0], Rules(), None)
            graph = assemble(own, part.meta, Rules())
            yield PartRow(
                name,
                (first, last),
                answers,
                ask(_keep_steps(whole, trace, [first + at for at in own.window.kept])),
                ask(graph),
                tuple(dict.fromkeys(doubt.code for doubt in graph.state.doubts)),
            )
        except foretrace.ForetraceError as error:
            yield PartRow(name, (first, last), answers, problem=str(error))


def ask(graph: Graph) -> Answers:
    """Return the steps that *graph* answers with; NaN where a what-if is refused."""
    answers = []
    for what_if in WHAT_IFS:
        try:
            answers.append(foretrace.predict(graph, what_if).predicted_ns)
        except foretrace.ForetraceError:
            answers.append(np.nan)
    return tuple(answers)


def cut(trace: Trace, begin_ns: int, end_ns: int) -> Trace:
    """Return what would have been recorded from *begin_ns* to *end_ns*.

    A range that had begun before is not seen; device work that a call in the window launched is,
    and what had been launched before is where it runs in the window.
    """
    events = trace.events
    start, thread = events["start_ns"].to_numpy(), events["thread"].to_numpy()
    correlation = events["correlation"].to_numpy()
    on_host = thread != -1
    later = correlation[on_host & (start > end_ns) & (correlation >= 0)]
    on_device = (start >= begin_ns) & ~np.isin(correlation, later)
    kept = np.where(on_host, (start >= begin_ns) & (start <= end_ns), on_device)
    return replace(trace, events=events[kept].reset_index(drop=True))


def _keep_steps(whole: InferredRank, trace: Trace, span: Sequence[int]) -> Graph:
    """Return the graph of a *span* of steps, with all that was inferred from *whole*."""
    first, last = span
    window = choose_window(whole.steps, whole.host, whole.devices, (first, last), 0)
    return assemble(replace(whole, window=window), trace.meta, Rules())
