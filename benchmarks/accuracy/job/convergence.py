"""What the answers on convergence are worth: real trainings, of which the last half is held out.

In: the logs in ``losses.parquet``. Out: lines of Markdown. A log is cut to its first 240, 700 or
2,000 steps, or averaged over 40 steps at a time, as if it were logged by epoch; then its last half
is hidden, and losses that it reaches there are trials for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from foretrace.errors import RefusedError
from foretrace.job.convergence.forecast import forecast_steps_to_loss
from foretrace.job.convergence.learning_rate import schedule_of
from foretrace.job.convergence.loss_log import LossLog
from foretrace.job.convergence.model_comparison import last_slope, optimus_alone
from foretrace.job.convergence.statistics import trailing_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from foretrace.job.answer import Answer

CUTS = (240, 700, 2000)
EPOCH = 40
DEPTHS = (0.6, 0.75, 0.9, 1.0)
"""Where in a log the targets lie that are asked for."""
BELOW = 0.03
"""A last target lies below all of the log, by this part of what it fell by."""
JUDGING = "5"
SHOWN = ("gru sgd 5", "images adam 5", "clusters sgd-step 5", "deep adam-warm-up 5")
"""SGD, Adam, a learning rate that falls, one that rises first; chosen before they were run."""


@dataclass(frozen=True)
class LossTrial:
    """One question about one log, what was answered, and the truth.

    Steps are infinite where a target is not reached within the log, or by a rule. ``answer`` is
    None where it was refused.
    """

    run: str
    cut: str
    depth: float | None
    end: float
    real: float
    answer: Answer | None
    optimus: float
    slope: float

    @property
    def holds(self) -> bool:
        """Whether the interval holds the real step; one after the log's end counts as later."""
        assert self.answer is not None
        if math.isinf(self.real):
            return self.answer.high > self.end
        return self.answer.low <= self.real <= self.answer.high


def read_runs(path: Path) -> dict[str, LossLog]:
    """Return the logs of the study, by run."""
    table = pq.read_table(path)
    names = np.array(table["run"].to_pylist())
    steps, losses, rates = (table[name].to_numpy().astype(float) for name in ("step", "loss", "lr"))
    return {
        str(name): LossLog(steps[names == name], losses[names == name], rates[names == name])
        for name in dict.fromkeys(names)
    }


def convergence_section(recorded: Path) -> list[str]:
    """Return the section on ``foretrace job convergence``."""
    runs = read_runs(recorded / "losses.parquet")
    trials = [one for name, log in runs.items() for one in questions(name, log)]
    return [
        "## Steps to a loss",
        "",
        f"{len(runs)} trainings of eleven small problems, each cut to four lengths.",
        "The card is `traces/job/losses.md`.",
        "The last half of every log is hidden.",
        "Asked for are losses at 60, 75, 90 and 100 % of its length, and one it does not reach.",
        "A log has a learning rate; where that changed, only what follows counts.",
        "",
        "The constants of the method were chosen on the first four seeds.",
        "The fifth judges them: what it gives was not looked at before they were fixed.",
        "",
        *_summary(trials),
        "",
        "Questions about one log share its luck: they are not independent.",
        '"Off" is the median of |error| where an answer was given: of it, and of two rules.',
        "These are Optimus' own fit and the line through the last third of the log.",
        "A rule that never gets there is infinitely off.",
        "",
        "Few targets that lie deep are answered, and these answers are less sure than they say.",
        "",
        "### Four trainings",
        "",
        "Their first 1,000 of 2,000 steps are known.",
        "",
        *shown(runs),
    ]


def questions(run: str, log: LossLog) -> Iterator[LossTrial]:
    """Yield the questions on all cuts of a log, answered."""
    for cut in CUTS:
        yield from _ask(run, f"{cut} steps", _first(log, cut))
    yield from _ask(run, "epochs", _averaged(log, EPOCH))


def shown(runs: dict[str, LossLog]) -> list[str]:
    """Return the table of the four trainings that are shown in full."""
    head = "| training | target | real step | answer | Optimus' own fit | last slope |"
    rows = [
        f"| {name} | {_target(one)} | {_step(one.real)} | {_said(one)} | {_step(one.optimus)} | "
        f"{_step(one.slope)} |"
        for name in SHOWN
        for one in _ask(name, "2000 steps", runs[name])
    ]
    return [head, "|---|---|--:|--:|--:|--:|", *rows]


def _ask(run: str, cut: str, log: LossLog) -> Iterator[LossTrial]:
    first_half = _first(log, len(log.steps) // 2)
    since = schedule_of(first_half.steps, first_half.rates).since
    window = max(1, round(0.05 * (len(first_half.steps) - since)))
    means = trailing_mean(log.losses, window)
    half = len(first_half.steps) - window + 1
    lowest = means[:half].min()
    below = means.min() - BELOW * (means[max(0, half - window)] - means.min()) - 1e-9
    targets = [(depth, means[int(depth * len(log.steps)) - window]) for depth in DEPTHS]
    for depth, target in [*targets, (None, below)]:
        if target >= lowest:
            continue
        hit = np.flatnonzero(means <= target)
        real = float(log.steps[window - 1 + hit[0]]) if len(hit) else math.inf
        yield LossTrial(
            run,
            cut,
            depth,
            float(log.steps[-1]),
            real,
            _answer(first_half, float(target), window),
            optimus_alone(first_half, float(target)).steps,
            last_slope(first_half.steps, first_half.losses, float(target)),
        )


def _answer(first_half: LossLog, target: float, window: int) -> Answer | None:
    try:
        return forecast_steps_to_loss(
            first_half, target, window=window, next_change=math.inf, draws=200
        ).answer
    except RefusedError:
        return None


def _first(log: LossLog, rows: int) -> LossLog:
    assert log.rates is not None
    return replace(log, steps=log.steps[:rows], losses=log.losses[:rows], rates=log.rates[:rows])


def _averaged(log: LossLog, each: int) -> LossLog:
    assert log.rates is not None
    return LossLog(
        log.steps[each - 1 :: each],
        log.losses.reshape(-1, each).mean(axis=1),
        log.rates[each - 1 :: each],
    )


def _summary(trials: Sequence[LossTrial]) -> list[str]:
    head = "| questions | asked | answered | interval holds | width | off | Optimus | slope |"
    tuned = [one for one in trials if not one.run.endswith(JUDGING)]
    judged = [one for one in trials if one.run.endswith(JUDGING)]
    groups = {
        "chosen on": tuned,
        "**judged on**": judged,
        **{f"judged, target at {d:.0%}": [a for a in judged if a.depth == d] for d in DEPTHS},
        "judged, target not reached": [a for a in judged if a.depth is None],
        **{
            f"judged, {cut}": [a for a in judged if a.cut == cut]
            for cut in dict.fromkeys(a.cut for a in judged)
        },
    }
    return [head, "|---|--:|--:|--:|--:|--:|--:|--:|", *map(_line, groups, groups.values())]


def _line(name: str, trials: Sequence[LossTrial]) -> str:
    answered = [one for one in trials if one.answer is not None]
    if not answered:
        return f"| {name} | {len(trials)} | 0 % | | | | | |"
    held = np.mean([one.holds for one in answered])
    widths = [(a.high - a.low) / a.value for one in answered if (a := one.answer)]
    cells = [f"{len(answered) / len(trials):.0%}", f"{held:.0%}", f"{np.median(widths):.0%}"]
    reaching = [one for one in answered if math.isfinite(one.real)]
    rules = (
        [one.answer.value for one in reaching if one.answer],
        [one.optimus for one in reaching],
        [one.slope for one in reaching],
    )
    cells += [_off(values, [one.real for one in reaching]) for values in rules]
    return f"| {name} | {len(trials)} | {' | '.join(cells)} |"


def _off(values: Sequence[float], real: Sequence[float]) -> str:
    if not real:
        return ""
    off = np.median(np.abs(np.array(values) / np.array(real) - 1))
    return f"{off:.0%}" if np.isfinite(off) else "∞"


def _target(one: LossTrial) -> str:
    return "not reached" if one.depth is None else f"at {one.depth:.0%}"


def _step(step: float) -> str:
    return "never" if math.isinf(step) else f"{step:,.0f}"


def _said(one: LossTrial) -> str:
    if one.answer is None:
        return "refused"
    mark = "" if one.holds else " (wrong)"
    return f"{one.answer.value:,.0f} ({one.answer.low:,.0f} to {one.answer.high:,.0f}){mark}"
