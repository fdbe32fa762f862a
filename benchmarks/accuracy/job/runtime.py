"""How far off the time of a job is when it is foretold from its first steps: lines of Markdown.

In: series of step times, of the Chronus artifact where that is public here, and recorded by
`recording.step_times`. Each series is cut after a start-up step and 50 more, and again after every
further 50 steps; what is foretold is the time of all the rest.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.evidence.evidence import VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.runtime.forecast import forecast_runtime, plain_product

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from foretrace.job.answer import Answer

    Floats = npt.NDArray[np.float64]

CHRONUS = "shared/fixtures/chronus-iterations"
DRIFTING = "a3c"
SAMPLE = 50
FEWEST_AHEAD = 50
HEADS = (
    "series",
    "asked",
    "refused",
    "mean error",
    "largest",
    "in the interval",
    "validated",
    "of these in the interval",
    "plain product, mean error",
)


@dataclass(frozen=True)
class RuntimeTrial:
    """One question: the answer, None where it was refused, the plain product, and the truth."""

    answer: Answer | None
    plain: float
    truth_s: float

    @property
    def error(self) -> float:
        """Relative error of what was answered."""
        assert self.answer is not None
        return self.answer.value / self.truth_s - 1

    @property
    def is_held(self) -> bool:
        """Whether the interval holds the truth."""
        assert self.answer is not None
        return self.answer.low <= self.truth_s <= self.answer.high


def runtime_section(recorded: Path) -> list[str]:
    """Return the section of the page; *recorded* is the folder of own recordings."""
    public = _arrays(recorded.parents[2] / CHRONUS)
    steady = {name: each for name, each in public.items() if DRIFTING not in name}
    drifting = {name: each for name, each in public.items() if DRIFTING in name}
    sets = {
        "Chronus, steady": [ask(each) for each in steady.values()],
        "Chronus, steady, from any step on": [a for e in steady.values() for a in windows(e)],
        "Chronus, A3C": [ask(each) for each in drifting.values()],
        "Chronus, A3C, all steps given": [ask(e, len(e)) for e in drifting.values()],
    }
    for path in sorted(recorded.glob("step-times-*.csv")):
        name = f"own, {path.stem.removeprefix('step-times-')}"
        own = _table(path)
        sets[name] = [ask(each) for each in own.values()]
        sets[f"{name}, from any step on"] = [a for e in own.values() for a in windows(e)]
    rows = [row(name, trials) for name, trials in sets.items() if trials]
    return ["## Job time from samples of steps", "", TEXT, *_markdown(rows), "", NOTES.rstrip()]


TEXT = f"""\
The first step is start-up, the next {SAMPLE} are the sample, and the time of all is foretold.
"From any step on" begins again after every {SAMPLE} steps.
The plain product is the number of steps times the mean of the sample, as it is published.
"""
NOTES = """\
The interval means to hold 90 %.
One figure of the method, how far steady jobs wander, was taken from the first row.
That a sample lasts 2 s at least was set knowing that those of A3C last about 1 s.
Own runs are small trainings on two cores; what else ran there stands in the name.
Where other work shares the cores, it sets the pace, and no sample knows how that goes on: such
answers count as unvalidated, because their steps spread by more than those of any series above.
On this virtual machine the pace of quiet trainings, too, moves by 1 to 2 % within seconds, more
than on the cluster of Chronus: their answers are close, and their intervals too narrow.
"""


def ask(seconds: Floats, sample: int = SAMPLE) -> RuntimeTrial:
    """Foretell all of *seconds* from its first ones; where these are all, twice as many steps."""
    used = seconds[: 1 + sample]
    steps = len(seconds) if len(used) < len(seconds) else 2 * len(seconds)
    plain = plain_product(used[1:], steps)
    try:
        return RuntimeTrial(forecast_runtime(used, steps).total, plain, float(seconds.sum()))
    except RefusedError:
        return RuntimeTrial(None, plain, float(seconds.sum()))


def windows(seconds: Floats) -> Iterator[RuntimeTrial]:
    """Ask again from every fiftieth step on, while enough are left to be foretold."""
    for first in range(0, len(seconds) - SAMPLE - FEWEST_AHEAD, SAMPLE):
        yield ask(seconds[first:])


def row(name: str, trials: list[RuntimeTrial]) -> list[str]:
    """Return the cells of one set of questions.

    >>> row("none", [RuntimeTrial(None, 1.0, 2.0)])[1:4]
    ['1', '1', '–']
    """
    answered = [each for each in trials if each.answer]
    sure = [each for each in answered if each.answer and each.answer.status == VALIDATED]
    errors = [abs(each.error) for each in answered]
    plain = [abs(each.plain / each.truth_s - 1) for each in answered]
    return [
        name,
        str(len(trials)),
        str(len(trials) - len(answered)),
        _percent(np.mean(errors) if errors else None),
        _percent(max(errors, default=None)),
        _held(answered),
        str(len(sure)),
        _held(sure),
        _percent(np.mean(plain) if plain else None),
    ]


def _held(trials: list[RuntimeTrial]) -> str:
    held = sum(each.is_held for each in trials)
    return f"{held} ({held / len(trials):.0%})" if trials else "–"


def _percent(share: float | np.floating | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _markdown(rows: list[list[str]]) -> list[str]:
    lines = [HEADS, ["---"] * len(HEADS), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _arrays(folder: Path) -> Mapping[str, Floats]:
    """Return the series of *folder*, each once: some are published twice."""
    series = {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}
    once = {each.tobytes(): name for name, each in series.items()}
    return {name: series[name] for name in once.values()}


def _table(path: Path) -> Mapping[str, Floats]:
    by_job = defaultdict(list)
    with path.open(newline="") as file:
        for each in csv.DictReader(file):
            by_job[each["job"]].append(float(each["seconds"]))
    return {job: np.array(seconds) for job, seconds in by_job.items()}
