"""``foretrace job``: from a step to the whole job. One command per method, each in its own file."""

from __future__ import annotations

import typer

from foretrace import (
    cli_job_convergence,
    cli_job_plan,
    cli_job_regimes,
    cli_job_resources,
    cli_job_runtime,
    cli_job_speed,
    cli_job_whole,
)

app = typer.Typer(
    help="From a step to the whole job: how long, how many steps, on what, at what cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def options() -> None:
    """Take what stands before the command."""


for command in (
    cli_job_convergence.convergence,
    cli_job_plan.plan,
    cli_job_regimes.regimes,
    cli_job_resources.resources,
    cli_job_runtime.runtime,
    cli_job_speed.speed,
    cli_job_whole.whole,
):
    app.command()(command)
