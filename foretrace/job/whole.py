"""The whole job: how many steps, how long each, how long all, at what cost; before and after.

In: a recording, a prediction from it, and a file that says what the job is (`JobDescription`).
Out: answers. What cannot be answered stands among the warnings with its reason, and what rests on
it is left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from foretrace.analysis.evidence.evidence import UNVALIDATED
from foretrace.errors import RefusedError
from foretrace.job.answer import exactly
from foretrace.job.convergence.forecast import forecast_steps_to_loss
from foretrace.job.convergence.loss_log import losses_of_steps
from foretrace.job.prices import check_price
from foretrace.job.report import JobReport, Table
from foretrace.job.runtime.recorded_steps import (
    change_of,
    read_logged_steps,
    read_recorded_steps,
    total_of,
)
from foretrace.job.runtime.report import RuntimeQuestion, forecast_job
from foretrace.util.text_file import is_file
from foretrace.util.toml_file import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foretrace.analysis.prediction import Prediction
    from foretrace.graph.model import Graph
    from foretrace.job.answer import Answer
    from foretrace.job.report import Cell
    from foretrace.job.runtime.forecast import Runtime

T = TypeVar("T")
HOUR = 3600.0
Count = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
UNKNOWN = 1e9
"""Steps of a job of unknown length: many."""
REFUSED = "not answered"
"""What a warning begins with that says why a part of the answer is missing."""
BATCH = "a sample teaches as much in a batch of another size: as many samples reach the loss"


class Rent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machines of one kind: how many after the change, how many before it, and what one costs."""

    name: str
    price_per_hour: float
    count: Count = 1
    before: Annotated[int, msgspec.Meta(ge=0, le=10**15)] = 1

    def __post_init__(self) -> None:
        """Refuse what is no price."""
        check_price(self.name, self.price_per_hour)


class JobDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job is: ``steps``, or the loss at which it ends and the ``losses`` so far.

    Steps are those of the recorded batch. ``next_change`` is the step at which the learning rate
    changes next, ``inf`` for never. ``samples`` are what its steps took, from the first one
    on, ``column`` the column of them; without, those of the recording stand for all. ``rent`` lists
    the machines.
    """

    steps: Count | None = None
    losses: str | None = None
    target: float | None = None
    next_change: float | None = None
    samples: str | None = None
    column: str | None = None
    currency: str = "USD"
    rent: list[Rent] = []

    def __post_init__(self) -> None:
        """Refuse a job whose length is not said, or said twice."""
        if (self.steps is None) == (self.losses is None):
            raise ValueError("say how long the job is: give one of steps and losses")
        if (self.losses is None) != (self.target is None):
            raise ValueError("losses and target belong together: the losses so far, and the last")
        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(f"target = {self.target} is no loss")
        if self.next_change is not None and not self.next_change > 0:
            raise ValueError(f"next_change = {self.next_change} is no step to come")


def read_job_description(path: Path) -> JobDescription:
    """Read what a job is; files that it names lie beside it.

    Raises
    ------
    RefusedError
        It is no TOML, has an unknown key, does not say how long the job is, or has no price.
    """
    description = read_toml(path, JobDescription)
    beside = {
        name: str(path.parent / name_of)
        for name in ("losses", "samples")
        if (name_of := getattr(description, name)) is not None
    }
    for name, place in beside.items():
        if not is_file(place):
            shown = place if place.isprintable() else repr(place)
            raise RefusedError(f"{path}: {name}: there is no file {shown}")
    return msgspec.structs.replace(description, **beside)


def forecast_whole_job(graph: Graph, change: Prediction, job: JobDescription) -> JobReport:
    """Return the answers about the job that *graph* shows, before and after the *change*.

    Answers are named ``step``, ``steps``, ``job`` and ``cost``, and the same with `` after``.
    """
    warnings: list[str] = []
    steps = _unless_refused(lambda: _steps(job, warnings), warnings)
    count = UNKNOWN if steps is None else steps.value
    runtime = _unless_refused(lambda: _forecast_runtime(graph, job, count, warnings), warnings)
    answers = runtime and _unless_refused(lambda: _sides(runtime, steps, change, job), warnings)
    return JobReport(
        _title(change, job),
        answers or {},
        tables=(_list_rent(job),) if job.rent else (),
        assumptions=((BATCH,) if change.samples != 1 else ()) + change.assumptions,
        warnings=(*warnings, *change.warnings),
        doubts=change.doubts,
    )


def _title(change: Prediction, job: JobDescription) -> str:
    length = f"{job.steps:,} steps" if job.steps else f"training to a loss of {job.target:g}"
    return f"The whole job: {length}" + (
        f", {' + '.join(change.scenario)}" if change.scenario else ""
    )


def _steps(job: JobDescription, warnings: list[str]) -> Answer:
    """Return the steps of the recorded batch, given or forecast from the losses so far."""
    if job.losses is None or job.target is None:
        return exactly(job.steps or 0, "steps")
    convergence = forecast_steps_to_loss(
        losses_of_steps(Path(job.losses)),
        job.target,
        next_change=job.next_change,
    )
    warnings += convergence.warnings
    return convergence.answer


def _unless_refused(answer: Callable[[], T], warnings: list[str]) -> T | None:
    """Return an answer; why there is none goes to *warnings*."""
    try:
        return answer()
    except RefusedError as error:
        warnings.append(f"{REFUSED}: {error}")
        return None


def _forecast_runtime(
    graph: Graph, job: JobDescription, steps: float, warnings: list[str]
) -> Runtime:
    """Return the time of the unchanged job; what its samples lack goes to *warnings*."""
    if job.samples is None:
        samples = read_recorded_steps(graph)
    else:
        samples = read_logged_steps(Path(job.samples), job.column)
    warnings += samples.warnings
    return forecast_job(samples, RuntimeQuestion(steps, samples.skip))


def _sides(
    runtime: Runtime, steps: Answer | None, change: Prediction, job: JobDescription
) -> dict[str, Answer]:
    """Return the answers before the change, and those after it if there is one."""
    before = {"step": runtime.step}
    after = {"step": runtime.step.times(change_of(change), "s")}
    if steps is not None:
        before |= {"steps": steps, "job": _total(runtime, runtime.step, steps)}
        fewer = _count_steps(steps, change.samples)
        after |= {"steps": fewer, "job": total_of(runtime, after["step"], fewer)}
    if steps is not None and job.rent:
        before["cost"] = _cost(before["job"], job, [each.before for each in job.rent])
        after["cost"] = _cost(after["job"], job, [each.count for each in job.rent])
    return before | ({f"{name} after": a for name, a in after.items()} if change.scenario else {})


def _total(runtime: Runtime, step: Answer, steps: Answer) -> Answer:
    """Return the time of the unchanged job, part of which was measured."""
    return runtime.total if steps.low == steps.high else total_of(runtime, step, steps)


def _count_steps(steps: Answer, samples: float) -> Answer:
    """Return in how many steps of *samples* times as many samples as many are seen."""
    fewer = steps.scale(1 / samples, "steps")
    return fewer if samples == 1 else replace(fewer, status=UNVALIDATED)


def _cost(time: Answer, job: JobDescription, counts: Sequence[int]) -> Answer:
    prices = (each.price_per_hour for each in job.rent)
    per_hour = sum(count * price for count, price in zip(counts, prices, strict=True))
    return time.scale(per_hour / HOUR, job.currency)


def _list_rent(job: JobDescription) -> Table:
    columns = ("machine", "before", "after", f"{job.currency} per hour")
    rows: list[list[Cell]] = [
        [each.name, each.before, each.count, each.price_per_hour] for each in job.rent
    ]
    return Table("Machines", columns, rows)
