"""Which task of one recording is which of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.literal import literal
from foretrace.transforms.measured import match_tasks
from foretrace.transforms.measured.match_tasks import NONE

if TYPE_CHECKING:
    import pytest

    from foretrace.graph.model import Graph


def launches(*kernels: str) -> Graph:
    """Return a step in which each of *kernels* is launched; its call comes before it."""
    count = len(kernels)
    tasks = [("cudaLaunchKernel", "launch", 0, 5, "forward")] * count
    tasks += [(name, "kernel", 1, 10, "forward") for name in kernels]
    edges = [(at, count + at, "launch") for at in range(count)]
    return literal(tasks, edges)


def match(one: Graph, other: Graph) -> list[int]:
    """Return the counterparts of the tasks of *one*."""
    return match_tasks.match_tasks(one, other).tolist()


def test_equal_recordings_match_row_by_row() -> None:
    """Every task is itself."""
    graph = launches("gemm", "relu", "gemm")

    assert list(range(6)) == match(graph, graph)


def test_kernel_that_is_new_has_no_counterpart() -> None:
    """Nor does its call; those around it stay what they were."""
    before, after = launches("gemm", "softmax"), launches("gemm", "my_dropout", "softmax")

    assert match(before, after) == [0, 2, 3, 5]
    assert match(after, before) == [0, NONE, 1, 2, NONE, 3]


def test_kernel_of_the_same_class_takes_the_place_of_another() -> None:
    """A product in half precision is the product that it was; a reduction is none."""
    before = launches("volta_sgemm_128x64_nn", "reduce_kernel")
    after = launches("ampere_fp16_s16816gemm_fp16_128x64", "ampere_fp16_s16816gemm_fp16_64x64")

    assert match(before, after) == [0, NONE, 2, NONE]


def test_ranges_may_count_the_steps() -> None:
    """ProfilerStep#3 of one recording is ProfilerStep#9 of another."""
    one, other = (literal([(f"ProfilerStep#{number}", "host", 0, 5, None)]) for number in (3, 9))

    assert match(one, other) == [0]


def test_shorter_window_begins_again() -> None:
    """The third step is put beside the first of two."""
    three, two = (
        literal([("gemm", "kernel", 0, 9, None)] * steps, columns={"step": list(range(steps))})
        for steps in (3, 2)
    )

    assert match(three, two) == [0, 1, 0]
    assert match(two, three) == [0, 1]


def test_long_lists_are_matched_by_name_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the exact way takes too long, what is there as often is found all the same."""
    monkeypatch.setattr(match_tasks, "LONGEST", 1)
    match_tasks._align.cache_clear()
    before, after = launches("gemm", "softmax"), launches("gemm", "my_dropout", "softmax")

    assert match(before, after) == [0, 2, 3, 5]
    match_tasks._align.cache_clear()
