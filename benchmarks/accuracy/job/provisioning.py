"""What plans are worth on real runs: section of docs/accuracy-job.md.

In: the archive of distributed runs over shaped links. Out: how far off the replay and the closed
form are on every run, and how often either would have rented something that is late.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.accuracy.distributed.shaped_links import at_pace
from benchmarks.accuracy.distributed.shaped_scenarios import scenario_of
from benchmarks.shaped_network.cell_archive import read_cells
from foretrace.analysis.prediction import predict
from foretrace.graph.build import build
from foretrace.job.provisioning.plan import Fleet, Parts, closed_form_step
from foretrace.job.scaled_out import step_of
from foretrace.transforms.distributed.common.gradients import find_gradients, total_bytes
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.shaped_network.cell_archive import Cell
    from foretrace.graph.model import Graph
    from foretrace.job.answer import Answer

ARCHIVE = "network-epyc-1.tar"
HELD_OUT = ("lstm", "mixer")
MOST_MBIT = 1000
"""Faster links are left out: cores, not links, then decide."""
GROWTH = 1.2
"""A made-up price: it grows by this power of the rate, so that slow links in time are cheapest."""
DEADLINES = 200


HEAD = (
    "## Plans",
    "",
    "Real runs of DDP over shaped links (`traces/network-epyc-1.md`) stand for machines to rent.",
    "Each is foretold from a recording of the job alone, as `foretrace job plan` does.",
    "Cynthia's closed form gets the same step, the bytes of the gradients and the rate.",
    "Errors are of a step: median and 90th percentile.",
    "Nothing was tuned to the models held out.",
)
RENTING = (
    f"Then a job must end before {DEADLINES} deadlines, from the fastest run to the slowest.",
    f"The price is made up: it grows with the rate to the power of {GROWTH}, so slow links pay.",
    "A rule rents the cheapest run that is in time as it says; the run shows whether it is.",
    "`paid` compares with the cheapest that really is in time.",
)


class Real(NamedTuple):
    """A run that could have been rented: what a step of it took, and what was foretold, seconds."""

    model: str
    price: float
    real_s: float
    replayed: Answer
    closed_form_s: float


class Picks(NamedTuple):
    """Over many deadlines: how often a rule rents nothing, or what is late; and what it pays more.

    ``paid`` is the mean cost over that of the cheapest in time, where the rule is in time.
    """

    deadlines: int
    none: int
    late: int
    paid: float


def real_runs(archive: Path) -> list[Real]:
    """Return the conclusive runs of DDP over links of one rate up to `MOST_MBIT`."""
    return [_real(cell) for cell in read_cells(archive) if _is_offer(cell)]


def _is_offer(cell: Cell) -> bool:
    is_slow = cell.rate_mbit is not None and cell.rate_mbit <= MOST_MBIT
    return cell.scheme == "ddp" and is_slow and not (cell.problems or any(cell.racks))


def _real(cell: Cell) -> Real:
    assert cell.recording is not None
    assert cell.rate_mbit is not None
    assert cell.lone_ns
    graph = _graph(cell.recording.read)
    prediction = predict(at_pace(graph, cell.lone_ns), parse_scenario(scenario_of(cell)))
    price = cell.ranks * (cell.rate_mbit / MOST_MBIT) ** GROWTH
    fleet = Fleet("machine", cell.ranks, cell.ranks, "ddp", price)
    parts = Parts(cell.lone_ns / 1e9, total_bytes(find_gradients(graph)), cell.rate_mbit * 1e6 / 8)
    form_s = closed_form_step(fleet, parts)
    assert cell.model
    return Real(cell.model, price, cell.step_ns / 1e9, step_of(prediction), form_s)


@cache
def _graph(read: Callable[[], Any]) -> Graph:
    return build(read())


def picks(runs: Sequence[Real], times: Sequence[float]) -> Picks:
    """Rent by *times*, what a rule says of each of *runs*, at deadlines from the fastest on."""
    real, price = np.array([(run.real_s, run.price) for run in runs]).T
    said = np.asarray(times)
    none = late = 0
    paid = []
    deadlines = np.geomspace(real.min(), real.max(), DEADLINES)
    for deadline in deadlines:
        if not (said <= deadline).any():
            none += 1
            continue
        pick = int(np.argmin(np.where(said <= deadline, price * said, np.inf)))
        if real[pick] > deadline:
            late += 1
        else:
            best = np.where(real <= deadline, price * real, np.inf).min()
            paid.append(price[pick] * real[pick] / best)
    return Picks(len(deadlines), none, late, float(np.mean(paid)) if paid else np.nan)


def plan_section(recorded: Path) -> list[str]:
    """Return the section on ``foretrace job plan``."""
    runs = real_runs(recorded.parent / ARCHIVE)
    groups = {
        "tuned on": [run for run in runs if run.model not in HELD_OUT],
        "held out": [run for run in runs if run.model in HELD_OUT],
    }
    return [*HEAD, "", *_errors(groups), "", *RENTING, "", *_rented(groups)]


def _errors(groups: Mapping[str, Sequence[Real]]) -> list[str]:
    """Return how far off a step is, and how often the interval holds it."""
    lines = [
        "| models | runs | replay | 90th perc. | interval holds | closed form | 90th perc. |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, runs in groups.items():
        real = np.array([run.real_s for run in runs])
        held = np.mean([run.replayed.low <= run.real_s <= run.replayed.high for run in runs])
        replay = np.abs(np.array([run.replayed.value for run in runs]) / real - 1)
        form = np.abs(np.array([run.closed_form_s for run in runs]) / real - 1)
        cells = [f"{at(error):.1%}" for error in (replay, form) for at in (np.median, _p90)]
        lines.append(
            f"| {name} | {len(runs)} | {' | '.join([*cells[:2], f'{held:.0%}', *cells[2:]])} |"
        )
    return lines


def _p90(values: Any) -> float:
    return float(np.quantile(values, 0.9))


RULES: dict[str, Callable[[Real], float]] = {
    "replay, whole interval in time": lambda run: run.replayed.high,
    "replay, expected in time": lambda run: run.replayed.value,
    "closed form": lambda run: run.closed_form_s,
}


def _rented(groups: Mapping[str, Sequence[Real]]) -> list[str]:
    """Return what each rule rents for the models of each group."""
    lines = [
        "| models | rule | deadlines | nothing rented | late | paid |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, runs in groups.items():
        models = dict.fromkeys(run.model for run in runs)
        for rule, said in RULES.items():
            own = [[run for run in runs if run.model == model] for model in models]
            every = [picks(each, [said(run) for run in each]) for each in own]
            count, none, late = (sum(column) for column in list(zip(*every, strict=True))[:3])
            paid = np.mean([each.paid for each in every]) - 1
            shares = f"{none / count:.1%} | {late / count:.1%} | {paid:+.1%}"
            lines.append(f"| {name} | {rule} | {count} | {shares} |")
    return lines
