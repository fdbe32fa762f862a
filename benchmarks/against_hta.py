"""How fast a prediction is, as ratios to HolisticTraceAnalysis on the same trace and machine.

    python -m benchmarks.against_hta [TRACE]

HTA (PyPI ``traceinsight``) runs in an environment of its own, made on first use under the cache
folder. Its part is to load the trace and to find the critical path of one step; ours is to load
it, build the graph, and predict a what-if, for which all steps are replayed twice. Both sides
run in turn, several times, each in a fresh process; imports are not counted, the best run is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

RUNS = 3
PACKAGES = ("traceinsight==0.6.1", "pandas<3")
DEFAULT = Path(__file__).parents[2] / "shared/gpu-traces/hta/ddp_toy_mlp-rnn_v100_ws2_rank1.json.gz"
GOALS = {"JSON to prediction": 15, "Parquet to prediction": 100}

HTA = """
import json, logging, sys, time, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis

trace, folder = sys.argv[1:]
begin = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: trace}, trace_dir=folder)
loaded = time.perf_counter()
_, is_path = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
assert is_path
end = time.perf_counter()
print(json.dumps({"load": loaded - begin, "critical path": end - loaded}))
"""

OURS = """
import json, sys, time
import foretrace
from foretrace.replaying.lower import lower
from foretrace.replaying.engine.topological import prepare, sort_moments
from foretrace.replaying.engine.event_driven import run_events
from foretrace.replaying.engine.static import run_static
from foretrace.tracer.readers.parquet import save
from foretrace.transforms.scenario import parse_scenario

trace, folder = sys.argv[1:]
scenario = parse_scenario(["faster_kernels(speedup=2)"])
seconds = {}

def timed(name, work):
    begin = time.perf_counter()
    result = work()
    took = time.perf_counter() - begin
    seconds[name] = min(took, seconds.get(name, took))
    return result

def predicted(path):
    return foretrace.predict(foretrace.build(foretrace.load(path)), scenario)

timed("first prediction", lambda: predicted(trace))
timed("JSON to prediction", lambda: predicted(trace))
recorded = timed("load JSON", lambda: foretrace.load(trace))
parquet = str(save(recorded, folder + "/recorded.parquet"))
for _ in range(2):
    timed("Parquet to prediction", lambda: predicted(parquet))
    timed("load Parquet", lambda: foretrace.load(parquet))
    graph = timed("build", lambda: foretrace.build(recorded))
    timed("predict", lambda: foretrace.predict(graph, scenario))
    program = timed("lower", lambda: lower(graph, 4))
    prepared = prepare(program)
    order = sort_moments(prepared)
    timed("static engine", lambda: run_static(prepared, order))
    timed("event-driven engine", lambda: run_events(prepared))
print(json.dumps({**seconds, "tasks": len(program.work_ns), "events": len(recorded.events)}))
"""


def hta_python() -> Path:
    """Return the interpreter of HTA's environment, which is made when missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "foretrace" / "hta"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "-qq", *PACKAGES]
        subprocess.run(pip, check=True)
        (folder / "complete").touch()
    return python


def measured(python: Path | str, script: str, trace: Path) -> dict[str, float]:
    """Run *script* in a fresh process; return what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-c", script, str(trace), folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the least of each value."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def main(trace: Path) -> None:
    """Print seconds and ratios."""
    if not trace.exists():
        print(f"{trace.name} is not here; give a Kineto trace with ProfilerStep as argument")
        return
    python = hta_python()
    runs: dict[str, list[Any]] = {"hta": [], "ours": []}
    for _ in range(RUNS):
        runs["hta"].append(measured(python, HTA, trace))
        runs["ours"].append(measured(sys.executable, OURS, trace))
    hta, ours = best(runs["hta"]), best(runs["ours"])
    base = hta["load"] + hta["critical path"]
    print(f"{trace.name}: {int(ours.pop('events')):,} events")
    tasks = ours.pop("tasks")
    print(f"{'HTA: load':<32} {hta['load']:8.3f} s")
    print(f"{'HTA: critical path of one step':<32} {hta['critical path']:8.3f} s")
    for name, seconds in ours.items():
        if name.endswith("engine"):
            print(f"{name:<32} {seconds:8.4f} s   {tasks / seconds / 1e6:6.1f} M tasks/s")
        else:
            goal = f", goal {GOALS[name]}x" if name in GOALS else ""
            ratio = f"   {base / seconds:6.1f}x HTA{goal}" if "prediction" in name else ""
            print(f"{name:<32} {seconds:8.3f} s{ratio}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
