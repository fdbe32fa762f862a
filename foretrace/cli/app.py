"""The command line: what the user types goes in, text or one JSON object comes out.

Only typer is imported here; each command imports what it runs, so that ``--help`` is quick.
Exit codes: 0 done, 1 a bad input or an inapplicable what-if, 2 wrong usage.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.advise import advise, explain, sensitivity
from foretrace.cli.batch import batch, compare
from foretrace.cli.calibrate import calibrate
from foretrace.cli.diff import diff
from foretrace.cli.failure import INTERRUPTED, exit_code, interrupt, open_nowhere
from foretrace.cli.import_nccl_tests import import_nccl_tests
from foretrace.cli.job.app import app as job
from foretrace.cli.memory import memory
from foretrace.cli.page import export, report, serve
from foretrace.cli.predict import list_transforms, validate, whatif
from foretrace.cli.record import PASSED_ON, record, record_pairs
from foretrace.cli.trace import import_traces, replay, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

app = typer.Typer(
    name="foretrace",
    help="How fast would this training job run if …?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
)


def _version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        from foretrace import __version__

        sys.stdout.write(f"foretrace {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: FBT002 - its callback does the work
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take what stands before the command."""


def main() -> int:
    """Entry point of the ``foretrace`` script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open_nowhere())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow terminal is no error
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; never raises, never prints a traceback."""
    try:
        words = list(arguments) or ["--help"]
        code = int(app(words, prog_name="foretrace", standalone_mode=False) or 0)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  # the last defence
        return exit_code(error)
    return interrupt() if code == INTERRUPTED else code


COMMANDS: dict[str, Callable[..., object]] = {
    "record": record,
    "record-pairs": record_pairs,
    "import": import_traces,
    "summary": summary,
    "memory": memory,
    "replay": replay,
    "whatif": whatif,
    "validate": validate,
    "transforms": list_transforms,
    "advise": advise,
    "explain": explain,
    "sensitivity": sensitivity,
    "diff": diff,
    "batch": batch,
    "compare": compare,
    "calibrate": calibrate,
    "import-nccl-tests": import_nccl_tests,
    "export": export,
    "report": report,
    "serve": serve,
}
"""In the order of ``foretrace --help``."""
for name, command in COMMANDS.items():
    app.command(name, **(PASSED_ON if command is record_pairs else {}))(command)
app.add_typer(job, name="job")
