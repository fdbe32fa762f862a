"""An experiment in, doubts out: what in the answer to this scenario may be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.error.latency_doubts import doubt_latency
from foretrace.analysis.error.loader_doubts import doubt_loader
from foretrace.analysis.error.rank_doubts import doubt_waits
from foretrace.analysis.unchanged.doubts import doubt_unsettled
from foretrace.analysis.unchanged.other_readings import GAP_UNKNOWN
from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Experiment

MOVES = 0.05
"""Share of an answer that another reading of the recording must move before it is a doubt."""
MANY_TIMES = 10.0
"""A gain or loss larger than this is named with what a step then consists of: it may be a slip."""
SHOWN = 3


def doubt_change(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say what makes the answer to a scenario doubtful, the recording's doubts first.

    What the recording leaves open is a doubt only where it may move this very answer.
    """
    baseline, after = experiment.baseline, experiment.after
    is_unchanged = after is baseline.timeline
    doubts = (
        *baseline.doubts,
        *experiment.changed.state.doubts,
        *(() if is_unchanged else doubt_unsettled(after, "after the change")),
        *_doubt_gaps(experiment),
        *_doubt_many_times(experiment),
        *doubt_loader(experiment),
        *doubt_latency(experiment),
        *doubt_waits(experiment),
    )
    idle = {code for code in experiment.other_steps_ns if _moves_little(experiment, code)}
    return tuple(doubt for doubt in dict.fromkeys(doubts) if doubt.code not in idle)


def _moves_little(experiment: Experiment, code: str) -> bool:
    step_ns = experiment.after.step_ns
    return all(
        abs(other_ns - step_ns) <= MOVES * step_ns for other_ns in experiment.other_steps_ns[code]
    )


def _doubt_gaps(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say that the gap between kernels is assumed."""
    if GAP_UNKNOWN not in experiment.other_steps_ns:
        return ()
    gap_ns = experiment.changed.platform.gap_ns.get(("kernel", "kernel"), 0)
    text = (
        "every kernel was launched after the one before it had ended, so that the gap between "
        f"kernels that wait for each other is not recorded: {gap_ns / 1e3:.1f} us are assumed; "
        "record steps in which the device is behind the host"
    )
    return (Doubt(GAP_UNKNOWN, text),)


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
