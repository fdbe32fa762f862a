"""What ``foretrace job runtime`` says: the time of a job, where it goes, and other readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrace.job.answer import exactly
from foretrace.job.report import JobReport, Table
from foretrace.job.runtime.forecast import (
    TESTED_S,
    TESTED_SPREAD,
    TESTED_TIMES,
    WANDER,
    Runtime,
    forecast_runtime,
    plain_product,
    two_lengths,
)
from foretrace.job.runtime.recorded_steps import change_of, total_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foretrace.analysis.prediction import Prediction
    from foretrace.job.answer import Answer
    from foretrace.job.report import Cell
    from foretrace.job.runtime.recorded_steps import StepSamples

    Floats = npt.NDArray[np.float64]

FIRST = "the samples are the first steps of the job"
SAME = "the job goes on as its samples went"
UNSEEN = "what never happened in a sample, such as an evaluation or a checkpoint, is not counted"


@dataclass(frozen=True)
class RuntimeQuestion:
    """Steps of the job, those of its start-up, of the sample, and how exact it should be."""

    steps: float
    skip: int = 1
    sample: int | None = None
    within: float = 0.05


def runtime_report(
    recorded: StepSamples, question: RuntimeQuestion, change: Prediction | None = None
) -> JobReport:
    """Return how long a job takes, and how long after a *change*.

    Raises
    ------
    RefusedError
        As `foretrace.job.runtime.forecast.forecast_runtime` does.
    """
    runtime = forecast_job(recorded, question)
    changed = {} if change is None else _answers_after(runtime, change, question.steps)
    notes = () if change is None else (*_note_more_samples(change), *change.warnings)
    return JobReport(
        title=f"{question.steps:,} steps, from {recorded.samples.source}",
        answers={"job": runtime.total, "step": runtime.step, **changed},
        tables=(_parts(runtime, question.steps), _readings(recorded, question, runtime)),
        assumptions=(
            *([FIRST] if recorded.skip else []),
            SAME,
            UNSEEN,
            f"a steady job wanders by {WANDER:.2%} in 90 % of cases, beyond what a sample shows",
            *(() if change is None else change.assumptions),
        ),
        warnings=(*recorded.warnings, *_note_exactness(runtime, question), *notes),
        doubts=() if change is None else change.doubts,
    )


def forecast_job(recorded: StepSamples, question: RuntimeQuestion) -> Runtime:
    """Return the time of the job; a sample of several steps counts as one long one.

    Raises
    ------
    RefusedError
        As `foretrace.job.runtime.forecast.forecast_runtime` does.
    """
    stride = recorded.samples.stride
    runtime = forecast_runtime(
        recorded.samples.seconds * stride,
        question.steps / stride,
        skip=question.skip,
        sample=question.sample,
        within=question.within,
        lasts_s=recorded.lasts_s,
    )
    return runtime.of_single_steps(stride)


def _answers_after(runtime: Runtime, change: Prediction, steps: float) -> dict[str, Answer]:
    step = runtime.step.times(change_of(change), "s")
    return {"job after": total_of(runtime, step, exactly(steps, "steps")), "step after": step}


def _parts(runtime: Runtime, steps: float) -> Table:
    """Say where the time of the job goes."""
    paced = max(steps - runtime.startup, 0)
    rows: list[list[Cell]] = [
        ["start-up", runtime.startup, runtime.startup_s],
        ["at the pace that follows", paced, runtime.total.value - runtime.startup_s],
        ["of these averaged", runtime.sample, runtime.sample * runtime.step.value],
    ]
    return Table("Parts of the job", ("part", "steps", "seconds"), rows)


def _readings(recorded: StepSamples, question: RuntimeQuestion, runtime: Runtime) -> Table:
    """Put other readings of the samples beside the answer, and all beside what was held out."""
    seconds = recorded.samples.seconds * recorded.samples.stride
    used = seconds if question.sample is None else seconds[: question.skip + question.sample]
    totals = _total_by_reading(
        used, question.skip, question.steps / recorded.samples.stride, runtime
    )
    if len(used) == len(seconds):
        return Table("Readings", ("reading", "job, s"), [*totals.items()])
    count, truth = len(seconds), float(seconds.sum())
    again = forecast_job(recorded, replace(question, steps=count * recorded.samples.stride))
    tried = _total_by_reading(used, question.skip, count, again)
    rows: list[list[Cell]] = [
        [name, totals[name], of, 100 * (of / truth - 1)] for name, of in tried.items()
    ]
    title = f"Readings; all {count:,} samples together took {truth:,.4g} s"
    return Table(title, ("reading", "job, s", "of them, s", "error, %"), rows)


def _total_by_reading(used: Floats, skip: int, steps: float, runtime: Runtime) -> dict[str, float]:
    """Return the time of the job by each reading; the second is the published one."""
    return {
        "start-up and the mean of the rest": runtime.total.value,
        "steps x mean of the sample": plain_product(used[skip:], steps),
        "difference of two lengths": two_lengths(used, steps),
    }


def _note_exactness(runtime: Runtime, question: RuntimeQuestion) -> list[str]:
    """Say how many more samples would do, and where the interval was not tested."""
    notes = []
    if runtime.more is None:
        notes.append(
            f"no number of samples brings the answer within {question.within:.1%}: periods of this "
            "job differ by more"
        )
    elif runtime.more:
        notes.append(f"to be within {question.within:.1%}, take {runtime.more:,} more samples")
    if runtime.drift:
        notes.append(
            f"the pace moved by {runtime.drift:+.1%} towards the end of the samples: the interval "
            "does not know how that goes on"
        )
    if runtime.spread > TESTED_SPREAD:
        notes.append(
            f"the middle half of the steps spreads by {runtime.spread:.0%}, more than in any "
            "series on which the interval was tested: other things than their work set the pace"
        )
    if runtime.sample * runtime.step.value < TESTED_S:
        notes.append(
            f"the sample lasts less than {TESTED_S:g} s, for which the interval was not tested"
        )
    if question.steps > TESTED_TIMES * (runtime.startup + runtime.sample):
        notes.append(
            f"the job is more than {TESTED_TIMES} times as long as its sample, for which the "
            "interval was not tested"
        )
    return notes


def _note_more_samples(change: Prediction) -> list[str]:
    if change.samples == 1:
        return []
    text = f"a step after the change has {change.samples:.4g} times as many samples"
    return [f"{text}: give fewer steps if the job is to see as many as before"]
