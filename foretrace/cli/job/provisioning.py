"""``foretrace job plan``: the cheapest machines on which a job ends before a deadline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.arguments import (
    AsJson,
    CalibrationFile,
    StepPattern,
    TraceFile,
    calibration_for,
    graph_of,
    show,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.job.answer import Answer

MOST = 10**15
"""Steps or samples of one job."""

WhatIfs = Annotated[
    list[str] | None, typer.Argument(metavar="[TRANSFORM...]", help="What-ifs that come first.")
]
Deadline = Annotated[str, typer.Option(metavar="T", help="As in 90min, 2h or 1.5d.")]
PriceList = Annotated[Path, typer.Option(metavar="FILE", help="Machines and their prices, TOML.")]
Steps = Annotated[
    int | None, typer.Option(min=1, max=MOST, help="Steps of the recorded batch in all.")
]
Samples = Annotated[
    int | None, typer.Option(min=1, max=MOST, help="Samples in all, instead of steps.")
]
Losses = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Losses so far, to train until --target.")
]
Target = Annotated[float | None, typer.Option(metavar="LOSS", help="The loss to reach.")]
Modes = Annotated[
    list[str] | None,
    typer.Option("--mode", help="ddp, bsp or asp; may be repeated. Default: ddp and bsp."),
]
Split = Annotated[
    bool, typer.Option("--split-batch", help="Workers share the recorded batch between them.")
]
GradientMb = Annotated[
    float | None, typer.Option(metavar="MB", help="Size of all gradients, if the trace is silent.")
]


def plan(
    trace: TraceFile,
    transforms: WhatIfs = None,
    *,
    deadline: Deadline,
    prices: PriceList,
    steps: Steps = None,
    samples: Samples = None,
    losses: Losses = None,
    target: Target = None,
    mode: Modes = None,
    split_batch: Split = False,
    gradient_mb: GradientMb = None,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,
) -> None:
    """Find the cheapest machines on which a job ends before a deadline."""
    from foretrace.job.prices import read_prices
    from foretrace.job.provisioning.offers import Demand, forecast_offers
    from foretrace.job.provisioning.plan import parse_duration
    from foretrace.job.provisioning.report import plan_report
    from foretrace.transforms.measured.job_identity import attach
    from foretrace.util.progress import stage

    deadline_s, listed, modes = parse_duration(deadline), read_prices(prices), _modes(mode)
    measured, graph = calibration_for(trace, calibration), graph_of(trace, step)
    wanted = Demand(
        _steps(graph, steps, samples, losses, target),
        deadline_s,
        modes,
        before=tuple(transforms or ()),
        given={} if gradient_mb is None else {"gradient_mb": gradient_mb},
        splits_batch=split_batch,
        is_to_loss=losses is not None,
    )
    with stage("replaying every offer"):
        forecasts = forecast_offers(
            graph if measured is None else attach(graph, measured), listed, wanted
        )
    show(plan_report(forecasts, wanted, listed.currency), json=json)


def _modes(given: list[str] | None) -> tuple[str, ...]:
    from foretrace.errors import RefusedError
    from foretrace.job.scaled_out import MODES

    for mode in given or ():
        if mode not in MODES:
            raise RefusedError(f"--mode {mode} is unknown; choose one of {', '.join(MODES)}")
    return tuple(given or ("ddp", "bsp"))


def _steps(
    graph: Graph,
    steps: int | None,
    samples: int | None,
    losses: Path | None,
    target: float | None,
) -> Answer:
    """Return how many steps of the recorded batch are to be trained."""
    from foretrace.errors import RefusedError
    from foretrace.job.answer import exactly

    if sum(given is not None for given in (steps, samples, losses)) != 1:
        raise RefusedError("say how long the job is: give one of --steps, --samples and --losses")
    if (losses is None) != (target is None):
        raise RefusedError("--losses and --target belong together: the losses so far, and the last")
    if losses is not None and target is not None:
        return _steps_to(losses, target)
    if steps is not None:
        return exactly(steps, "steps")
    if graph.meta.batch_size is None:
        raise RefusedError("the recording does not say its batch size; give --steps")
    return exactly((samples or 0) / graph.meta.batch_size, "steps")


def _steps_to(losses: Path, target: float) -> Answer:
    from foretrace.job.convergence.forecast import forecast_steps_to_loss
    from foretrace.job.convergence.loss_log import losses_of_steps

    return forecast_steps_to_loss(losses_of_steps(losses), target).answer
