"""Mixed precision on a CPU, by rule: what a product calls is part of the product."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from foretrace.graph.literal import literal
from foretrace.tracer.trace import TraceMeta
from foretrace.transforms.compute.amp.amp import amp

MACHINE = {
    "fp32_gflops": 50.0,
    "bf16_gflops": 5.0,
    "cast_gbps": 10.0,
    "has_bf16": False,
    "products": {"conv": {"fp32": [[64, 40.0]], "bf16": [[64, 2.0]]}},
}


def test_an_unfolded_convolution_counts_once() -> None:
    """_convolution and what it calls take, together, its flops at the probed rate: 18,432 ns.

    2 images of 8 x 8 and 4 channels, 4 filters of 3 x 3: 36,864 flops at 2 flops per ns.
    """
    operators = {
        "name": ["aten::_convolution", "aten::_slow_conv2d_forward", "aten::relu"],
        "parent": [-1, 0, -1],
        "step": [0, 0, 0],
        "phase": ["forward"] * 3,
        "shapes": pd.Categorical(["[[2,4,8,8],[4,4,3,3]]", "[[2,4,8,8],[4,4,3,3]]", None]),
        "dtypes": pd.Categorical(['["float","float"]'] * 3),
    }
    work = [50, 9_950, 400]
    tasks = [(n, "host", 0, ns, "forward") for n, ns in zip(operators["name"], work, strict=True)]
    graph = literal(
        tasks,
        operators=operators,
        columns={"operator": np.arange(3, dtype=np.int32)},
        meta=TraceMeta(format="foretrace", source="x", machine=MACHINE),
    )

    changed = amp(graph).tasks["work_ns"].to_numpy()

    assert changed[:2].sum() == pytest.approx(18_432, abs=1)
    assert changed[1] / changed[0] == pytest.approx(9_950 / 50, rel=0.01)
