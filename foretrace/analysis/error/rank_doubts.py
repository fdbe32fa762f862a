"""An experiment in, what its answer owes to ranks that were not recorded.

A change of collectives changes the transfer, not the wait for other ranks before it; of one rank
of several the two are one (`foretrace.transforms.distributed.common.hidden_waits`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Experiment

MATTERS = 0.1
"""Share of the step by which waiting must change the answer before it is doubted."""


def doubt_waits(experiment: Experiment) -> tuple[Doubt, ...]:
    """Say that the collectives of the only recorded rank may hold more waiting than transfer."""
    ratio = experiment.waiting_ratio
    if abs(ratio - experiment.ratio) <= MATTERS * experiment.ratio:
        return ()
    step_ms = ratio * experiment.baseline.measured.step_ns / 1e6
    ranks = experiment.baseline.graph.meta.world_size
    text = (
        f"only one of {ranks} ranks was recorded: how long its collectives wait for the others is"
        f" not; if all that they may wait stays, a step takes {step_ms:,.3f} ms; record every rank"
    )
    return (Doubt("rank-waits-hidden", text, "collectives"),)
