"""Layers of equal length where a trace names no modules."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.distributed.common.assumed_layers import with_layers


def test_layers_are_cut_by_the_work_they_launch() -> None:
    """On a device its kernels count; they belong to the layer of their launch."""
    rows = [
        ("launch", "launch", 0, 1, "forward"),
        ("launch", "launch", 0, 1, "forward"),
        ("gemm", "kernel", 1, 100, "forward"),
        ("relu", "kernel", 1, 100, "forward"),
    ]
    graph = literal(rows, [(0, 2, "launch"), (1, 3, "launch")])

    changed = with_layers(graph, 2, "fsdp")

    assert changed.tasks["module"].tolist() == ["0", "1", "0", "1"]
    assert changed.notes[-1] == "fsdp: the model is taken to have 2 layers that last equally long"


def test_the_refusal_names_the_argument() -> None:
    """What is missing, and an example of it; what is not missing is not taken."""
    graph = literal([("f", "host", 0, 5, "forward")])
    named = literal([("f", "host", 0, 5, "forward")], columns={"module": ["fc"]})

    with pytest.raises(TransformError, match="as in layers=24"):
        with_layers(graph, None, "pipeline")
    with pytest.raises(TransformError, match="this trace names modules itself; leave it out"):
        with_layers(named, 3, "pipeline")
    with pytest.raises(TransformError, match="a whole number from 1 on"):
        with_layers(graph, 0, "pipeline")
