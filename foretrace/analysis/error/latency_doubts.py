"""An experiment in, what its answer owes to the latency of collectives that nothing recorded.

A faster network changes the time of bytes alone. How much of a recorded collective that is, is
known within a range (`foretrace.transforms.distributed.common.recorded_latency`): the answer lies
between those at its ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Experiment

MATTERS = 0.1
"""Share of the step by which the ends of the range must differ before it is doubted."""


def doubt_latency(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say that the answer rests on a latency that is known too badly."""
    ratios = experiment.latency_ratios
    if not ratios or max(ratios) - min(ratios) <= MATTERS * experiment.ratio:
        return ()
    latency = experiment.changed.state.latency_range
    low, high = (ratio * experiment.baseline.measured.step_ns / 1e6 for ratio in sorted(ratios))
    text = (
        f"what a collective takes beside its bytes is not recorded: {latency.least_ns / 1e3:.3g} to"
        f" {latency.most_ns / 1e3:.3g} us, with which a step takes {low:,.3f} to {high:,.3f} ms;"
        " record a small all_reduce as well, with its size"
    )
    return (Doubt("collective-latency", text, "collectives"),)
