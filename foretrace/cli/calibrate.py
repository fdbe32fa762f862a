"""``foretrace calibrate``: what the user types goes in, a calibration file comes out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.errors import RecordError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.tracer.calibration.fake_run import JobChange
    from foretrace.tracer.calibration.file import CalibrationRow, Where


EACH_SECONDS = 0.2
"""For one kind of collective at one size."""


def calibrate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRACE TARGET TRANSFORM...",
            help="The recording, the job (file.py:function) and the what-ifs to time it for.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for each what-if.")] = 12.0,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; beside the trace by default.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Table of operator times; in the user's cache by default.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Time everything anew.")] = False,  # noqa: FBT002
    merge: Annotated[  # noqa: FBT002
        bool, typer.Option("--merge", help="Merge the given FILE... of calibrations into --out.")
    ] = False,
    collectives: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--collectives", help="Time collectives between processes instead, into --out."
        ),
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(min=2, max=64, help="How many take part in collectives; default: 2."),
    ] = None,
    mbit: Annotated[
        int | None,
        typer.Option(min=1, help="Let each send at this rate, in Mbit/s (Linux, root)."),
    ] = None,
) -> None:
    """Time operators as they are and as what-ifs make them, on this machine."""
    given = arguments or []
    if collectives:
        from foretrace.cli.calibrate_collectives import calibrate_collectives

        sys.stdout.write(calibrate_collectives(out, ranks=ranks, mbit=mbit, seconds=EACH_SECONDS))
        return
    if merge:
        sys.stdout.write(merge_files([Path(text) for text in given], out))
        return
    if len(given) < 3:  # noqa: PLR2004 - trace, target and one what-if
        raise typer.BadParameter("give TRACE TARGET TRANSFORM..., or --merge FILE... --out FILE")
    path = calibrate_job(
        Path(given[0]),
        given[1],
        given[2:],
        seconds=seconds,
        out=out,
        cache=None if no_cache else cache or _default_cache(),
    )
    sys.stdout.write(f"wrote {path}: whatif and validate find it beside the trace\n")
    from foretrace.transforms.measured.calibration import read_calibration
    from foretrace.transforms.measured.job_identity import UNQUIET

    unrest = read_calibration(path).unrest
    if unrest > UNQUIET:
        sys.stderr.write(
            f"foretrace: the operators vary by {unrest:.0%} from run to run: time them again on a "
            "quiet machine, or delete the file\n"
        )


def calibrate_job(
    trace: Path,
    target: str,
    what_ifs: Sequence[str],
    *,
    seconds: float,
    out: Path | None,
    cache: Path | None,
) -> Path:
    """Calibrate the job *target*, recorded as *trace*, for *what_ifs*; return the file written.

    Changes that the file has from an earlier call stay in it, if the job is the same.

    Raises
    ------
    ForetraceError
        Trace, job or what-if are wrong, or nothing could be timed.
    """
    from foretrace.tracer.calibration import cache as timing_cache
    from foretrace.tracer.calibration import file as calibration_file
    from foretrace.tracer.calibration.calibrate import calibrate as run
    from foretrace.tracer.calibration.calibrate import use_threads_of, where
    from foretrace.tracer.job import load_job
    from foretrace.tracer.readers.load import load
    from foretrace.transforms.measured.calibration import calibration_path
    from foretrace.util.atomic_write import check_writable
    from foretrace.util.progress import stage

    wanted = changes_to_time(target, what_ifs)
    recorded = load(trace)
    use_threads_of(recorded)
    job = load_job(target)
    if bool(recorded.meta.devices) != job.uses_cuda:
        kinds = "a GPU", "a CPU"
        ran, runs = kinds if recorded.meta.devices else reversed(kinds)
        raise RecordError(f"{trace} was recorded on {ran}, {target} runs on {runs}: not one job")
    here = where(job)
    path = out or calibration_path(trace)
    check_writable(path)
    with stage(f"timing {job.name}"):
        found = run(
            job,
            lambda: load_job(target),
            wanted,
            seconds=seconds,
            earlier=timing_cache.load(cache, here) if cache else None,
            keep=lambda timings: timing_cache.add(cache, here, timings) if cache else None,
        )
    _say_untimed(found.left_out)
    rows = keep_readable(found.rows, found.where)
    if not any(row.change for row in rows):
        raise RecordError(f"nothing of {', '.join(c.text for c in wanted)} could be timed")
    if path.exists():
        old, there = calibration_file.read(path)
        both = calibration_file.combine_rows(old, rows) if there == found.where else []
        if not both:
            text = "was of another job or machine: what it said of other what-ifs is gone"
            sys.stderr.write(f"foretrace: {path} {text}\n")
        rows = both or rows
    calibration_file.write(rows, found.where, path)
    return path


def changes_to_time(target: str, what_ifs: Sequence[str]) -> list[JobChange]:
    """Return those of *what_ifs* that can be timed for the job *target*; say of the others why not.

    Raises
    ------
    RecordError
        None can.
    """
    from foretrace.tracer.calibration.changed_job import change_job
    from foretrace.transforms.scenario import parse_scenario

    wanted, refused = [], []
    for what_if in parse_scenario(what_ifs):
        try:
            wanted.append(change_job(target, what_if.name, what_if.parameters))
        except RecordError as error:
            refused.append(error)
    if not wanted:
        raise refused[0]
    _say_untimed(map(str, refused))
    return wanted


def keep_readable(rows: Sequence[CalibrationRow], where: Where) -> list[CalibrationRow]:
    """Return *rows* without changes that a reader of the file would refuse; say which and why."""
    from foretrace.tracer.calibration.file import pack
    from foretrace.transforms.measured.calibration import read_calibration

    own = [row for row in rows if not row.change]
    kept = [*own]
    for change in dict.fromkeys(row.change for row in rows if row.change):
        new = [row for row in rows if row.change == change]
        try:
            read_calibration(pack([*own, *new], where))
        except TraceError as error:
            _say_untimed([f"{change}: {str(error).removeprefix('the calibration: ')}"])
        else:
            kept += new
    return kept


def _say_untimed(reasons: Iterable[str]) -> None:
    for reason in dict.fromkeys(reasons):
        sys.stderr.write(f"foretrace: not timed: {reason}\n")


def merge_files(files: Sequence[Path], out: Path | None) -> str:
    """Merge calibrations of one job, or tables of operator times, into *out*; say what it has.

    Raises
    ------
    RecordError
        There is nothing to merge, no place to write to, or the files do not go together.
    """
    from foretrace.tracer.calibration import cache as timing_cache
    from foretrace.tracer.calibration import file as calibration_file

    if not files or out is None:
        raise RecordError("--merge needs files and --out FILE")
    if timing_cache.is_table(files[0]):
        return f"wrote {out}: {timing_cache.merge(files, out)} operator time(s)\n"
    return f"wrote {out}: {calibration_file.merge(files, out)} what-if(s)\n"


def _default_cache() -> Path:
    from foretrace.tracer.calibration.cache import default_path

    return default_path()
