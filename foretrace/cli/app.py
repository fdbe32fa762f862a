"""The command line: what the user types goes in, text or one JSON object comes out.

Only typer is imported here; each command imports what it runs, so that ``--help`` is quick.
Exit codes: 0 done, 1 a bad input or an inapplicable what-if, 2 wrong usage.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from foretrace.cli import (
    advise as cli_advise,
)
from foretrace.cli import (
    batch as cli_batch,
)
from foretrace.cli import (
    calibrate as cli_calibrate,
)
from foretrace.cli import (
    import_nccl_tests as cli_network,
)
from foretrace.cli import (
    page as cli_page,
)
from foretrace.cli import (
    record as cli_record,
)
from foretrace.cli.arguments import (
    AsJson,
    CalibrationFile,
    StepPattern,
    TraceFile,
    Transforms,
    WhatIfName,
    calibration_for,
    graph_of,
    show,
)
from foretrace.cli.job import app as cli_job
from foretrace.errors import ForetraceError
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="foretrace",
    help="How fast would this training job run if …?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
)

INTERRUPTED = 130
"""Exit code of a program that the user stopped, by the shell's custom."""


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
            setattr(sys, name, _nowhere())
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
    except ForetraceError as error:
        return _fail(str(error), 1)
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer turned it into an exit
            return _reader_left()
        raise
    except OSError as error:
        return _fail(_os_text(error), 1)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last line of defence
        return _unexpected(error)
    return _fail("interrupted", code) if code == INTERRUPTED else code


def _reader_left() -> int:
    """Write nothing more: whoever read the output, such as ``head``, has seen enough."""
    sys.stdout = _nowhere()
    return 0


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _unexpected(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(f"{error.ctx.get_help()}\n")
        return 0
    if hasattr(error, "format_message"):  # a usage error of click, whichever copy typer uses
        return _fail(f"{error.format_message()} (see foretrace --help)", 2)
    if type(error).__name__ == "Abort" or isinstance(error.__cause__, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    if os.environ.get("FORETRACE_DEBUG"):
        traceback.print_exception(error)
    kind = type(error).__name__
    return _fail(
        f"internal error, {kind}: {first_line(error)}; please report it with the command and the "
        "trace (FORETRACE_DEBUG=1 shows where)",
        1,
    )


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"foretrace: {_one_line(text)}\n")
    return code


def _one_line(text: object) -> str:
    r"""Return *text* in one line, without what a terminal might obey.

    >>> _one_line("no such\nfile: \x1b[31mred.csv")
    'no such file: \ufffd[31mred.csv'
    >>> _one_line("\udce4.csv")
    '\udce4.csv'
    """
    words = " ".join(str(text).split())
    return "".join(char if _is_harmless(char) else "\ufffd" for char in words)


def _is_harmless(char: str) -> bool:
    is_half = "\ud800" <= char <= "\udfff"  # of a name that is no UTF-8: written with backslashes
    return char.isprintable() or is_half


def _os_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


app.command()(cli_record.record)
app.command("record-pairs", **cli_record.PASSED_ON)(cli_record.record_pairs)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="One file per rank.")],
    out: Annotated[Path, typer.Option(help="Where to write the trace.")],
) -> None:
    """Convert recordings, several ranks at once, into one trace file."""
    from foretrace.tracer.readers.load import load, save
    from foretrace.tracer.readers.parquet import check_place
    from foretrace.util.progress import stage

    check_place(out)
    with stage(f"reading {len(files)} file(s)"):
        trace = load(files if len(files) > 1 else files[0])
    save(trace, out)
    sys.stdout.write(
        f"wrote {out}: {len(trace.events):,} events of {len(trace.meta.ranks)} rank(s)\n"
    )


@app.command()
def summary(trace: TraceFile, step: StepPattern = None, json: AsJson = False) -> None:  # noqa: FBT002
    """Say what is in a trace and where the time goes."""
    from foretrace.analysis.summary import summarise
    from foretrace.tracer.readers.load import load

    show(summarise(load(trace), step_pattern=step), json=json, forms="report.summary")


@app.command()
def replay(trace: TraceFile, step: StepPattern = None, json: AsJson = False) -> None:  # noqa: FBT002
    """Replay a trace unchanged and compare with its measured step."""
    from foretrace.analysis.identity import identity

    show(identity(graph_of(trace, step)), json=json)


@app.command()
def whatif(
    trace: TraceFile,
    transforms: Transforms,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Predict the step time after one or more what-ifs."""
    from foretrace.analysis.prediction import predict
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms)
    measured = calibration_for(trace, calibration)
    show(predict(graph_of(trace, step), scenario, measured), json=json)


@app.command()
def validate(
    before: TraceFile,
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The trace of the changed job.")],
    transforms: Transforms,
    measured_ms: Annotated[
        float | None,
        typer.Option(help="Measured step time after, if known better than AFTER shows."),
    ] = None,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Compare a prediction with what was measured, next to two null models."""
    from foretrace.analysis.validation import validate as compare
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms)
    measured_ns = None if measured_ms is None else measured_ms * 1e6
    measured = calibration_for(before, calibration)
    graphs = graph_of(before, step), graph_of(after, step)
    show(compare(*graphs, scenario, measured_ns=measured_ns, calibration=measured), json=json)


@app.command("transforms")
def transforms_(name: WhatIfName = None, json: AsJson = False) -> None:  # noqa: FBT002
    """List the what-ifs, or show the one called NAME in full."""
    from foretrace.analysis.whatif_catalog import find_entry, list_what_ifs

    show(list_what_ifs() if name is None else find_entry(name), json=json)


for command in (
    cli_advise.advise,
    cli_advise.explain,
    cli_advise.sensitivity,
    cli_batch.batch,
    cli_batch.compare,
    cli_calibrate.calibrate,
    cli_network.import_nccl_tests,
    cli_page.export,
    cli_page.report,
    cli_page.serve,
):
    app.command()(command)
app.add_typer(cli_job.app, name="job")
