"""Record a job: a few real iterations become a `Trace` that knows its unprofiled step time.

`record` runs a `Job`; `recording` does the same inside a loop of the user's own.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.tracer.job import Job, runner
from foretrace.tracer.readers.load import load
from foretrace.tracer.readers.parquet import check_place, save
from foretrace.tracer.recording.job_metadata import describe_recording
from foretrace.tracer.recording.machine_probe import probe
from foretrace.tracer.recording.module_ranges import PREFIX
from foretrace.tracer.recording.process_rank import file_of_rank, process_rank
from foretrace.tracer.recording.recorder import Recorder, drive, schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from foretrace.tracer.trace import Trace


def record(
    job: Job,
    *,
    steps: int = 5,
    warmup: int = 5,
    windows: int = 3,
    out: str | Path | None = None,
) -> Trace:
    """Run *job* for a few dozen steps and return what was recorded.

    Parameters
    ----------
    job
        What to run.
    steps
        Steps in a profiled window.
    warmup
        Steps that run before anything is timed.
    windows
        Profiled windows, with unprofiled blocks around each; the least disturbed one is kept.
    out
        Where to write the trace file, too; nowhere by default. In a job of several ranks the name
        gets the number of the rank: "trace.parquet" becomes "trace.rank0.parquet".

    Raises
    ------
    RecordError
        A step of the job failed, or a number is below 1.
    """
    with recording(job, steps=steps, warmup=warmup, windows=windows, out=out) as session:
        drive(runner(job), session.recorder)
    return session.trace


@dataclass
class Session:
    """What `recording` gives: call `step` after each iteration, read `trace` afterwards."""

    recorder: Recorder
    _trace: Trace | None = None

    def step(self) -> None:
        """Say that one iteration is over."""
        self.recorder.step()

    @property
    def done(self) -> bool:
        """Whether enough was recorded; the loop may go on all the same."""
        return self.recorder.done

    @property
    def trace(self) -> Trace:
        """The recording; only after the ``with`` block."""
        if self._trace is None:
            raise RecordError("the recording is not over: read .trace after the with block")
        return self._trace


@contextmanager
def recording(
    job: Job | None = None,
    *,
    model: Any = None,
    optimizer: Any = None,
    batch_size: int | None = None,
    loader: Any = None,
    steps: int = 5,
    warmup: int = 5,
    windows: int = 3,
    out: str | Path | None = None,
) -> Iterator[Session]:
    """Record the iterations of the loop inside the ``with`` block; arguments as `record` and `Job`.

    >>> with recording(warmup=1, steps=1, windows=1) as session:
    ...     while not session.done:
    ...         _ = sum(range(1000))
    ...         session.step()
    >>> len(session.trace.meta.profiled_step_ns)
    1

    Raises
    ------
    RecordError
        The loop ended before the first profiled window did, or a number is below 1.
    """
    if job is None:
        job = Job(_no_step, model, optimizer, batch_size, loader, name="loop")
    for name, value in (("steps", steps), ("warmup", warmup), ("windows", windows)):
        if value < 1:
            raise RecordError(f"{name} is {value}, expected at least 1")
    rank = process_rank()
    if out is not None:
        out = file_of_rank(out, rank)
        check_place(out)
    blocks = schedule(steps=steps, warmup=warmup, windows=windows)
    probe()
    session = Session(Recorder(job, blocks, same_window=rank is not None))
    with session.recorder:
        yield session
    session._trace = to_trace(session.recorder)  # noqa: SLF001 - the session is this function's
    if out is not None:
        save(session.trace, out)


def _no_step() -> None:
    """Stand for the step of a loop that drives itself."""


def to_trace(recorder: Recorder) -> Trace:
    """Return what *recorder* holds as a trace, with everything known about the job."""
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        path = Path(folder) / "window.json"
        recorder.export(path)
        return read_recorded(path, describe_recording(recorder), source=recorder.job.name)


def read_recorded(path: Path, metadata: dict[str, Any], *, source: str) -> Trace:
    """Read the Kineto file *path* and add the *metadata* that `describe_recording` gave."""
    return add_metadata(load(path), metadata, source=source)


def add_metadata(trace: Trace, metadata: dict[str, Any], *, source: str) -> Trace:
    """Return *trace*, which is of *source*, with the *metadata* that `describe_recording` gave."""
    meta = trace.meta
    replaced = {f.name: metadata[f.name] for f in fields(meta) if f.name in metadata}
    for name in ("unprofiled_step_ns", "profiled_step_ns"):
        replaced[name] = tuple(replaced.get(name, ()))
    for name in ("warnings", "extra"):
        replaced[name] = {**getattr(meta, name), **replaced.get(name, {})}
    return replace(
        trace,
        events=_annotate_modules(trace.events),
        meta=replace(meta, source=source, **replaced),
    )


def _annotate_modules(events: pd.DataFrame) -> pd.DataFrame:
    """Call module ranges annotations: the cheap ranges come out of torch as operators."""
    names = events["name"].cat.categories
    where = events["name"].isin(names[names.str.startswith(PREFIX)]) & (events["kind"] == "op")
    if not where.any():
        return events
    kinds = events["kind"].cat.add_categories(
        [] if "annotation" in events["kind"].cat.categories else ["annotation"]
    )
    return events.assign(kind=kinds.mask(where, "annotation"))
