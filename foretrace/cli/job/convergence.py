"""``foretrace job convergence``: a log of losses and a target in, the step that reaches it out."""

from __future__ import annotations

import math
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.arguments import AsJson, show

if TYPE_CHECKING:
    from foretrace.job.convergence.forecast import Convergence
    from foretrace.job.convergence.loss_log import LossLog
    from foretrace.job.report import JobReport, Table

NEVER = "never"


def convergence(
    losses: Annotated[
        Path,
        typer.Argument(
            metavar="LOSSES", help="CSV, NPY, JSON with log_history, or what a training printed."
        ),
    ],
    target: Annotated[float, typer.Option(help="The loss to reach.")],
    level: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="Share of cases the interval holds.")
    ] = 0.9,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Logged losses in a mean; default: a twentieth of them."),
    ] = None,
    next_change: Annotated[
        str | None,
        typer.Option(
            metavar="STEP", help="When the learning rate changes next; 'never' if it does not."
        ),
    ] = None,
    json: AsJson = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """At which step the loss reaches a target, or why that cannot be said."""
    from foretrace.job.convergence.forecast import forecast_steps_to_loss
    from foretrace.job.convergence.loss_log import read_losses

    log = read_losses(losses)
    outcome = forecast_steps_to_loss(
        log, target, level=level, window=window, next_change=_change(next_change)
    )
    show(report(losses.name, log, target, outcome, next_change=next_change), json=json)


def report(
    name: str, log: LossLog, target: float, outcome: Convergence, *, next_change: str | None = None
) -> JobReport:
    """Return what was found as a report; *name* is that of the log."""
    from foretrace.job.report import JobReport

    logged = f"{len(log.steps):,} losses until step {log.steps[-1]:,.0f}"
    meaning = (
        "first step" if outcome.window == 1 else f"first step whose last {outcome.window} losses"
    )
    verb = "has a loss" if outcome.window == 1 else "have a mean"
    warnings = list(outcome.warnings)
    if log.passed_over:
        warnings.append(f"{log.passed_over} lines without a training loss were passed over")
    if log.counts != "steps":
        warnings.append(f"the log names no steps: its {log.counts} are counted instead")
    if outcome.reached:
        warnings.append("the log itself reaches the target: nothing had to be foretold")
    return JobReport(
        f"{name}: {logged}; {meaning} {verb} of at most {target:g}",
        {"steps to target": outcome.answer.scale(1, log.counts)},
        tables=() if outcome.reached else (_forms(outcome),),
        assumptions=() if outcome.reached else tuple(_assumptions(log, outcome, next_change)),
        warnings=tuple(warnings),
    )


def _forms(outcome: Convergence) -> Table:
    from foretrace.job.report import Table

    rows = [
        (
            row.form,
            row.tail_error,
            row.asymptote,
            None if math.isinf(row.steps) else row.steps,
            "yes" if row.counts else "",
        )
        for row in outcome.forms
    ]
    columns = ("form", "error on tails", "levels off at", "reaches it at step", "counts")
    return Table("Forms of the loss", columns, rows)


def _assumptions(log: LossLog, outcome: Convergence, next_change: str | None) -> list[str]:
    since = f"losses from step {outcome.since:,.0f} on count: the learning rate stands since then"
    stays = "the learning rate stays as it is, data and batch size too"
    unknown = f"{stays}; the log has no learning rates"
    rates = unknown if log.rates is None else stays
    until = "" if next_change in {None, NEVER} else f" until step {next_change}"
    return [*([since] if outcome.since > log.steps[0] else []), rates + until]


def _change(given: str | None) -> float | None:
    if given is None or given == NEVER:
        return None if given is None else math.inf
    try:
        step = float(given)
    except ValueError:
        step = math.nan
    if not step > 0:
        raise typer.BadParameter(f"--next-change is {given!r}, expected a step or 'never'")
    return step
