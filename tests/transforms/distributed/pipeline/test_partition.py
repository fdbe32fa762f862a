"""Where a model is cut: layers, balance, labels that contradict, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.distributed.pipeline.partition import HEAD, TAIL, balance, cut_model
from tests.support.jobs.layers import cpu_layers, gpu_layers
from tests.support.jobs.simple import gpu_job


def test_forward_and_backward_of_each_piece_are_parts() -> None:
    """HEAD 0, TAIL 1, then forward and backward of piece 0 (2, 3) and of piece 1 (4, 5)."""
    cut = cut_model(cpu_layers(("a", "b", "c"), load=9), 2)

    assert cut.begins == ("a", "b")
    assert cut.part.tolist() == [HEAD, 2, 4, 4, 5, 5, 3, TAIL]


def test_device_tasks_go_with_their_launch() -> None:
    """Every kernel has the part of the call that launched it."""
    cut = cut_model(gpu_layers(), 2)

    assert cut.part.tolist() == [2, 2, 4, 4, 5, 5, 3, 3, TAIL, TAIL]


def test_a_kernel_without_a_launch_goes_with_the_one_before_it() -> None:
    """The launch of the second kernel was not recorded."""
    graph = gpu_layers()
    launches = (graph.edges["kind"] == "launch").to_numpy()
    lost = np.flatnonzero(launches)[1]
    graph = replace(graph, edges=graph.edges.drop(index=lost).reset_index(drop=True))

    assert cut_model(graph, 2).part.tolist() == [2, 2, 4, 2, 5, 5, 3, 3, TAIL, TAIL]


@pytest.mark.parametrize(
    ("weights", "pieces", "begins"),
    [
        ([1, 1, 1, 1], 2, [0, 2]),
        ([5, 1, 1, 1], 2, [0, 1]),
        ([1, 1, 4, 1, 1], 3, [0, 2, 3]),
        ([1, 9], 2, [0, 1]),
        ([3], 1, [0]),
    ],
)
def test_the_longest_piece_is_as_short_as_can_be(
    weights: list[float], pieces: int, begins: list[int]
) -> None:
    """No piece is empty."""
    assert balance(np.array(weights, float), pieces) == begins


def test_a_slow_layer_has_a_stage_of_its_own() -> None:
    """Layers of 1, 1, 1 and 6."""
    graph = cpu_layers(("l.0", "l.1", "l.2", "l.3"))
    slow = (graph.tasks["module"] == "l.3").to_numpy()
    graph = replace(
        graph, tasks=graph.tasks.assign(work_ns=graph.tasks["work_ns"] * (1 + 5 * slow))
    )

    assert cut_model(graph, 2).begins == ("l.0", "l.3")


def test_modules_inside_a_numbered_one_are_one_layer() -> None:
    """blocks.0.mlp.fc is of blocks.0; head.fc of head."""
    cut = cut_model(cpu_layers(("blocks.0.mlp.fc", "blocks.0.norm", "blocks.1.mlp", "head.fc")), 3)

    assert cut.begins == ("blocks.0", "blocks.1", "head")


def test_the_model_around_its_layers_is_no_layer() -> None:
    """What runs before, between and after them goes with the layer before."""
    cut = cut_model(cpu_layers(("Net", "a", "Net", "b", "Net")), 2)

    assert cut.begins == ("a", "b")
    assert cut.part.tolist() == [2, 2, 2, 4, 4, 5, 5, 5, 3, 3, TAIL]


def test_the_user_may_name_where_to_cut() -> None:
    """Any module that runs, also inside a layer."""
    cut = cut_model(cpu_layers(("blocks.0.norm", "blocks.0.mlp", "blocks.1")), 2, ["blocks.0.mlp"])

    assert cut.begins == ("blocks.0", "blocks.0.mlp")
    assert cut.part.tolist() == [2, 4, 4, 5, 5, 3, TAIL]


def test_one_label_out_of_place_does_not_tear_a_piece_apart() -> None:
    """A gradient of the first layer that was accumulated early stays with the second."""
    modules = ["a", "b", "b", "a", "b", "b", "a", "a", None]
    phases = ["forward"] * 2 + ["backward"] * 6 + ["optimizer"]
    graph = literal(
        [(f"t{at}", "host", 0, 5, phase) for at, phase in enumerate(phases)],
        columns={"module": pd.Categorical(modules)},
    )

    assert cut_model(graph, 2).part.tolist() == [2, 4, 5, 5, 5, 5, 3, 3, TAIL]


@pytest.mark.parametrize(
    ("pieces", "cuts", "text"),
    [
        (4, None, "4 pieces, and the model has 3 layers \\(a, b, c\\); use fewer stages"),
        (2, ["d"], "no module 'd' runs in the forward pass"),
        (3, ["c", "b"], "are not in the order in which the modules run"),
        (2, ["a"], "are not in the order in which the modules run"),
        (2, ["b", "c"], "names 2 modules; 2 pieces have 1 cuts"),
    ],
)
def test_cuts_that_cannot_be_made_are_refused(
    pieces: int, cuts: list[str] | None, text: str
) -> None:
    """One sentence each, naming the layers."""
    with pytest.raises(TransformError, match=text):
        cut_model(cpu_layers(("a", "b", "c")), pieces, cuts)


def test_jobs_that_cannot_be_cut_are_refused() -> None:
    """No modules, no backward pass, a backward pass without modules, two passes per step."""
    graph = cpu_layers(("a", "b"))
    forward = graph.tasks["phase"] == "forward"
    unlabelled = graph.tasks["module"].where(forward)
    twice = literal(
        [(f"t{at}", "host", 0, 5, phase) for at, phase in
         enumerate(["forward", "forward", "backward", "backward"] * 2)],
        columns={"module": pd.Categorical(["a", "b", "b", "a"] * 2)},
    )  # fmt: skip
    no_backward = replace(
        graph, tasks=graph.tasks.assign(phase=graph.tasks["phase"].where(forward))
    )
    for job, text in (
        (gpu_job(), "names no modules"),
        (no_backward, "has no forward or no backward pass"),
        (replace(graph, tasks=graph.tasks.assign(module=unlabelled)), "backward pass of piece 0"),
        (twice, "'a' runs forward again after the backward pass has begun"),
    ):
        with pytest.raises(TransformError, match=text):
            cut_model(job, 2)
