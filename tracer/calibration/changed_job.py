"""Build a user's job as a what-if would make it: only to be stepped without data.

Goes in: the text that names the job, and what-ifs. Comes out: `calibrate.JobChange`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from foretrace.errors import RecordError
from foretrace.tracer.calibration.fake_run import JobChange
from foretrace.tracer.calibration.file import SEGMENTS
from foretrace.tracer.job import Job, accepts, check_accepts, load_job
from foretrace.util.import_target import load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def change_job(target: str, name: str, parameters: Mapping[str, Any]) -> JobChange:
    """Return the what-if *name* for the job that *target* names.

    Raises
    ------
    RecordError
        Nothing can be timed for it here; the text lists the what-ifs for which it can.
    """
    builders: dict[str, Callable[[], Job]] = {
        "amp": partial(_amp, target, str(parameters.get("dtype", "bf16"))),
        "batch_size": partial(load_job, target, batch_size=parameters.get("n")),
        "channels_last": partial(_channels_last, target),
        **dict.fromkeys(SEGMENTS, partial(load_job, target)),
    }
    if name not in builders:
        raise RecordError(f"{name} needs no calibration: it is for {', '.join(builders)}")
    if name == "batch_size":
        check_accepts(target, "batch_size")
    return JobChange(name, parameters, builders[name])


def _amp(target: str, dtype: str) -> Job:
    """Return the job with its steps under autocast; backward passes are not, as is the custom.

    A function that takes ``amp`` is asked for the job in that type: some jobs decide themselves
    what runs under autocast.
    """
    if accepts(load_target(target, "job", RecordError), "amp"):
        return load_job(target, amp=dtype)
    job = load_job(target)
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}

    def step(*batch: Any) -> None:
        device = "cuda" if job.uses_cuda else "cpu"
        with torch.autocast(device, kinds[dtype]), _backward_without_autocast(device):
            job.step(*batch)

    return replace(job, step=step)


@contextmanager
def _backward_without_autocast(device: str) -> Iterator[None]:
    torchs_own = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        with torch.autocast(device, enabled=False):
            torchs_own(*args, **kwargs)

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = torchs_own


def _channels_last(target: str) -> Job:
    """Return the job with its model in that layout; its input, too, if the function says how."""
    knows = accepts(load_target(target, "job", RecordError), "channels_last")
    job = load_job(target, **({"channels_last": True} if knows else {}))
    if job.model is None:
        raise RecordError(f"{target} names no model: give Job(model=...)")
    job.model.to(memory_format=torch.channels_last)
    return job
