"""Calibrate the change of a pair in the process that measured it, while the machine is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from foretrace.tracer.job import Job


def calibrate_pair(
    job: Job,
    builders: tuple[Callable[[], Job], Callable[[], Job]],
    scenario: str,
    *,
    seconds: float,
    out: Path,
) -> list[str]:
    """Time the operators of *job* before and after the change, and write them to *out*.

    *builders* make the job as it is and as the change makes it; both are called without data. A
    failure costs the calibration and never the pair; nothing is written for a change that needs
    no calibration.

    Returns
    -------
    list[str]
        What could not be timed, in words.
    """
    try:
        from foretrace.tracer.calibration.calibrate import calibrate
        from foretrace.tracer.calibration.fake_run import JobChange
        from foretrace.tracer.calibration.file import KNOWN, write

        change = JobChange.of(scenario, builders[1])
        if change.name not in KNOWN:
            return []
        result = calibrate(job, builders[0], [change], seconds=seconds)
        write(result.rows, result.where, out)
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]
    return result.left_out
