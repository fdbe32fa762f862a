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
    plain_product,
    runtime,
    two_lengths,
)
from foretrace.job.runtime.recorded_steps import change_of, total_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foretrace.analysis.prediction import Prediction
    from foretrace.job.answer import Answer
    from foretrace.job.report import Cell
    from foretrace.job.runtime.recorded_steps import Steps

    Floats = npt.NDArray[np.float64]

FIRST = "the samples are the first steps of the job"
SAME = "the job goes on as its samples went"
UNSEEN = "what never happened in a sample, such as an evaluation or a checkpoint, is not counted"


@dataclass(frozen=True)
class Asked:
    """Steps of the job, those of its start-up, of the sample, and how exact it should be."""

    steps: float
    skip: int = 1
    sample: int | None = None
    within: float = 0.05


def runtime_report(known: Steps, asked: Asked, change: Prediction | None = None) -> JobReport:
    """Return how long a job takes, and how long after a *change*.

    Raises
    ------
    RefusedError
        As `foretrace.job.runtime.forecast.runtime` does.
    """
    found = find(known, asked)
    changed = {} if change is None else _changed(found, change, asked.steps)
    notes = () if change is None else (*_more_samples(change), *change.warnings)
    return JobReport(
        title=f"{asked.steps:,} steps, from {known.samples.source}",
        answers={"job": found.total, "step": found.step, **changed},
        tables=(_parts(found, asked.steps), _readings(known, asked, found)),
        assumptions=(
            *([FIRST] if known.skip else []),
            SAME,
            UNSEEN,
            f"a steady job wanders by {WANDER:.2%} in 90 % of cases, beyond what a sample shows",
            *(() if change is None else change.assumptions),
        ),
        warnings=(*known.warnings, *_exactness(found, asked), *notes),
    )


def find(known: Steps, asked: Asked) -> Runtime:
    """Return the time of the job; a sample of several steps counts as one long one.

    Raises
    ------
    RefusedError
        As `foretrace.job.runtime.forecast.runtime` does.
    """
    stride = known.samples.stride
    found = runtime(
        known.samples.seconds * stride,
        asked.steps / stride,
        skip=asked.skip,
        sample=asked.sample,
        within=asked.within,
        lasts_s=known.lasts_s,
    )
    return found.of_single_steps(stride)


def _changed(found: Runtime, change: Prediction, steps: float) -> dict[str, Answer]:
    step = found.step.times(change_of(change), "s")
    return {"job after": total_of(found, step, exactly(steps, "steps")), "step after": step}


def _parts(found: Runtime, steps: float) -> Table:
    """Say where the time of the job goes."""
    paced = max(steps - found.startup, 0)
    rows: list[list[Cell]] = [
        ["start-up", found.startup, found.startup_s],
        ["at the pace that follows", paced, found.total.value - found.startup_s],
        ["of these averaged", found.sample, found.sample * found.step.value],
    ]
    return Table("Parts of the job", ("part", "steps", "seconds"), rows)


def _readings(known: Steps, asked: Asked, found: Runtime) -> Table:
    """Put other readings of the samples beside the answer, and all beside what was held out."""
    seconds = known.samples.seconds * known.samples.stride
    used = seconds if asked.sample is None else seconds[: asked.skip + asked.sample]
    totals = _read(used, asked.skip, asked.steps / known.samples.stride, found)
    if len(used) == len(seconds):
        return Table("Readings", ("reading", "job, s"), [*totals.items()])
    count, truth = len(seconds), float(seconds.sum())
    again = find(known, replace(asked, steps=count * known.samples.stride))
    tried = _read(used, asked.skip, count, again)
    rows: list[list[Cell]] = [
        [name, totals[name], of, 100 * (of / truth - 1)] for name, of in tried.items()
    ]
    title = f"Readings; all {count:,} samples together took {truth:,.4g} s"
    return Table(title, ("reading", "job, s", "of them, s", "error, %"), rows)


def _read(used: Floats, skip: int, steps: float, found: Runtime) -> dict[str, float]:
    """Return the time of the job by each reading; the second is the published one."""
    return {
        "start-up and the mean of the rest": found.total.value,
        "steps x mean of the sample": plain_product(used[skip:], steps),
        "difference of two lengths": two_lengths(used, steps),
    }


def _exactness(found: Runtime, asked: Asked) -> list[str]:
    """Say how many more samples would do, and where the interval was not tested."""
    notes = []
    if found.more is None:
        notes.append(
            f"no number of samples brings the answer within {asked.within:.1%}: periods of this "
            "job differ by more"
        )
    elif found.more:
        notes.append(f"to be within {asked.within:.1%}, take {found.more:,} more samples")
    if found.drift:
        notes.append(
            f"the pace moved by {found.drift:+.1%} towards the end of the samples: the interval "
            "does not know how that goes on"
        )
    if found.spread > TESTED_SPREAD:
        notes.append(
            f"the middle half of the steps spreads by {found.spread:.0%}, more than in any series "
            "on which the interval was tested: other things than their work set the pace"
        )
    if found.sample * found.step.value < TESTED_S:
        notes.append(
            f"the sample lasts less than {TESTED_S:g} s, for which the interval was not tested"
        )
    if asked.steps > TESTED_TIMES * (found.startup + found.sample):
        notes.append(
            f"the job is more than {TESTED_TIMES} times as long as its sample, for which the "
            "interval was not tested"
        )
    return notes


def _more_samples(change: Prediction) -> list[str]:
    if change.samples == 1:
        return []
    text = f"a step after the change has {change.samples:.4g} times as many samples"
    return [f"{text}: give fewer steps if the job is to see as many as before"]
