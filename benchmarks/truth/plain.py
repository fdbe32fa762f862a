"""The truth: a process that trains a job and its changed forms in turns, and times every step.

Nothing of Foretrace is imported. Standard input has a `Plan` as JSON; the last line of standard
output is what was measured. Imports are made once; each side is then a process of its own, which
builds, warms up, and waits while another one runs. Everybody has the allocator and the threads
that a plain script has.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.truth.plain_plan import WARMUP, is_settled, steps_a_turn, steps_before, turns
from benchmarks.truth.spec import BASE, DrawnJob, Side, from_json, sides_of
from benchmarks.truth.training import build, preload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

STOP = -1
LEAST_BF16 = 0.7
"""Speed of bf16 products, in that of fp32, below which nobody would train in mixed precision."""
SETTLE_PER_WORKER = 4  # steps: twice the batches that a worker of a loader prefetches


@dataclass(frozen=True)
class Plan:
    """What a process measures: rounds over all sides; the cores that more threads get.

    There are at least *blocks* of them, and more for as many *seconds* as ratios are not settled.
    """

    job: str
    blocks: int
    cores: list[int]
    seconds: float = 0.0


def main() -> None:
    """Measure what standard input asks for."""
    warnings.filterwarnings("ignore")
    plan = Plan(**json.loads(sys.stdin.read()))
    job = from_json(plan.job)
    preload(job)
    sides = sides_of(job)
    left_out = refuse_crowded(job, len(plan.cores)) | refuse_slow(sides, bf16_speed)
    runners = {
        side.name: start(job, side, plan.cores) for side in sides if side.name not in left_out
    }
    measured = conduct(runners, plan.blocks, plan.seconds)
    measured["errors"].update(left_out)
    for runner in runners.values():
        runner.stop()
    sys.stdout.write("\n" + json.dumps(measured) + "\n")
    sys.stdout.flush()


def refuse_crowded(job: DrawnJob, cores: int) -> dict[str, str]:
    """Return which sides of *job* have more threads, or processes that work at once, than *cores*.

    >>> from benchmarks.truth.spec import Sizes
    >>> job = DrawnJob("a", "loop", "a", False, 1, 8, Sizes(1, 1, 1), changes=("cpu_cores",))
    >>> refuse_crowded(job, 1)
    {'cpu_cores': 'not measured: 2 cores are needed, and 1 is given'}
    """
    needed = {
        side.name: max(side.threads or job.threads, 1 + bool(side.workers))
        for side in sides_of(job)
    }
    return {
        name: f"not measured: {count} cores are needed, and {cores} is given"
        for name, count in needed.items()
        if count > cores
    }


def refuse_slow(sides: Sequence[Side], speed: Callable[[], float]) -> dict[str, str]:
    """Return which of *sides* are not worth their time, and why: bf16 where it is emulated.

    >>> refuse_slow([Side("base"), Side("amp", amp=True)], lambda: 0.1)
    {'amp': 'not measured: bf16 products have 0.10 times the speed of fp32 here'}
    """
    mixed = [side.name for side in sides if side.amp]
    times = speed() if mixed else 1.0
    if times >= LEAST_BF16:
        return {}
    why = f"not measured: bf16 products have {times:.2f} times the speed of fp32 here"
    return dict.fromkeys(mixed, why)


def bf16_speed() -> float:
    """Return how many times as fast as in fp32 a product of matrices is in bf16, each at its best.

    It runs in a process of its own: the sides are forked from one without threads.
    """
    here, there = Pipe(duplex=False)
    process = os.fork()
    if process == 0:
        there.send([min(_product_ns(dtype)) for dtype in (torch.float32, torch.bfloat16)])
        os._exit(0)
    single, half = here.recv()
    os.waitpid(process, 0)
    return float(single / half)


def _product_ns(dtype: torch.dtype) -> list[int]:
    matrix = torch.ones(512, 512, dtype=dtype)
    return timed(lambda: matrix @ matrix, 7)["step_ns"]


@dataclass
class Runner:
    """The end of a side's process that asks it for steps."""

    process: int
    pipe: Connection
    steps: int = 0
    error: str = ""
    pause: float = 0.0

    def ask(self, steps: int) -> dict[str, Any]:
        """Let the side run *steps*; 0 is its warm-up."""
        try:
            self.pipe.send(steps)
            answer: dict[str, Any] = self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            answer = {"error": "its process ended"}
        self.error = answer.get("error", "")
        return answer

    def stop(self) -> None:
        """End the side's process, and wait for it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(STOP)
        os.waitpid(self.process, 0)


def start(job: DrawnJob, side: Side, cores: list[int]) -> Runner:
    """Start the process of *side*."""
    here, there = Pipe()
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        here.close()
        try:
            serve(there, lambda: _prepare(job, side, cores), parent, side)
        finally:
            os._exit(0)
    there.close()
    fetch = job.batch_size * side.batch_factor * (job.load_us + 50 * job.load_rounds) / 1e6
    return Runner(process, here, pause=2 * side.workers * fetch)


def _prepare(job: DrawnJob, side: Side, cores: list[int]) -> Callable[[], None]:
    if side.threads > job.threads:
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(side.threads or job.threads)
    return build(job, side).run()


def serve(
    pipe: Connection, prepare: Callable[[], Callable[[], None]], parent: int, side: Side
) -> None:
    """Run as many steps as *pipe* says, time after time, until *parent* has gone."""
    run: Callable[[], None] | None = None
    settle = 1
    while True:
        while not pipe.poll(1.0):
            if os.getppid() != parent:
                return
        try:
            steps = pipe.recv()
            if steps == STOP:
                return
            if run is None:
                run = prepare()
                times = timed(run, WARMUP)
                settle = steps_before(min(times["step_ns"]) / 1e9)
            else:
                timed(run, max(SETTLE_PER_WORKER * side.workers, settle))
                times = timed(run, steps)
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - whatever the network raises
            pipe.send({"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"})
            return
        pipe.send(times)


def timed(run: Callable[[], None], steps: int) -> dict[str, Any]:
    """Return the time of each of *steps*, in ns, and what disturbed them."""
    before, cpu, began = _usage(), time.process_time_ns(), time.perf_counter_ns()
    stamps = [began]
    for _ in range(steps):
        run()
        stamps.append(time.perf_counter_ns())
    faults, switches = (new - old for new, old in zip(_usage(), before, strict=True))
    return {
        "step_ns": [new - old for old, new in itertools.pairwise(stamps)],
        "cpu_ns": time.process_time_ns() - cpu,
        "faults": faults,
        "switches": switches,
    }


def _usage() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_nivcsw


def conduct(sides: dict[str, Runner], blocks: int, seconds: float = 0.0) -> dict[str, Any]:
    """Let all *sides* run in turns, forwards and backwards, the base every few; return all blocks.

    A block of the result is ``{"side", "block", "step_ns", ...}``, in the order of the clock.
    """
    parent = os.getppid()
    for side in sides.values():
        warm = side.ask(0)
        step = min(warm.get("step_ns") or [1])
        side.steps = steps_a_turn(step / 1e9)
    errors = {name: side.error for name, side in sides.items() if side.error}
    measured: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    for block in itertools.count():
        if block >= blocks and (time.monotonic() > end or is_settled(log_ratios(measured))):
            break
        for name in turns(list(sides), block, BASE):
            side = sides[name]
            if os.getppid() != parent:
                raise SystemExit("nobody waits for this any more")
            if side.error:
                continue
            answer = side.ask(side.steps)
            if side.error:
                errors[name] = side.error
                continue
            time.sleep(side.pause)
            measured.append({"side": name, "block": block, **answer})
    return {"blocks": measured, "errors": errors, "threads": torch.get_num_threads()}


def log_ratios(measured: Sequence[dict[str, Any]]) -> list[list[float]]:
    """Return for each changed side ln of its mean step over that of the base, round by round.

    >>> turn = {"block": 0, "step_ns": [2, 2]}
    >>> log_ratios([{**turn, "side": "base"}, {**turn, "side": "amp"}])
    [[0.0]]
    """
    rounds: dict[str, dict[int, list[int]]] = {}
    for turn in measured:
        rounds.setdefault(turn["side"], {}).setdefault(turn["block"], []).extend(turn["step_ns"])
    base = rounds.pop(BASE, {})
    return [
        [math.log(fmean(ns) / fmean(base[block])) for block, ns in side.items() if block in base]
        for side in rounds.values()
    ]


if __name__ == "__main__":
    main()
