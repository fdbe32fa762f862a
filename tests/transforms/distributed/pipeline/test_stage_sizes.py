"""What pieces hand on, and which share of the parameters each has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.distributed.pipeline.partition import cut_model
from foretrace.transforms.distributed.pipeline.stage_sizes import boundary_bytes, parameter_shares
from tests.support.jobs.layers import cpu_layers

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def with_operators(shapes: str | None, dtypes: str = '["float"]') -> Graph:
    """Return two layers; the second one's forward task is inside aten::linear of these shapes."""
    operator = [-1, 1, -1, -1, -1]
    return literal(
        [(f"t{at}", "host", 0, 5, phase) for at, phase in
         enumerate(["forward", "forward", "backward", "backward", "optimizer"])],
        columns={"module": pd.Categorical(["0", "1", "1", "0", None]), "operator": operator},
        operators={
            "name": ["aten::linear", "aten::addmm"],
            "parent": [-1, 0],
            "shapes": [shapes, "[[3],[8,2],[2,3]]"],
            "dtypes": [dtypes, '["float"]'],
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "dtypes", "size"),
    [
        ("[[4,2,16],[8,16],[8]]", '["float"]', 4 * 2 * 16 * 4),
        ("[[4,2,16],[8,16],[8]]", '["c10::BFloat16"]', 4 * 2 * 16 * 2),
        ("[[],[4,16]]", '["float"]', 4 * 16 * 4),
        (None, '["float"]', 3 * 4),
    ],
)
def test_a_piece_reads_what_its_first_operator_reads(
    shapes: str | None, dtypes: str, size: int
) -> None:
    """The outermost operator with shapes tells; scalars are no tensors."""
    graph = with_operators(shapes, dtypes)

    assert boundary_bytes(graph, cut_model(graph, 2)) == [size]


def test_the_user_may_say_what_is_handed_on() -> None:
    """2.5 MB, whatever the recording tells."""
    graph = cpu_layers(("a", "b", "c"))

    assert boundary_bytes(graph, cut_model(graph, 3), 2.5) == [2_500_000] * 2


def test_unknown_sizes_are_refused() -> None:
    """The module is named."""
    graph = cpu_layers(("a", "b"))

    with pytest.raises(TransformError, match="no shape of what goes into 'b'"):
        boundary_bytes(graph, cut_model(graph, 2))


def test_parameters_are_shared_by_their_bytes() -> None:
    """1 MB in the first layer, 3 in the second."""
    graph = cpu_layers(("a", "b"))
    seen = {"parameters": [["a.weight", [250_000], 4], ["b.weight", [750_000], 4]]}
    graph = replace(graph, meta=replace(graph.meta, extra=seen))
    shares, total = parameter_shares(graph, cut_model(graph, 2))

    assert shares.tolist() == [0.25, 0.75]
    assert total == 4_000_000


def test_unknown_parameters_are_shared_by_the_time_of_backward() -> None:
    """Both layers take as long."""
    graph = cpu_layers(("a", "b"))
    shares, total = parameter_shares(graph, cut_model(graph, 2))

    assert shares.tolist() == [0.5, 0.5]
    assert total is None
