"""Jobs in, a folder with truths, recordings and calibrations out; goes on where it was ended.

Each job is visited once: plain processes before, between and after its recording and calibration.
Every result is a file, written whole or not at all; what is there is not measured again.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.truth.plain_plan import BLOCKS, MORE, PROCESSES, seconds_of, timed_seconds
from benchmarks.truth.recorded import script_of
from benchmarks.truth.spec import DrawnJob, sides_of, to_json
from foretrace.tracer.calibration.file import KNOWN
from foretrace.tracer.lab.pairs.campaign import stoppable
from foretrace.tracer.step_stats import others_ns
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
RECORDING, SCRIPT, CALIBRATION = "recording.parquet", "job.py", "recording.calibration.parquet"
CALIBRATION_SECONDS = 4.0
PATIENCE = 6
"""A process that takes as many times what was estimated, and a minute, is ended."""
BUSY = 0.05
"""Cores that others used on average; more than this is said."""
TOUCH = """
import mmap, os
free = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE * 4 // 5
memory = mmap.mmap(-1, max(free, mmap.PAGESIZE))
for page in range(0, len(memory), mmap.PAGESIZE):
    memory[page] = 1
"""
STAGES = ("plain", "record", "calibrate", "busy")
"""What can be made again; "busy" is everything during which others used more than `BUSY`."""


@dataclass(frozen=True)
class Visit:
    """A job, and the folder of its results."""

    job: DrawnJob
    folder: Path

    def stages(self) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
        """Return names of results and what makes each; truths stand around what is predicted."""
        plain = [(f"plain.{number}", self._plain) for number in range(PROCESSES)]
        between = [("record", self._record), ("calibrate", self._calibrate)]
        return [plain[0], between[0], *plain[1:2], between[1], *plain[2:]]

    def missing(self) -> list[str]:
        """Return the results that are not there yet."""
        return [name for name, _ in self.stages() if not self.result(name).exists()]

    def result(self, name: str) -> Path:
        """Return where the result *name* lies."""
        return self.folder / f"{name}.json"

    def run(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make one result, with what else the machine did meanwhile, and keep it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / SCRIPT).write_text(script_of(self.job), "utf-8")
        began, own, others = time.time(), _own_seconds(), watch_others()
        result = {**make(), "began": began, "seconds": time.time() - began, "others": others()}
        result["own_cpu_seconds"] = round(_own_seconds() - own, 3)
        write_atomically(self.result(name), json.dumps(result).encode())
        return result

    def _plain(self) -> dict[str, Any]:
        plan = {
            "job": to_json(self.job),
            "blocks": BLOCKS,
            "cores": all_cores(),
            "seconds": MORE * timed_seconds(self.job),
        }
        done = self._process("benchmarks.truth.plain", (), json.dumps(plan))
        lines = done["out"].splitlines()
        try:
            measured: dict[str, Any] = json.loads(lines[-1])
        except (IndexError, ValueError):
            return {"blocks": [], "errors": {"base": done["why"]}}
        return measured

    def _record(self) -> dict[str, Any]:
        (self.folder / CALIBRATION).unlink(missing_ok=True)
        target = f"{self.folder / SCRIPT}:job"
        arguments = ("record", target, "--out", str(self.folder / RECORDING))
        return _outcome(self._process("foretrace", arguments))

    def _calibrate(self) -> dict[str, Any]:
        recording = self.folder / RECORDING
        sides = sides_of(self.job)
        single = [what for side in sides if len(side.what_ifs) == 1 for what in side.what_ifs]
        timed = [what for what in single if what.partition("(")[0] in KNOWN]
        if not recording.exists():
            return {"code": 1, "why": "no recording"}
        arguments = ("calibrate", str(recording), f"{self.folder / SCRIPT}:job", *timed)
        options = ("--seconds", str(CALIBRATION_SECONDS), "--no-cache")
        return _outcome(self._process("foretrace", (*arguments, *options)))

    def _process(self, module: str, arguments: Sequence[str], given: str = "") -> dict[str, Any]:
        """Run *module* as a process with the job's cores and threads; return how it ended."""
        seconds = 60 + PATIENCE * seconds_of(self.job)
        with on_cores(cores_of(self.job)):
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=plain_environment(self.job.threads),
                start_new_session=True,
            )
        try:
            out, errors = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            out, errors = "", f"took more than {seconds:.0f} s"
        finally:
            _end(process)
        why = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
        return {"code": process.returncode, "out": out, "why": why, "errors": errors}


def measure(
    jobs: Sequence[DrawnJob], folder: Path, *, deadline: float, say: Callable[[str], None]
) -> bool:
    """Measure what is missing of *jobs*; tell whether everything is there now.

    An interrupt ends the process that measures, whose result is not kept.
    """
    visits = [Visit(job, folder / job.name) for job in jobs]
    waiting = [visit for visit in visits if visit.missing()]
    try:
        with stoppable():
            for number, visit in enumerate(waiting, 1):
                for name, make in visit.stages():
                    if visit.result(name).exists():
                        continue
                    if time.time() > deadline:
                        say("out of time: the same command goes on from here")
                        return False
                    result = visit.run(name, make)
                    say(f"{number}/{len(waiting)} {visit.job.name} {name}: {summary_of(result)}")
    except KeyboardInterrupt:
        say("stopped: the same command goes on from here")
        return False
    return True


def touch_memory() -> None:
    """Write once to most of the memory that is free, in a process of its own.

    A virtual machine gives a page of its host's to whoever touches it first, which takes seconds
    for each GiB: no job shall pay for that.
    """
    subprocess.run([sys.executable, "-c", TOUCH], check=False)


def summary_of(result: dict[str, Any]) -> str:
    """Say how long a result took, what else ran, and what went wrong.

    >>> summary_of({"seconds": 9.8, "others": 0.31, "errors": {"amp": "RuntimeError: no"}})
    '10 s, others used 0.31 cores: RuntimeError: no'
    """
    busy = result["others"]
    loud = f", others used {busy:.2f} cores" if busy > BUSY else ""
    why = result.get("why") or "; ".join(result.get("errors", {}).values())
    said = f": {why[:120]}" if why and result.get("code", 1) else ""
    return f"{result['seconds']:.0f} s{loud}{said}"


def forget(jobs: Sequence[DrawnJob], folder: Path, stage: str) -> None:
    """Let the results of *stage* be made again; what was calibrated belongs to its recording."""
    begins = ("record", "calibrate") if stage == "record" else (stage,)
    for job in jobs:
        visit = Visit(job, folder / job.name)
        for name, _ in visit.stages():
            if name.startswith(begins) or (stage == "busy" and _is_disturbed(visit.result(name))):
                visit.result(name).unlink(missing_ok=True)


def _is_disturbed(result: Path) -> bool:
    return result.exists() and json.loads(result.read_text("utf-8"))["others"] > BUSY


def plain_environment(threads: int) -> dict[str, str]:
    """Return what a plain script of a user with *threads* would start with; no network."""
    count = str(threads)
    return {
        **os.environ,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def all_cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def cores_of(job: DrawnJob) -> list[int]:
    """Return the cores of *job*: one for one thread, unless a loader's workers need another."""
    cores = all_cores()
    return cores if job.threads > 1 or job.workers else cores[-1:]


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Let processes that are started meanwhile use *cores* alone."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def watch_others() -> Callable[[], float]:
    """Begin to watch; the result tells how many of the campaign's cores others used since."""
    busy, began = others_ns(), time.perf_counter_ns()

    def others() -> float:
        used, passed = others_ns() - busy, time.perf_counter_ns() - began
        return round(max(used, 0) / max(passed, 1), 4)

    return others


def _own_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _outcome(done: dict[str, Any]) -> dict[str, Any]:
    return {"code": done["code"], "why": done["why"], "said": done["errors"][-2_000:]}


def _end(process: subprocess.Popen[str]) -> None:
    """End *process* and those that it started, such as workers of a loader."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def described(job: DrawnJob) -> dict[str, Any]:
    """Return what the table says of *job*."""
    values = asdict(job)
    sizes = values.pop("sizes")
    for name in ("changes", "blocks", "removed"):
        del values[name]
    return {**values, **{name: sizes[name] for name in ("width", "depth", "length")}}
