"""How many scenarios per second one job allows: the goal is 1,000 in a minute on two cores.

    python -m benchmarks.scenarios [TRACE] [--count N] [--jobs N] [--check N]

Six in ten scenarios change times only, the others change the graph: every what-if of the table of
candidates that applies to the trace, in turn. ``--check`` compares some with `predict`.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.analysis.candidates import list_candidates
from foretrace.analysis.prediction import predict
from foretrace.analysis.scenario_sweep import predict_many
from foretrace.errors import ForetraceError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.scenario import apply, parse_scenario

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

TRACE = Path("../shared/gpu-traces/hta/ddp_toy_mlp-rnn_v100_ws2_rank1.json.gz")
GOAL = 1_000 / 60
TIMES_ONLY = 0.6
PATTERNS = (".*", "gemm", "elementwise", "reduce", "Memcpy|Memset", "nccl|all_?reduce")


def scenarios(graph: Graph, count: int) -> list[Scenario]:
    """Return *count* scenarios, the same ones every time."""
    draw = random.Random(7)  # noqa: S311  # no secret
    structural = [
        what_if for c in list_candidates() if applies(graph, (what_if := c.what_if(graph),))
    ]
    print("what-ifs:", ", ".join(map(str, structural)))
    drawn: list[Scenario] = []
    for number in range(count):
        if draw.random() >= TIMES_ONLY and structural:
            drawn.append((structural[number % len(structural)],))
            continue
        speedup = round(draw.uniform(1.05, 4.0), 2)
        texts = [f"faster_host(speedup={speedup})"]
        texts += [f"faster_kernels(pattern={p!r}, speedup={speedup})" for p in PATTERNS]
        drawn.append(parse_scenario([draw.choice(texts)]))
    return drawn


def applies(graph: Graph, scenario: Scenario) -> bool:
    """Tell whether *scenario* can be asked of *graph*."""
    try:
        apply(graph, scenario)
    except ForetraceError:
        return False
    return True


def main() -> None:
    """Print the rate, and how it stands to the goal."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("trace", nargs="?", type=Path, default=TRACE)
    options.add_argument("--count", type=int, default=1_000)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--check", type=int, default=0)
    given = options.parse_args()
    graph = build(load(given.trace))
    asked = scenarios(graph, given.count)
    begin = time.perf_counter()
    outcomes = predict_many(graph, asked, jobs=given.jobs)
    seconds = time.perf_counter() - begin
    rate = len(outcomes) / seconds
    failed = sum(isinstance(each, ForetraceError) for each in outcomes)
    print(
        f"{len(outcomes):,} scenarios on {len(graph.tasks):,} tasks, {given.jobs} processes: "
        f"{seconds:.1f} s, {rate:.1f} scenarios/s, {rate / GOAL:.2f} times the goal, "
        f"{failed} failed"
    )
    for scenario, outcome in list(zip(asked, outcomes, strict=True))[: given.check]:
        if not isinstance(outcome, ForetraceError):
            assert outcome == predict(graph, scenario), scenario


if __name__ == "__main__":
    main()
