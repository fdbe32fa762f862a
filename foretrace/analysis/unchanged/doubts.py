"""A replayed recording in, doubts out: what makes every answer from it doubtful, and where.

What is true of every answer is a remark, see `foretrace.analysis.warnings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.unchanged.replay_error import DOUBTFUL, doubt_replay_error
from foretrace.graph.state import Doubt
from foretrace.tracer.data_issues import BY_NAME, disturbances
from foretrace.tracer.step_stats import drift

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

LOST = 0.01
"""Share of a window's tasks that readers may lose before that is a doubt."""
LOSSES = ("unreadable_events", "bad_timestamp", "zero_timestamp", "negative_duration")
"""What readers count where an event is lost, whatever it was."""
WHOLE = ("truncated", "unaligned_ranks")
"""What readers count where much may be wrong at once."""


def doubt_recording(timeline: Timeline, measured: Measured) -> tuple[Doubt, ...]:
    """Say what makes every answer doubtful: the unchanged replay, the steps, lost events."""
    graph = timeline.graph
    return (
        *doubt_replay_error(timeline, measured),
        *dict.fromkeys(graph.state.doubts),
        *doubt_drift(measured),
        *doubt_machine(graph),
        *_doubt_losses(graph),
        *doubt_unsettled(timeline, "of the unchanged job"),
    )


def doubt_drift(measured: Measured) -> tuple[Doubt, ...]:
    """Say that the steps of a recording drift, so that no one length is theirs."""
    share = drift(measured.samples_ns) if measured.source == "unprofiled" else 0.0
    if share <= DOUBTFUL:
        return ()
    text = (
        f"the steps measured without the profiler drift by {share:.1%}: the machine was not quiet; "
        "record again"
    )
    return (Doubt("drift", text),)


def name_doubts(doubts: Iterable[Doubt]) -> list[str]:
    """Return the codes of *doubts*, each once."""
    return list(dict.fromkeys(doubt.code for doubt in doubts))


def doubt_machine(graph: Graph) -> Iterator[Doubt]:
    """Say that others had the machine meanwhile."""
    for name, percent in disturbances(graph.meta.warnings).items():
        if percent > 100 * DOUBTFUL:
            yield Doubt("disturbed", BY_NAME[name].sentence.format(n=percent))


def _doubt_losses(graph: Graph) -> Iterator[Doubt]:
    """Say that the reader of a file lost what it may have needed."""
    few = LOST * len(graph.tasks)
    for name, count in graph.meta.warnings.items():
        if name in WHOLE or (name in LOSSES and count > few):
            yield Doubt("data-lost", BY_NAME[name].sentence.format(n=count), graph.meta.source)


def doubt_unsettled(timeline: Timeline, which: str) -> tuple[Doubt, ...]:
    """Say that a replay found no period."""
    if timeline.settled:
        return ()
    text = (
        f"the replay {which} did not settle on one period; its last repetitions are reported: "
        "record more steps"
    )
    return (Doubt("not-settled", text),)
