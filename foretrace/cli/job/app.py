"""``foretrace job``: from a step to the whole job. One command per method, each in its own file."""

from __future__ import annotations

import typer

from foretrace.cli.job.batch_schedule import regimes
from foretrace.cli.job.convergence import convergence
from foretrace.cli.job.provisioning import plan
from foretrace.cli.job.resources import resources
from foretrace.cli.job.runtime import runtime
from foretrace.cli.job.scaling import speed
from foretrace.cli.job.whole import whole

app = typer.Typer(
    help="From a step to the whole job: how long, how many steps, on what, at what cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def options() -> None:
    """Take what stands before the command."""


for command in (convergence, plan, regimes, resources, runtime, speed, whole):
    app.command()(command)
