"""A what-if whose true answer is known, asked of HolisticTraceAnalysis and of Foretrace.

    python -m benchmarks.whatif_against_hta

The trace: per step, 1,000 kernels on one stream, launched every 10 us, then a synchronisation. The
truth is a queue: a kernel begins when it was launched and the one before it has ended. In HTA,
kernels are made slower as its documentation suggests, by the weights of their edges in its graph;
the answer is the longest path.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import foretrace
from benchmarks.against_hta import hta_python
from foretrace.transforms.scenario import parse_scenario

LAUNCHES, EVERY_US, LAUNCH_US, STEPS = 1000, 10, 4, 3
CASES = ((2, 10), (20, 0.1))
"""Length of the recorded kernels in us, and how many times as long they are made."""


HTA = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import networkx as nx
from hta.trace_analysis import TraceAnalysis

trace, folder, factor = sys.argv[1:]
analysis = TraceAnalysis(trace_files={0: trace}, trace_dir=folder)
graph, _ = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
before = nx.dag_longest_path_length(graph)
events = analysis.t.get_trace(0)
kernels = set(events.index[events["stream"] > 0])
for begin, end, edge in graph.edges(data=True):
    event = graph.node_list[begin].ev_idx
    if event in kernels and graph.node_list[end].ev_idx == event:
        edge["weight"] *= float(factor)
print(json.dumps([before, nx.dag_longest_path_length(graph)]))
"""


def trace_of(kernel_us: float) -> list[dict[str, Any]]:
    """Return the events of a Kineto trace of `STEPS` steps that launch `LAUNCHES` kernels each."""
    events: list[dict[str, Any]] = []
    now = device_free = 0.0
    for step in range(STEPS):
        began = now
        for launch in range(LAUNCHES):
            number = step * LAUNCHES + launch
            begins = max(now + LAUNCH_US, device_free)
            device_free = begins + kernel_us
            ids = {"correlation": number + 1, "External id": number + 1}
            events += [
                _event("cpu_op", "aten::mm", now, EVERY_US - 1, **{"External id": number + 1}),
                _event("cuda_runtime", "cudaLaunchKernel", now + 1, LAUNCH_US - 1, **ids),
                _event("kernel", "gemm", begins, kernel_us, 7, stream=7, device=0, **ids),
                *_flow(number + 1, now + 1, begins),
            ]
            now += EVERY_US
        sync = {"correlation": 10**6 + step}
        ends = max(now + 1, device_free)
        events.append(_event("cuda_runtime", "cudaDeviceSynchronize", now, ends - now, **sync))
        events.append(_event("user_annotation", f"ProfilerStep#{step}", began, ends - began))
        now = ends
    return events


def _event(
    kind: str, name: str, ts: float, dur: float, tid: int = 1, **args: int
) -> dict[str, Any]:
    pid = 0 if "stream" in args else 1
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "ts": ts,
        "dur": dur,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


def _flow(number: int, begins: float, ends: float) -> list[dict[str, Any]]:
    start = {
        "ph": "s",
        "id": number,
        "cat": "ac2g",
        "name": "ac2g",
        "ts": begins,
        "pid": 1,
        "tid": 1,
    }
    return [start, {**start, "ph": "f", "bp": "e", "ts": ends, "pid": 0, "tid": 7}]


def truth_ms(kernel_us: float) -> float:
    """Return the length of a step by the queue alone, in ms."""
    free = 0.0
    for launch in range(LAUNCHES):
        free = max(launch * EVERY_US + LAUNCH_US, free) + kernel_us
    return max(free, LAUNCHES * EVERY_US) / 1e3


def answers(path: Path, factor: float) -> tuple[list[float], list[float]]:
    """Return what HTA and Foretrace say before and after, in ms."""
    command = [str(hta_python()), "-c", HTA, str(path), str(path.parent), str(factor)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    graph = foretrace.build(foretrace.load(path))
    scenario = parse_scenario([f"faster_kernels(speedup={1 / factor})"])
    prediction = foretrace.predict(graph, scenario)
    theirs = [us / 1e3 for us in json.loads(done.stdout.splitlines()[-1])]
    return theirs, [prediction.replayed_before_ns / 1e6, prediction.predicted_ns / 1e6]


def main() -> None:
    """Print a row per case."""
    print("kernels   made    ms, before and after: truth, HTA, Foretrace")
    for kernel_us, factor in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rank0.json"
            content = {"distributedInfo": {"rank": 0}, "traceEvents": trace_of(kernel_us)}
            path.write_text(json.dumps(content), "utf-8")
            theirs, ours = answers(path, factor)
        truth = [truth_ms(kernel_us), truth_ms(kernel_us * factor)]
        shown = "   ".join("".join(f"{ms:8.2f}" for ms in pair) for pair in (truth, theirs, ours))
        print(f"{kernel_us:>4} us  {factor:>4}x   {shown}")


if __name__ == "__main__":
    main()
