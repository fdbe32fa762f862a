"""A small recording of training with a backward pass, written as a file of our own: literal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.tracer.readers.load import load
from foretrace.tracer.readers.parquet import save

if TYPE_CHECKING:
    from pathlib import Path

STEPS, STEP_US = 4, 100_000
BATCH = 32
CALLS = (  # operator, its start and length in a step
    ("aten::mm", 1_000, 30_000),
    ("autograd::engine::evaluate_function: MmBackward0", 32_000, 50_000),
    ("aten::mm", 33_000, 48_000),
    ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 83_000, 2_000),
    ("torch::autograd::AccumulateGrad", 83_200, 1_500),
    ("Optimizer.step#SGD.step", 86_000, 12_000),
    ("aten::add_", 87_000, 10_000),
)


def write_small_training(folder: Path) -> Path:
    """Write four steps of a CPU job that trains on `BATCH` samples, into *folder*."""
    events = [event for step in range(STEPS) for event in _step(step * STEP_US)]
    raw = folder / "small_training.json"
    raw.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")
    trace = load(raw)
    measured = tuple(1_000 * STEP_US for _ in range(10))
    meta = replace(trace.meta, batch_size=BATCH, unprofiled_step_ns=measured)
    return save(replace(trace, meta=meta), folder / "small_training.parquet")


def _step(begin: int) -> list[dict[str, object]]:
    calls = ((f"ProfilerStep#{begin // STEP_US}", 0, STEP_US - 100), *CALLS)
    return [
        {
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "cat": "user_annotation" if "Step" in name or "step" in name else "cpu_op",
            "name": name,
            "ts": begin + start,
            "dur": length,
            "args": {"External id": 1 + begin + at},
        }
        for at, (name, start, length) in enumerate(calls)
    ]
