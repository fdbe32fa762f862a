"""activation_checkpoint: what is computed again, where, and what it costs beside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.graph.state import MEMORY_PARTS, ActivationChange
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.costs.memory_curve import memory_curve
from foretrace.transforms.memory.activation_checkpoint import (
    SAVED_TENSOR,
    SEGMENT,
    activation_checkpoint,
    blocks,
)
from tests.support.jobs.simple import gpu_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

MODULES = ["layers.0.fc", "layers.0.act", "layers.1.fc", "head", "head", "layers.1", "layers.0.fc"]


def two_layers(modules: Sequence[str | None] = MODULES) -> Graph:
    """Build forward and backward of two layers and a head on one thread, 10 ns between tasks."""
    tasks = [
        ("mm 0", "host", 0, 100, "forward"),
        ("relu 0", "host", 0, 20, "forward"),
        ("mm 1", "host", 0, 300, "forward"),
        ("loss", "host", 0, 50, "forward"),
        ("loss backward", "host", 0, 50, "backward"),
        ("mm backward 1", "host", 0, 600, "backward"),
        ("mm backward 0", "host", 0, 200, "backward"),
    ]
    return literal(tasks, columns={"module": pd.Categorical(modules)}, lag_ns=10, wrap=True)


def order(graph: Graph, lane: int = 0) -> list[str]:
    """Return the names of a lane's tasks in the order of its chain."""
    edges = graph.edges[
        graph.edges["kind"].isin(["thread", "stream"]) & (graph.edges["shift"] == 0)
    ]
    ahead = dict(zip(edges["src"], edges["dst"], strict=True))
    mine = set(graph.tasks.index[graph.tasks["lane"] == lane])
    now = next(row for row in sorted(mine) if row not in set(ahead.values()))
    found = [now]
    while found[-1] in ahead:
        found.append(ahead[found[-1]])
    return graph.tasks["name"].iloc[found].tolist()


def test_each_block_is_computed_again_just_before_its_backward() -> None:
    """The head is no block; the gap between two recomputed operators is kept."""
    before = two_layers()

    changed = check_transform(activation_checkpoint, before)

    assert order(changed) == [
        *("mm 0", "relu 0", "mm 1", "loss", "loss backward"),
        *("checkpoint (predicted)", "mm 1", "mm backward 1"),
        *("checkpoint (predicted)", "mm 0", "relu 0", "mm backward 0"),
    ]
    extra = replay(changed).step_ns - replay(before).step_ns
    assert extra == 2 * SEGMENT.value + 100 + 10 + 20 + 300


def test_every_tensor_that_is_kept_goes_through_hooks() -> None:
    """A linear keeps two and counts once, whatever it calls; a ReLU keeps one, a view none."""
    names = ["aten::linear", "aten::addmm", "aten::relu", "aten::view"]
    graph = literal(
        [(name, "host", 0, 50, "forward") for name in names]
        + [("AddmmBackward0", "host", 0, 90, "backward")],
        columns={"module": pd.Categorical(["fc"] * 5), "operator": [0, 1, 2, 3, -1]},
        operators={"name": names, "parent": [-1, 0, -1, -1]},
    )

    changed = activation_checkpoint(graph, modules="fc")

    once = changed.tasks[changed.tasks["name"] == "checkpoint (predicted)"]
    assert once["work_ns"].tolist() == [SEGMENT.value + 3 * SAVED_TENSOR.value]


def test_the_modules_can_be_named() -> None:
    """A pattern takes whole parts of a path: both layers together are one call each."""
    changed = activation_checkpoint(two_layers(), modules="layers.1")

    assert order(changed).count("mm 1") == 2
    assert order(changed).count("mm 0") == 1


def test_without_modules_the_whole_forward_is_repeated() -> None:
    """A public trace names no modules; its forward pass is one call."""
    changed = check_transform(activation_checkpoint, two_layers([None] * 7))

    again = ["checkpoint (predicted)", "mm 0", "relu 0", "mm 1", "loss", "loss backward"]
    assert order(changed)[4:10] == again


def test_kernels_are_launched_again_on_the_backward_thread() -> None:
    """Three forward kernels run once more per step, before the first backward kernel."""
    before = gpu_job(steps=2)

    changed = check_transform(activation_checkpoint, before)

    kernels = changed.tasks[changed.tasks["kind"] == "kernel"]
    assert len(kernels) == (before.tasks["kind"] == "kernel").sum() + 2 * 3
    new = changed.tasks.iloc[len(before.tasks) :]
    assert new["phase"].unique().tolist() == ["backward"]
    launches = changed.edges[changed.edges["kind"] == "launch"]
    assert launches["dst"].is_unique
    assert set(new.index[new["kind"] == "kernel"]) <= set(launches["dst"])


def products(modules: Sequence[str]) -> Graph:
    """Build four products on inputs of 100 B, forward and backward."""
    phases = ["forward"] * 4 + ["backward"] * 4
    names = [f"mm {i}" for i in (0, 1, 2, 3, 3, 2, 1, 0)]
    return literal(
        [(name, "host", 0, 100, phase) for name, phase in zip(names, phases, strict=True)],
        columns={
            "module": pd.Categorical([*modules, *modules[::-1]]),
            "operator": [0, 1, 2, 3, -1, -1, -1, -1],
            "start_ns": [100 * i for i in range(8)],
        },
        operators={
            "name": ["aten::mm"] * 4,
            "parent": [-1] * 4,
            "phase": ["forward"] * 4,
            "shapes": ["[[5,5],[5,2]]"] * 4,
        },
        lag_ns=10,
        wrap=True,
    )


def test_only_one_block_is_kept_at_a_time() -> None:
    """Inputs of both blocks, and while a block's backward runs all else of it.

    What an operator has just read goes as the next one begins.
    """
    graph = products(["layers.0.a", "layers.0.b", "layers.1.a", "layers.1.b"])
    curve = memory_curve(graph)

    assert curve is not None
    before, after = (
        each.held[:8, MEMORY_PARTS.index("activations")].tolist()
        for each in (curve, curve.after(activation_checkpoint(graph).state))
    )
    assert before == [100, 200, 300, 400, 400, 300, 200, 100]
    assert after == [100, 200, 300, 300, 300, 200, 200, 100]


def test_without_modules_the_network_is_one_block() -> None:
    """Everything comes back at once."""
    graph = activation_checkpoint(two_layers([None] * 7))

    assert graph.state.kept_activations == (ActivationChange(calls=("",)),)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("decoder", "no module matching 'decoder' in this graph; closest modules: head"),
        ("(", r"pattern='\(' is no regular expression"),
    ],
)
def test_a_pattern_that_finds_nothing_is_an_error(modules: str, message: str) -> None:
    """The text names modules that there are."""
    with pytest.raises(TransformError, match=message):
        activation_checkpoint(two_layers(), modules=modules)


def test_a_network_without_blocks_needs_names() -> None:
    """Nothing repeats, so nothing is chosen for the user."""
    with pytest.raises(TransformError, match="has no repeated blocks; name what to checkpoint"):
        activation_checkpoint(two_layers(["stem"] * 3 + ["head"] * 2 + ["stem"] * 2))


def test_inference_has_nothing_to_checkpoint() -> None:
    """Without a backward pass nothing is computed again."""
    graph = two_layers()
    forward = replace(graph, tasks=graph.tasks.assign(phase=pd.Categorical(["forward"] * 7)))

    with pytest.raises(TransformError, match="no backward task"):
        activation_checkpoint(forward)


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["stem", "stem.0", "stem.1", "blocks.0.a", "blocks.1.a"], ["blocks.0", "blocks.1"]),
        (["layer1", "layer1.0.a", "layer1.1.a", "fc"], ["layer1.0", "layer1.1"]),
        (["stages.0.0.a", "stages.0.1.a", "stages.1.0.a"], ["stages.0", "stages.1"]),
        (["head", "head.0", "head.1"], []),
        (["h.0.a", "h.10.a", "h.2.a"], ["h.0", "h.10", "h.2"]),
    ],
)
def test_blocks_are_the_parts_of_the_outermost_lists(paths: list[str], found: list[str]) -> None:
    """A list never runs itself; a sequence counts where its parts hold modules."""
    assert blocks(paths) == found
