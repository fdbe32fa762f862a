"""The process that measures: one model, one or more changes, before and after interleaved.

A process of its own, so that allocator, threads and core are fixed before torch is imported, and
so that a crash costs one model. Goes in: a task as JSON. Comes out, per change: one ``.pair.json``
and the Kineto files it names, in the task's folder; one line per change on stdout.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.tracer.child_process import end_with
from foretrace.tracer.job import runner
from foretrace.tracer.lab.pairs.archive import CALIBRATION
from foretrace.tracer.lab.pairs.calibration import calibrate_pair
from foretrace.tracer.lab.pairs.side import Side
from foretrace.tracer.lab.zoo.named import find_model
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES
from foretrace.tracer.lab.zoo.variants import Variant, build
from foretrace.tracer.recording.job_metadata import describe_recording
from foretrace.tracer.recording.machine_probe import cpu_name, probe
from foretrace.tracer.recording.recorder import Block, Recorder, attempt, drive, schedule
from foretrace.tracer.step_stats import Quality, neighbours_ratio, trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.job import Job
    from foretrace.tracer.lab.zoo.models import Model
    from foretrace.tracer.lab.zoo.variants import ZooChange

SLOW_NS = 250_000_000
LOAD_SHARE = 0.8  # of the step: loading is worth moving away, and can be hidden


@dataclass(frozen=True)
class PairPlan:
    """How much is measured: *rounds* of a block of *block* steps per side, after *warmup*.

    The side before is recorded in between, *window* steps a round.
    Afterwards operators are timed alone for *calibration_seconds*; 0 leaves that out.
    """

    rounds: int = 12
    block: int = 3
    slow_block: int = 2
    warmup: int = 5
    window: int = 3
    calibration_seconds: float = 8.0


CPU_PLAN = PairPlan()
CUDA_PLAN = PairPlan(rounds=4, block=4, slow_block=2, warmup=3, window=3, calibration_seconds=0)


@dataclass(frozen=True)
class Task:
    """What one process does; ``deadline`` is a time of `time.time`."""

    model: str
    changes: list[str]
    cpu: bool
    folder: str
    deadline: float
    plan: PairPlan


class Bench:
    """Measures changes of one model; the last "before" side is kept, the next may be the same."""

    def __init__(self, model: Model, folder: Path, plan: PairPlan, *, cpu: bool) -> None:
        """Measure *model* by *plan* and write into *folder*."""
        self.model, self.folder, self.plan, self.cpu = model, folder, plan, cpu
        self._kept: tuple[Side, dict[str, Any]] | None = None
        self._load_ns: int | None = None

    def measure(self, change: ZooChange) -> dict[str, Any]:
        """Measure *change* and return what belongs into its ``.pair.json``."""
        wanted = [self._with_loader(v) for v in change.variants(cpu=self.cpu)]
        is_kept = self._kept is not None and self._kept[0].variant == wanted[0]
        if not is_kept:
            self._kept = None
        self._make_room()
        before = self._kept[0] if self._kept else self._side(wanted[0])
        after = self._side(wanted[1])
        recorder, ratio, noise = self._interleave(before, after)
        if self._kept is None:
            self._kept = before, self._export(before, recorder, f"{change.name}.before")
        described = self._kept[1]
        return {
            "model": self.model.name,
            "change": change.name,
            "scenario": change.scenario.format(n=after.job.batch_size),
            "device": "cpu" if self.cpu else "cuda",
            "hardware": _hardware(cpu=self.cpu),
            "noise": noise,
            "before": {**described, **_summary(before)},
            "after": {
                **self._profile(after, f"{change.name}.after"),
                **_summary(after),
                "mean_ns": round(ratio * trimmed_mean(before.step_ns)),
            },
        }

    def calibrate(self, change: ZooChange, scenario: str) -> list[str]:
        """Time what *change*, measured just now, replaces; return what could not be timed."""
        assert self._kept is not None
        before, _ = self._kept
        _, after = change.variants(cpu=self.cpu)

        def builder(variant: Variant) -> Callable[[], Job]:
            device = "cpu" if self.cpu else "cuda"
            return lambda: build(self.model, variant, device=device, small=self.cpu)

        return calibrate_pair(
            before.job,
            (builder(before.variant), builder(after)),
            scenario,
            seconds=self.plan.calibration_seconds,
            out=self.folder / f"{change.name}{CALIBRATION}",
        )

    def _make_room(self) -> None:
        """Free what the last change left, before the next one is built."""
        gc.collect()
        if not self.cpu:
            import torch

            torch.cuda.empty_cache()

    def _with_loader(self, variant: Variant) -> Variant:
        """Return *variant*; its loader, if any, takes a good part of the step measured here."""
        if variant.workers is None:
            return variant
        if self._load_ns is None:
            self._kept = None
            alone = self._side(replace(variant, workers=None))
            alone.measure()
            self._load_ns = round(LOAD_SHARE * trimmed_mean(alone.step_ns))
        return replace(variant, load_ns=self._load_ns)

    def _side(self, variant: Variant) -> Side:
        """Build and warm up one side."""
        device = "cpu" if self.cpu else "cuda"
        job = build(self.model, variant, device=device, small=self.cpu)
        side = Side(variant, job, runner(job))
        with side.running() as run:
            attempt(run, f"the first step of {job.name!r}")
        side.measure()
        is_slow = side.step_ns.pop() > SLOW_NS
        side.block = self.plan.slow_block if is_slow else self.plan.block
        with side.running() as run:
            for _ in range(0 if is_slow else self.plan.warmup - 2):
                attempt(run, f"a step of {job.name!r}")
        return side

    def _interleave(self, before: Side, after: Side) -> tuple[Recorder, float, float]:
        """Measure and record both sides in turn; return after over before, and its noise, too.

        A round is a block of *before*, one of *after*, and a profiled window of *before*, each
        after a step that does not count: what the recording shows is then what was measured, also
        where the machine is slow for a while, and no side follows the profiler at once.
        """
        for side in (before, after):
            side.step_ns, side.quality = [], Quality()
        blocks: tuple[list[float], list[float]] = [], []

        def measure_after(block: Block) -> None:
            if block.kind == "plain":
                blocks[0].append(trimmed_mean(recorder.plain_ns[-block.steps :]))
                blocks[1].append(after.measure())

        plan, is_known = self.plan, self._kept is not None
        warm = Block("warm-up", 1)
        window = [] if is_known else [warm, Block("profiled", plan.window)]
        every = [warm, Block("plain", before.block), *window] * plan.rounds
        recorder = Recorder(
            before.job,
            [Block("rehearsal", 1), *every, Block("shapes", 1)],
            quality=before.quality,
            between=measure_after,
        )
        with before.running() as run, recorder:
            drive(run, recorder)
        before.step_ns = recorder.plain_ns
        return recorder, *neighbours_ratio(*blocks)

    def _profile(self, side: Side, name: str) -> dict[str, Any]:
        """Record one window of *side*."""
        steps = min(side.block, self.plan.window)
        blocks = schedule(steps=steps, warmup=1, plain=side.block, windows=1)
        recorder = Recorder(side.job, blocks)
        with side.running() as run, recorder:
            drive(run, recorder)
        return self._export(side, recorder, name)

    def _export(self, side: Side, recorder: Recorder, name: str) -> dict[str, Any]:
        """Write what *recorder* has; return the file's name and the facts."""
        recorder.export(self.folder / f"{name}.json")
        command = "foretrace record-pairs" + (" --cpu" if self.cpu else "")
        facts = {**describe_recording(recorder), "command": command}
        return {"trace": f"{name}.json", "facts": facts, "variant": asdict(side.variant)}


def _hardware(*, cpu: bool) -> str:
    if cpu:
        return cpu_name()
    import torch

    return str(torch.cuda.get_device_name())


def _summary(side: Side) -> dict[str, Any]:
    return {
        "step_ns": list(side.step_ns),
        "mean_ns": round(trimmed_mean(side.step_ns)),
        "quality": side.quality.summary(),
    }


def run(task: Task) -> None:
    """Do what *task* says; a change that fails is written down, and the next one is tried."""
    folder = Path(task.folder)
    bench = Bench(find_model(task.model), folder, task.plan, cpu=task.cpu)
    longest = 0.0
    probe()  # the recordings' facts hold a second one: a machine that is not quiet shows
    for name in task.changes:
        began = time.time()
        if began + longest > task.deadline:
            break
        try:
            result = bench.measure(CHANGES[name])
        except (RuntimeError, ValueError, NotImplementedError) as error:
            _write(folder / f"{name}.failed.json", {"why": str(error).splitlines()[0]})
            _say(f"{task.model} {name}: {str(error).splitlines()[0][:150]}")
            continue
        _write(folder / f"{name}.pair.json", result)
        before, after = (result[side]["mean_ns"] / 1e6 for side in ("before", "after"))
        _say(
            f"{task.model} {name}: {before:.2f} -> {after:.2f} ms, noise {result['noise']:.1%}, "
            f"{time.time() - began:.0f} s"
        )
        if task.plan.calibration_seconds:
            for line in bench.calibrate(CHANGES[name], result["scenario"]):
                _say(f"{task.model} {name}: not calibrated: {line[:150]}")
        longest = max(longest, time.time() - began)


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write *content* whole or not at all: the process may be ended at any time."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(content), "utf-8")
    unfinished.replace(path)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def settle() -> None:  # pragma: no cover - binds the whole process
    """Bind this process to its last core and torch to one thread."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import torch

    torch.set_num_threads(1)


def main(arguments: list[str]) -> int:  # pragma: no cover - runs in a process of its own
    """Run the task that stands in the first argument as JSON; the second is who started this."""
    end_with(int(arguments[1]))
    content = json.loads(arguments[0])
    task = Task(**{**content, "plan": PairPlan(**content["plan"])})
    warnings.filterwarnings("ignore")
    if task.cpu:
        settle()
    run(task)
    return 0


if __name__ == "__main__":  # pragma: no cover - same
    sys.exit(main(sys.argv[1:]))
