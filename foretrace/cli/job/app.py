"""``foretrace job``: from a step to the whole job. One command per method, each in its own file."""

from __future__ import annotations

import typer

from foretrace.cli.job import (
    batch_schedule as cli_job_regimes,
)
from foretrace.cli.job import (
    convergence as cli_job_convergence,
)
from foretrace.cli.job import (
    provisioning as cli_job_plan,
)
from foretrace.cli.job import (
    resources as cli_job_resources,
)
from foretrace.cli.job import (
    runtime as cli_job_runtime,
)
from foretrace.cli.job import (
    scaling as cli_job_speed,
)
from foretrace.cli.job import (
    whole as cli_job_whole,
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
