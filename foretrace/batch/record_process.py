"""``python -m foretrace.batch.record_process NAME DEVICE OUT PARENT``: records one job.

A process of its own, so that allocator and threads are fixed before torch is imported, and so that
a crash costs one recording. It ends with the process PARENT. Goes wrong in one line on stderr and
exit code 1.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from foretrace.errors import ForetraceError
from foretrace.tracer.child_process import end_with
from foretrace.tracer.job import load_job
from foretrace.tracer.lab.pairs.worker import settle
from foretrace.tracer.lab.zoo.named import LIBRARIES, find_model
from foretrace.tracer.lab.zoo.variants import Variant, build
from foretrace.tracer.recording.record import record

if TYPE_CHECKING:
    from foretrace.tracer.job import Job


def job_of(name: str, device: str) -> Job:
    """Return the job that *name* means: of the zoo, of a library, or a user's ``where:function``.

    Raises
    ------
    RecordError
        There is no such job.
    """
    if ":" in name and name.partition(":")[0] not in LIBRARIES:
        return load_job(name)
    is_cpu = device == "cpu"
    variant = Variant(optimizer="loop" if is_cpu else "foreach")
    return build(find_model(name), variant, device=device, small=is_cpu)


def main(arguments: list[str]) -> int:
    """Record the job; return the exit code."""
    name, device, out = arguments
    warnings.filterwarnings("ignore")
    try:
        record(job_of(name, device), out=out)
    except ForetraceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":  # pragma: no cover - runs in a process of its own
    end_with(int(sys.argv.pop()))  # no part of the command that the recording names
    if sys.argv[2] == "cpu":
        settle()
    sys.exit(main(sys.argv[1:]))
