"""An experiment in, doubts out: what in the answer to this scenario may be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.doubts import doubt_unsettled
from foretrace.analysis.latency_doubts import doubt_latency
from foretrace.analysis.loader_doubts import doubt_loader
from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from foretrace.analysis.baseline import Experiment

MANY_TIMES = 10.0
"""A gain or loss larger than this is named with what a step then consists of: it may be a slip."""
SHOWN = 3


def doubt_change(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say what makes the answer to a scenario doubtful, the recording's doubts first."""
    baseline, after = experiment.baseline, experiment.after
    is_unchanged = after is baseline.timeline
    doubts = (
        *baseline.doubts,
        *experiment.changed.state.doubts,
        *(() if is_unchanged else doubt_unsettled(after, "after the change")),
        *_doubt_many_times(experiment),
        *doubt_loader(experiment),
        *doubt_latency(experiment),
    )
    return tuple(dict.fromkeys(doubts))


def _doubt_many_times(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say what a step consists of where a change makes it many times as fast, or as slow.

    More workers may well be as many times as fast.
    """
    graph, changed = experiment.baseline.graph, experiment.changed
    gain = experiment.samples / experiment.ratio
    workers = max(1.0, (changed.meta.world_size or 1) / (graph.meta.world_size or 1))
    if 1 / MANY_TIMES <= gain <= MANY_TIMES * workers:
        return ()
    parts = [*experiment.critical_path.items()][:SHOWN]
    named = ", ".join(f"{cause} {ns / experiment.after.step_ns:.0%}" for cause, ns in parts)
    text = (
        f"{gain:,.3g} times as fast: check that the change says what you mean; a step then "
        f"takes {experiment.ratio:,.3g} times as long ({named})"
    )
    return (Doubt("many-times", text),)
