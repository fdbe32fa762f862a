"""``foretrace job speed``: the speed on any number of workers and servers, from that on a few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.arguments import AsJson, StepPattern, graph_of, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.graph.model import Graph
    from foretrace.job.report import JobReport
    from foretrace.job.scaled_out import Spread
    from foretrace.job.scaling.surface import Form

MOST_WORKERS = 8
"""Workers in the grid of a trace, where none are given."""
MOST = 10**9
"""Workers, or servers, of one job."""
MOST_DIGITS = 10

Samples = Annotated[
    Path,
    typer.Argument(
        metavar="SAMPLES", help="CSV with workers, servers and speed in steps/s; or a trace."
    ),
]
WhatIfs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TRANSFORM...]", help="Of a trace: what-ifs that come first."),
]
OwnPace = Annotated[
    bool, typer.Option("--async", help="Workers do not wait for each other; speed of all together.")
]
Split = Annotated[
    bool | None,
    typer.Option(
        "--split-batch/--own-batch",
        help="Workers share one batch, or have one each. Default: share; of a trace: one each.",
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(metavar="W[,P]", help="Workers and servers asked for; may be repeated."),
]
Workers = Annotated[int | None, typer.Option(min=1, max=MOST, help="Most workers of the grid.")]
Servers = Annotated[
    int | None,
    typer.Option(min=1, max=MOST, help="Most servers of the grid; of a trace without it: ddp."),
]
Noise = Annotated[
    float | None, typer.Option(metavar="SHARE", help="How much a speed scatters, such as 0.02.")
]
Network = Annotated[
    str | None, typer.Option(metavar="RATE", help="Of a trace: between machines, such as 25Gbps.")
]
OnCluster = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="Of a trace: a preset or a file.")
]

GradientMb = Annotated[
    float | None,
    typer.Option(metavar="MB", help="Of a trace that is silent about it: size of all gradients."),
]


def speed(
    samples: Samples,
    transforms: WhatIfs = None,
    *,
    own_pace: OwnPace = False,
    split_batch: Split = None,
    at: At = None,
    workers: Workers = None,
    servers: Servers = None,
    noise: Noise = None,
    network: Network = None,
    cluster: OnCluster = None,
    gradient_mb: GradientMb = None,
    step: StepPattern = None,
    json: AsJson = False,
) -> None:
    """Show the speed on any number of workers and servers, and where to measure next."""
    from foretrace.errors import RefusedError
    from foretrace.job.runtime.recorded_steps import is_trace
    from foretrace.job.scaling.surface import Form

    where = {"network": network, "cluster": cluster, "gradient_mb": gradient_mb}
    form = Form(not own_pace, servers is not None, split_batch is not False)
    if not is_trace(samples):
        _only_of_traces(transforms=transforms, **where, step=step)
        report = _of_speeds(samples, form, (workers, servers), at, noise)
    else:
        if noise is not None:
            raise RefusedError("noise: of measured speeds only, and SAMPLES is a recording")
        form = replace(form, splits_batch=bool(split_batch))
        given = {name: value for name, value in where.items() if value is not None}
        like = _like(form, given, transforms)
        report = _of_trace(graph_of(samples, step), form, like, (workers, servers), at)
    show(report, json=json)


def _of_speeds(
    path: Path,
    form: Form,
    most: tuple[int | None, int | None],
    at: Sequence[str] | None,
    noise: float | None,
) -> JobReport:
    """Report the surface of the speeds in a file."""
    from foretrace.job.scaling.forecast import fit, grid_up_to
    from foretrace.job.scaling.points import read_points
    from foretrace.job.scaling.report import speed_report

    points = read_points(path)
    form = replace(form, has_servers=points.has_servers)
    measured = int(points.workers.max()), int(points.servers.max())
    grid = grid_up_to(most[0] or measured[0], most[1] or measured[1])
    surface = fit(points, form, None if noise is None else _share(noise))
    return speed_report(surface, points, grid, _places(at, form) or [measured])


def _of_trace(
    graph: Graph,
    form: Form,
    like: Spread,
    most: tuple[int | None, int | None],
    at: Sequence[str] | None,
) -> JobReport:
    """Report the surface of what the replay predicts on a few numbers of workers and servers."""
    from foretrace.job.scaling.forecast import grid_up_to
    from foretrace.job.scaling.report import speed_report
    from foretrace.job.scaling.simulated_points import probe_surface
    from foretrace.util.progress import stage

    largest = most[0] or MOST_WORKERS, most[1] or 1
    places, grid = _places(at, form) or [largest], grid_up_to(*largest)
    with stage("replaying the job on some numbers of workers"):
        probed = probe_surface(graph, form, grid, like)
    return speed_report(probed.surface, probed.points, grid, places, probed)


def _like(form: Form, where: Mapping[str, Any], transforms: Sequence[str] | None) -> Spread:
    """Return how the job is spread, whatever the numbers of workers and servers."""
    from foretrace.errors import RefusedError
    from foretrace.job.scaled_out import Spread

    if not (form.in_step or form.has_servers):
        raise RefusedError("workers at their own pace need servers: give --servers")
    mode = ("bsp" if form.in_step else "asp") if form.has_servers else "ddp"
    return Spread(mode, 1, 1, where, tuple(transforms or ()), form.splits_batch)


def _places(at: Sequence[str] | None, form: Form) -> list[tuple[int, int]]:
    """Return the workers and servers that the user asks for."""
    return [_place(text, form) for text in at or ()]


def _place(text: str, form: Form) -> tuple[int, int]:
    from foretrace.errors import RefusedError

    numbers = text.split(",")
    if len(numbers) != 1 + form.has_servers or not all(_is_count(each) for each in numbers):
        needed = "workers,servers as in 4,2" if form.has_servers else "workers as in 4"
        raise RefusedError(f"--at {text}: give {needed}")
    workers, servers = [*map(int, numbers), 1][:2]
    return workers, servers


def _is_count(text: str) -> bool:
    digits = text.strip()
    return digits.isdecimal() and len(digits) <= MOST_DIGITS and 0 < int(digits) <= MOST


def _share(noise: float) -> float:
    from foretrace.errors import RefusedError

    if not 0 < noise < 1:
        raise RefusedError(f"--noise {noise}: give a share of a speed above 0, such as 0.02")
    return noise


def _only_of_traces(**given: object) -> None:
    """Refuse options that say nothing about measured speeds."""
    from foretrace.errors import RefusedError

    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise RefusedError(f"{', '.join(wrong)}: of a trace only, and SAMPLES are measured speeds")
