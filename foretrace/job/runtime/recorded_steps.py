"""The steps of a job as they were recorded or logged, and what what-ifs make of their time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.answer import Answer
from foretrace.job.runtime.forecast import LEAST_S
from foretrace.job.runtime.samples import Samples, read_samples

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.analysis.prediction import Prediction
    from foretrace.graph.model import Graph
    from foretrace.job.runtime.forecast import Runtime

TRACES = (b"PAR1", b"\x1f\x8b", b"SQLite format 3\x00")
IN_TRACES = (b'"traceEvents"', b'"ph"', b'"seq_id"')
HEAD = 1 << 16
"""Bytes by whose content a trace is told from a log."""


@dataclass(frozen=True)
class StepSamples:
    """Samples of steps; the first ``skip`` are start-up, a recording has left it out.

    ``lasts_s`` is the time over which they were taken, where other work lay in between.
    """

    samples: Samples
    skip: int = 1
    lasts_s: float | None = None
    warnings: tuple[str, ...] = ()


def is_trace(path: Path) -> bool:
    """Tell whether *path* is a recording, and no table or log; by its content."""
    try:
        if not path.is_file():  # what is read of a pipe is gone
            return False
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return head.startswith(TRACES) or any(mark in head for mark in IN_TRACES)


def read_recorded_steps(graph: Graph) -> StepSamples:
    """Return the steps of a recording: those without the profiler, where it has them."""
    free = graph.meta.unprofiled_step_ns
    seconds = np.array(free or graph.step_samples_ns, np.float64) / 1e9
    notes = ["the start of the job was not recorded: its start-up is not counted"]
    if (lasts_s := float(seconds.sum())) < LEAST_S:
        notes.append(f"the recorded steps last {lasts_s:.2g} s: the interval knows nothing slower")
    if not free:
        notes.append("the steps were measured under the profiler, which slows the host down")
    source = f"steps recorded {'without' if free else 'under'} the profiler"
    return StepSamples(Samples(seconds, source=source), 0, math.inf, tuple(notes))


def read_logged_steps(path: Path, column: str | None = None) -> StepSamples:
    """Return the steps of a table, an array or a log, from the first of the job on.

    Raises
    ------
    RefusedError
        As `foretrace.job.runtime.samples.read_samples` does.
    """
    samples = read_samples(path, column)
    return StepSamples(samples, warnings=samples.notes)


def change_of(prediction: Prediction) -> Answer:
    """Return how many times as long a step takes after a change.

    The interval leaves out what the recorded steps vary by: the samples say that themselves.
    """
    value = prediction.predicted_ns / prediction.measured.step_ns
    off = [abs(end / prediction.predicted_ns - 1) for end in prediction.interval_ns]
    varied = [abs(end - 1) for end in prediction.step_interval]
    below, above = (math.sqrt(max(o**2 - v**2, 0)) for o, v in zip(off, varied, strict=True))
    ends = (value * (1 - min(below, 1.0)), value * (1 + above))
    return Answer(value, *ends, "", status=prediction.status)


def total_of(runtime: Runtime, step: Answer, steps: Answer) -> Answer:
    """Return the time of *steps* steps: as long a start-up as was found, then *step* each.

    Raises
    ------
    RefusedError
        The job may be over before its start-up is.
    """
    if steps.low <= runtime.startup:
        raise RefusedError(
            f"a job of {steps.low:,.0f} steps is over within its start-up of {runtime.startup}"
        )
    paced = step.times(_shift(steps, -runtime.startup), "s")
    return _shift(paced, runtime.startup_s)


def _shift(answer: Answer, by: float) -> Answer:
    return replace(answer, value=answer.value + by, low=answer.low + by, high=answer.high + by)
