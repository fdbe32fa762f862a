"""When tensors lie on the device, by hand: parked, encoded, computed again, without backward."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.literal import literal
from foretrace.graph.state import ActivationChange, Block
from foretrace.transforms.costs.activations import activations
from foretrace.transforms.costs.lifetimes import Lifetimes, find_lifetimes, recorded_lifetimes

MOMENTS = np.arange(8)


def four(steps: tuple[int, ...] = (0, 0, 0, 0)) -> Lifetimes:
    """Return tensors of 1 to 4 bytes that come at 0 to 3, and are needed at 7 to 4."""
    return Lifetimes(
        np.arange(4),
        np.arange(7, 3, -1),
        np.arange(1.0, 5.0),
        np.array(steps),
        np.array(["conv", "gemm", "conv", "gemm"]),
        np.array(["a.0", "a.1", "b.0", "b"]),
    )


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (ActivationChange(), [1, 3, 6, 10, 10, 6, 3, 1]),
        (ActivationChange(factor=2.0), [2, 6, 12, 20, 20, 12, 6, 2]),
        (ActivationChange(("conv",), 0.0), [0, 2, 2, 6, 6, 2, 2, 0]),
        (ActivationChange(("conv",), 0.5, encoded=True), [1.5, 2.5, 7, 8, 8, 7, 2.5, 1.5]),
        (ActivationChange(("conv",), 1.0, encoded=True), [1, 3, 6, 10, 10, 6, 3, 1]),
        (ActivationChange(ahead=1), [1, 2, 3, 4, 7, 5, 3, 1]),
        (ActivationChange(ahead=2), [1, 3, 5, 7, 9, 6, 3, 1]),
        (ActivationChange(calls=("a",)), [1, 3, 6, 8, 8, 4, 3, 1]),
        (ActivationChange(calls=("",)), [1, 3, 6, 8, 10, 6, 3, 1]),
    ],
)
def test_what_is_held_after_a_change(change: ActivationChange, held: list[float]) -> None:
    """Sizes by kind; parked ones come one or two layers ahead; a call keeps only its input."""
    assert four().after((change,)).held(MOMENTS).tolist() == held


def test_of_what_a_call_wrote_its_output_stays() -> None:
    """Blocks that an allocator recorded: the last of a call is what others read."""
    blocks = [
        Block(begin, end, size, module)
        for begin, end, size, module in zip(
            range(4), range(7, 3, -1), (1.0, 2.0, 3.0, 4.0), ("", "a.x", "a.y", "b"), strict=True
        )
    ]
    stays = recorded_lifetimes(blocks)

    assert stays.held(MOMENTS).tolist() == [1, 3, 6, 10, 10, 6, 3, 1]
    changed = stays.after((ActivationChange(calls=("a",)),))
    assert changed.held(MOMENTS).tolist() == [1, 3, 6, 8, 8, 4, 3, 1]
    assert recorded_lifetimes(()).held(MOMENTS).tolist() == [0] * 8


def test_nothing_is_fetched_across_steps() -> None:
    """Two steps of two layers: the last of each stays."""
    stays = four((0, 0, 1, 1)).after((ActivationChange(ahead=1),))

    assert sorted(stays.size.tolist()) == [1, 1, 2, 3, 3, 4]


def test_a_call_is_no_prefix_of_a_name() -> None:
    """Module b is not bc."""
    stays = four()
    names = np.array(["bc", "bc", "b.x", "b.y"])
    changed = Lifetimes(stays.begin, stays.end, stays.size, stays.step, stays.kind, names)

    assert changed.after((ActivationChange(calls=("b",)),)).held(np.array([4])).tolist() == [10]
    assert changed.after((ActivationChange(calls=("bc",)),)).held(np.array([4])).tolist() == [8]


def test_without_backward_outputs_go_when_they_were_read() -> None:
    """Two products one after the other; the second output stays to the end of the step."""
    graph = literal(
        [("mm", "host", 0, 10, "forward"), ("mm", "host", 0, 10, "forward")],
        columns={"operator": [0, 1], "start_ns": [0, 10]},
        operators={
            "name": ["aten::mm"] * 2,
            "parent": [-1] * 2,
            "phase": ["forward"] * 2,
            "shapes": ["[[5,5],[5,2]]", "[[5,2],[2,2]]"],
        },
    )
    stays = find_lifetimes(graph, activations(graph))

    assert (stays.begin.tolist(), stays.end.tolist()) == ([0, 10], [10, 10])
