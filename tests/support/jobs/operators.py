"""A layer with operators inside its operators, and what these were measured to cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.literal import literal
from foretrace.tracer.trace import TraceMeta
from tests.support.recordings.calibrations import FP32

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

OPERATORS: dict[str, Any] = {
    "name": ["aten::linear", "aten::addmm", "aten::copy_", "aten::relu", "aten::mul_"],
    "parent": [-1, 0, 1, -1, -1],
    "step": [0] * 5,
    "phase": ["forward", "forward", "forward", "forward", "optimizer"],
    "duration_ns": [1_300, 1_200, 200, 400, 900],
}


def linear_job(**settings: Any) -> Graph:
    """Return linear(addmm(copy_)), relu and an update: 100 + 1,000 + 200 + 400 + 900 ns."""
    names = [*OPERATORS["name"]]
    work = [100, 1_000, 200, 400, 900]
    tasks = [
        (name, "host", 0, ns, phase)
        for name, ns, phase in zip(names, work, OPERATORS["phase"], strict=True)
    ]
    meta = TraceMeta(format="foretrace", source="x", batch_size=4, optimizer={"kind": "loop"})
    columns = {"operator": np.arange(5, dtype=np.int32)}
    given = {"columns": columns, "operators": OPERATORS, "meta": meta, "lag_ns": 10, "wrap": True}
    return literal(tasks, **{**given, **settings})


BEFORE = [("aten::addmm", FP32, 1_000.0), ("aten::relu_", FP32, 400.0)]
