"""What it takes to replay many recorded ranks, each of them different, without folding any.

    python -m benchmarks.ranks [RANKS...]

A rank has 10,000 tasks in two steps: launches, kernels, collectives on a stream of their own, and a
sync per step. Ranks differ in what their kernels cost and meet at their collectives. Each number of
ranks runs in a process of its own; printed are seconds, the time per task, which should not grow
with the ranks, and the peak of memory, for a plain replay and for one in which collectives slow
the kernels of their ranks.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.literal import literal
from foretrace.graph.ranks.merge import merge_ranks
from foretrace.graph.shared_links import Network
from foretrace.replaying.replay import replay

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

RANKS = (16, 64, 256)
TASKS = 10_000
STEPS = 2
COLLECTIVES = 20
"""In a step; the 10th of 25 MB buckets of a model of 1 GB, and as many for its activations."""
SECONDS_GOAL = 10.0
MEMORY_GOAL_GIB = 2.0


def one_rank() -> Graph:
    """Return a job whose collectives run beside its kernels."""
    tasks: list[Any] = []
    edges: list[Any] = []
    columns: dict[str, list[Any]] = {"step": [], "start_ns": [], "wait": []}
    calls, last = TASKS // STEPS // 2, -1
    for step in range(STEPS):
        for call in range(calls):
            meets = (call + 5) % (calls // COLLECTIVES) == 0
            name, kind, lane = ("all_reduce", "collective", 2) if meets else ("gemm", "kernel", 1)
            row, start = len(tasks), (step * calls + call) * 10_000
            tasks += [
                ("cudaLaunchKernel", "launch", 0, 5_000, "forward"),
                (name, kind, lane, 200_000 if meets else 9_000, "forward"),
            ]
            edges.append((row, row + 1, "launch", 6_000))
            if meets:  # what the kernel before it has left is reduced
                last = row + 1
                edges.append((row - 1, last, "event"))
            columns["start_ns"] += [start, start + 6_000]
            columns["step"] += [step, step]
            columns["wait"] += ["none", "none"]
        edges.append((last, len(tasks) - 1, "event"))  # the update needs the last of them
        tasks.append(("cudaDeviceSynchronize", "sync", 0, 5_000, "optimizer"))
        columns["start_ns"].append((step + 1) * calls * 10_000 - 1)
        columns["step"].append(step)
        columns["wait"].append("device")
    return literal(tasks, edges, columns=columns, wrap=True)


def several(ranks: int) -> Graph:
    """Return *ranks* of it, each with kernels of its own length."""
    base = one_rank()
    is_kernel = (base.tasks["kind"] == "kernel").to_numpy()
    work = base.tasks["work_ns"].to_numpy()
    graphs = []
    for rank in range(ranks):
        own = np.where(is_kernel, work + rank % 7 * 10 + np.arange(len(work)) % 13, work)
        lanes = base.lanes.assign(rank=rank).astype({"rank": "int16"})
        graphs.append(replace(base, tasks=base.tasks.assign(work_ns=own), lanes=lanes))
    return merge_ranks(graphs)


def contended(graph: Graph, ranks: int) -> Graph:
    """Let the kernels of all ranks run at 0.9 of their speed while a transfer runs."""
    links = np.flatnonzero(graph.lanes["kind"] == "link").tolist()
    members = tuple((lane, rank) for lane in links for rank in range(ranks))
    return graph.with_state(network=Network(compute_share=0.9, members=members))


def measured(ranks: int) -> None:
    """Print a line for *ranks*."""
    replay(several(2))  # compiles
    replay(contended(several(2), 2))
    begin = time.perf_counter()
    graph = several(ranks)
    merged = time.perf_counter()
    timeline = replay(graph)
    done = time.perf_counter()
    assert timeline.settled
    peak = _peak()
    changed = contended(graph, ranks)
    again = time.perf_counter()
    slowed = replay(changed)
    last = time.perf_counter()
    tasks = len(graph.tasks)
    print(
        f"{ranks:>4} ranks, {tasks:>9,} tasks: merged in {merged - begin:.1f} s,"
        f" replayed in {done - merged:.1f} s, {(done - merged) / tasks * 1e9:.0f} ns a task,"
        f" peak {peak:.2f} GiB"
        f" | contended {last - again:.1f} s, {(last - again) / tasks * 1e9:.0f} ns a task,"
        f" peak {_peak():.2f} GiB, {slowed.step_ns / timeline.step_ns - 1:+.1%} longer",
        flush=True,
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measured(int(sys.argv[2]))
    else:
        print(f"goals for 256 ranks: {SECONDS_GOAL:.0f} s, {MEMORY_GOAL_GIB:.0f} GiB")
        for ranks in [int(each) for each in sys.argv[1:]] or RANKS:
            subprocess.run([sys.executable, __file__, "--one", str(ranks)], check=True)
