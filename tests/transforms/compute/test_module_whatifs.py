"""faster_modules, remove_modules, replace_kernel: what is selected and what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.testing import check_transform
from foretrace.transforms.compute.faster_modules import faster_modules
from foretrace.transforms.compute.remove_modules import parameter_share, remove_modules
from foretrace.transforms.compute.replace_kernel import replace_kernel
from tests.support.jobs.modules import two_blocks
from tests.support.jobs.simple import GEMM, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def test_a_faster_module_computes_faster_with_all_inside() -> None:
    """blocks.1 is not blocks.10; its backward takes part, the update does not."""
    changed = check_transform(faster_modules, two_blocks(), pattern="blocks.1", speedup=2)

    assert changed.tasks["work_ns"].tolist() == [50, 50, 100, 100, 50, 100, 100]


def test_on_an_accelerator_the_kernels_change() -> None:
    """Launches cost what they did."""
    tasks = [("cudaLaunchKernel", "launch", 0, 50, "forward"), (GEMM, "kernel", 1, 80, "forward")]
    graph = literal(
        tasks, [(0, 1, "launch")], columns={"module": pd.Categorical(["blocks.0.mlp"] * 2)}
    )

    changed = check_transform(faster_modules, graph, pattern="mlp", speedup=4)

    assert changed.tasks["work_ns"].tolist() == [50, 20]


def test_removed_modules_take_their_share_of_the_update_along() -> None:
    """Three quarters of the gradients' bytes are theirs, so a quarter of the update is left."""
    changed = check_transform(remove_modules, two_blocks(), pattern="blocks.1")

    assert changed.tasks["name"].tolist() == ["mm", "loss", "loss backward", "adam"]
    assert changed.tasks["work_ns"].tolist() == [100, 100, 100, 25]
    assert sorted(changed.edges[["src", "dst"]].to_numpy().tolist()) == [[0, 1], [1, 2], [2, 3]]
    assert changed.notes[0].endswith("are gone; the optimizer has 75% less to update")


def test_an_update_of_unknown_shares_stays() -> None:
    """Without the gradients' shapes nothing is guessed."""
    graph = literal(
        [("mm", "host", 0, 100, "forward"), ("adam", "host", 0, 100, "optimizer")],
        columns={"module": pd.Categorical(["head", None])},
    )

    changed = remove_modules(graph, pattern="head")

    assert parameter_share(graph, ["head"]) is None
    assert changed.tasks["work_ns"].tolist() == [100]
    assert changed.notes[0].endswith("their share of the optimizer's work is unknown and stays")


@pytest.mark.parametrize(
    ("graph", "pattern", "message"),
    [
        (gpu_job(), "mlp", "this trace names no modules; record it with foretrace record"),
        (
            two_blocks(),
            "decoder",
            "no module matching 'decoder' in this graph; closest modules: head",
        ),
        (two_blocks(), "[", r"pattern='\[' is no regular expression"),
    ],
)
def test_modules_that_are_not_there_are_an_error(graph: Graph, pattern: str, message: str) -> None:
    """The text says what to do."""
    with pytest.raises(TransformError, match=message):
        faster_modules(graph, pattern=pattern, speedup=2)


def test_a_replaced_kernel_takes_what_the_user_says() -> None:
    """Every kernel of that name, whatever it took."""
    changed = check_transform(replace_kernel, gpu_job(steps=1), pattern="gemm", duration_us=2.5)

    assert changed.tasks["work_ns"][changed.tasks["name"] == GEMM].tolist() == [2_500, 2_500]


@pytest.mark.parametrize(
    ("duration", "message"),
    [(0, "duration_us=0 is out of range"), (1e300, "more than 115 days"), ("3", "is no number")],
)
def test_a_kernel_takes_some_time(duration: float, message: str) -> None:
    """Nothing, for ever, and text are refused."""
    with pytest.raises(TransformError, match=message):
        replace_kernel(gpu_job(), pattern="gemm", duration_us=duration)
