"""A drawn job as what ``foretrace record`` and ``foretrace calibrate`` take.

The plain processes never import this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.truth.spec import BASE, DrawnJob, Side, from_json, to_json
from benchmarks.truth.training import build
from foretrace import Job


def script_of(job: DrawnJob) -> str:
    """Return a script whose function ``job`` returns *job*."""
    given = f"batch_size={job.batch_size}"
    given += ", channels_last=False" if "channels_last" in job.changes else ""
    passed = "batch_size, channels_last" if "channels_last" in job.changes else "batch_size"
    return (
        f'"""{job.name} of the truth set, for `foretrace record job.py:job`."""\n\n'
        "from benchmarks.truth.recorded import job_of\n\n"
        f"DRAWN = {to_json(job)!r}\n\n\n"
        f"def job({given}):\n"
        '    """Return the job."""\n'
        f"    return job_of(DRAWN, {passed})\n"
    )


def job_of(drawn: str, batch_size: int, channels_last: bool = False) -> Job:  # noqa: FBT001, FBT002 - as users' functions have it
    """Return the base of the job that *drawn* describes, with so many samples a step."""
    job = replace(from_json(drawn), batch_size=batch_size)
    training = build(job, Side(BASE, channels_last=channels_last))
    described: dict[str, Any] = {
        "model": training.model,
        "optimizer": training.optimizers,
        "batch_size": batch_size,
        "name": job.name,
        "device": "cpu",
    }
    if training.loader is None:
        return Job(training.run(), **described)
    return Job(
        lambda batch: training.step(lambda: tuple(batch)), loader=training.loader, **described
    )
