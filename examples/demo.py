"""``make demo``: record a small training job here, predict two what-ifs, then really run both.

Everything it prints was measured on this machine in the last minutes. Needs no GPU; uses one if
there is one.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

import small_cnn
import torch

from foretrace import build, compare, export_timeline, record, save

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foretrace import Graph, Job, Validation

OUT = Path("demo-out")
ROUNDS = 6
FEWEST_ROUNDS = 2
BUDGET_S = 80
"""No further round begins after this long, so that a slow machine ends in time, too."""
SETTLE = 6
"""Untimed steps before each block: prefetched batches are used up, caches belong to the job."""
STEPS = 6
"""Timed steps of a block."""
FIXED_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Keeps the allocator's thresholds where they are: one job cannot move them under the other."""
QUIET = 0.05
"""Drift between the halves of a measurement above which an error says little."""


@dataclass(frozen=True)
class Change:
    """One what-if, and the same job with the change really made."""

    what: str
    scenario: str
    job: Callable[[], Job]


CHANGES = (
    Change(
        "fused optimizer instead of a loop over the parameters",
        'fused_optimizer(kind="fused")',
        lambda: small_cnn.job(optimizer="fused", workers=0),
    ),
    Change(
        "two loader workers instead of none",
        "dataloader(workers=2)",
        lambda: small_cnn.job(workers=2),
    ),
)


def main() -> None:
    """Record, predict, run, compare."""
    OUT.mkdir(exist_ok=True)
    before = small_cnn.job(workers=0)
    say(f"1. Recording {before.name}: a CNN, Adam as a loop, images loaded in the main process")
    trace = record(before)
    save(trace, OUT / "small_cnn.parquet")
    graph = build(trace)

    say(f"2. Running it for real, and both changed jobs, in turns, {STEPS} steps at a time")
    times = measure([before, *(change.job() for change in CHANGES)])
    graph = with_truth(graph, times[0])

    say("3. Predicted from the recording, against what was measured\n")
    print(f"   {'':58}{'step ms':>9}{'noise':>8}")
    print(f"   {'measured before':58}{typical(times[0]) / 1e6:9.2f}")
    for change, after in zip(CHANGES, times[1:], strict=True):
        comparison = compare(graph, change.scenario, typical(after), "unprofiled")
        show(change, comparison, drift(times[0], after))
    worst = max(drift(times[0], after) for after in times[1:])
    if worst > QUIET:
        print(f"\n   Other work disturbed this: the measurements drifted by {worst:.0%}.")
        print("   Run it again on a quiet machine before judging the errors.")

    timeline = OUT / "timeline.json"
    export_timeline(graph, CHANGES[0].scenario, timeline)
    say(f"4. Timeline, before and after the fused optimizer: {timeline}")
    print("   Open https://ui.perfetto.dev and drag the file into it; nothing is uploaded.")
    print(f"   The recording is {OUT / 'small_cnn.parquet'}; try for example:")
    command = Path(sys.executable).with_name("foretrace")
    print(f"   {command} whatif {OUT / 'small_cnn.parquet'} 'batch_size(n=32)'")


def measure(jobs: list[Job]) -> list[list[int]]:
    """Run *jobs* in turns and return the step times of each in ns.

    Taking turns lets a drift of the machine hit all alike; the order alternates.
    """
    runs = [runner(job) for job in jobs]
    times: list[list[int]] = [[] for _ in jobs]
    begin = time.perf_counter()
    for number in range(ROUNDS):
        if number >= FEWEST_ROUNDS and time.perf_counter() - begin > BUDGET_S:
            break
        order = list(range(len(jobs)))
        for which in order if number % 2 == 0 else reversed(order):
            for _ in range(SETTLE):
                runs[which]()
            times[which] += timed(runs[which], uses_cuda=jobs[which].uses_cuda)
    return times


def runner(job: Job) -> Callable[[], object]:
    """Return what runs one step of *job*, fetching its batch included."""
    if job.loader is None:
        return job.step
    batches = itertools.chain.from_iterable(itertools.repeat(job.loader))
    return lambda: job.step(next(batches))


def timed(run: Callable[[], object], *, uses_cuda: bool) -> list[int]:
    """Run one block and return its step times; on a GPU the mean of the block."""
    synchronize = torch.cuda.synchronize if uses_cuda else lambda: None
    synchronize()
    stamps = [time.perf_counter_ns()]
    for _ in range(STEPS):
        run()
        stamps.append(time.perf_counter_ns())
    synchronize()
    if uses_cuda:
        return [(time.perf_counter_ns() - stamps[0]) // STEPS]
    return [end - start for start, end in itertools.pairwise(stamps)]


def typical(values: Sequence[float]) -> float:
    """Return the mean of *values* without the lowest and the highest fifth."""
    cut = len(values) // 5
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def drift(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the share by which the ratio of two series differs between its halves."""
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    half = len(ratios) // 2
    return abs(typical(ratios[half:]) / typical(ratios[:half]) - 1)


def with_truth(graph: Graph, times: list[int]) -> Graph:
    """Return *graph* with the step that was measured beside the changed jobs."""
    return replace(graph, meta=replace(graph.meta, unprofiled_step_ns=tuple(times)))


def show(change: Change, comparison: Validation, noise: float) -> None:
    """Print one comparison."""
    predicted = comparison.prediction
    low, high = (end / 1e6 for end in predicted.interval_ns)
    paper = comparison.null_paper_error
    print(f"\n   {change.what}: {change.scenario}")
    print(f"   {'predicted':58}{predicted.predicted_ns / 1e6:9.2f}   {low:.1f} … {high:.1f}")
    print(f"   {'measured after':58}{comparison.measured_after_ns / 1e6:9.2f}{noise:8.1%}")
    print(f"   {'error of the prediction':58}{comparison.error:+9.1%}   {predicted.status}")
    print(
        f"   {'error of null model 1, nothing changes':58}{comparison.null_no_change_error:+9.1%}"
    )
    if paper is not None:
        print(f"   {'error of null model 2, published constants':58}{paper:+9.1%}")


def say(text: str) -> None:
    """Print a heading at once."""
    print(f"\n{text}", flush=True)


def with_fixed_allocator() -> None:
    """Start again with allocator thresholds that one job cannot move under the other."""
    if not FIXED_ENVIRONMENT.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **FIXED_ENVIRONMENT})  # noqa: S606  # ourselves


if __name__ == "__main__":
    with_fixed_allocator()
    main()
