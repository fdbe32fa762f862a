"""compile: which kernels become one, what that saves, and what the host no longer does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.testing import check_transform
from foretrace.transforms.compute.compile import ENTRY, WRAPPER, compile  # noqa: A004
from tests.support.jobs.simple import ADDCDIV, GEMM, NORM, RELU, SUM, cpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

FUSED = "triton_poi_fused (predicted)"


def kernels(*names: str, phase: str = "backward", work: int = 1_000_000) -> Graph:
    """Build one stream of kernels of *work* ns each."""
    return literal([(name, "kernel", 0, work, phase) for name in names])


def fused(graph: Graph) -> list[tuple[str, int]]:
    """Return name and work of what is left, in µs."""
    tasks = check_transform(compile, graph).tasks
    return [
        (str(n), round(w / 1_000)) for n, w in zip(tasks["name"], tasks["work_ns"], strict=True)
    ]


def test_what_one_kernel_hands_to_the_next_stays_in_registers() -> None:
    """Three kernels of two passes each: in backward two passes are left, in forward four."""
    backward = fused(kernels(GEMM, RELU, RELU, RELU))
    forward = fused(kernels(GEMM, RELU, RELU, RELU, phase="forward"))

    assert backward == [(GEMM, 1_000), (FUSED, 1_000)]
    assert forward == [(GEMM, 1_000), (FUSED, 2_000)]


def test_products_and_second_reductions_end_a_chain() -> None:
    """A norm takes element-wise neighbours in; the sum after it is a kernel of its own."""
    names = [name for name, _ in fused(kernels(GEMM, RELU, NORM, SUM, RELU, GEMM, RELU))]

    assert names == [GEMM, FUSED, FUSED, GEMM, RELU]


def test_casts_and_copies_are_fused() -> None:
    """They are element-wise kernels by another name; a concatenation is none."""
    cast = "elementwise_kernel<128, 4, gpu_kernel_impl<direct_copy_kernel_cuda(float)>>"
    names = [name for name, _ in fused(kernels(GEMM, RELU, cast, RELU, "CatArrayBatchedCopy"))]

    assert names == [GEMM, FUSED, "CatArrayBatchedCopy"]


def test_the_optimizer_is_not_compiled() -> None:
    """Its element-wise kernels stay as they are."""
    graph = literal(
        [(GEMM, "kernel", 0, 9_000, "backward"), (RELU, "kernel", 0, 9_000, "backward")]
        + [(ADDCDIV, "kernel", 0, 9_000, "optimizer")] * 2
    )

    assert [name for name, _ in fused(graph)] == [GEMM, RELU, ADDCDIV, ADDCDIV]


def test_the_host_launches_what_is_left_from_generated_code() -> None:
    """A ms of dispatch becomes two entries and two calls with their wrappers."""
    tasks = [("aten::relu", "host", 0, 1_000_000, "forward")]
    tasks += [("cudaLaunchKernel", "launch", 0, 5_000, "forward")] * 3
    tasks += [(name, "kernel", 1, 50_000, "forward") for name in (GEMM, RELU, RELU)]
    edges = [(1, 4, "launch"), (2, 5, "launch"), (3, 6, "launch")]
    graph = literal(tasks, edges, platform=Platform(launch_ns=5_000))

    changed = check_transform(compile, graph)

    host = changed.tasks["work_ns"][changed.tasks["lane"] == 0].sum()
    assert host == pytest.approx(2 * (5_000 + WRAPPER.value) + 2 * ENTRY.value, abs=5)


def test_what_takes_longer_than_any_dispatch_stays() -> None:
    """Such as loading a library in the first step."""
    tasks = [("aten::relu", "host", 0, 3_000_000, "forward")]
    tasks += [("aten::relu", "host", 0, 300_000, "forward")] * 3
    tasks += [(name, "kernel", 1, 50_000, "forward") for name in (GEMM, RELU)]

    changed = compile(literal(tasks, []))

    work = changed.tasks["work_ns"][changed.tasks["kind"] == "host"].tolist()
    assert work == [3_000_000] + [round(2 * ENTRY.value / 3)] * 3


def test_a_host_without_dispatch_saves_none() -> None:
    """Where calls alone take less than generated code would, they stay."""
    changed = compile(kernels(GEMM, RELU, RELU))

    assert changed.notes[0] == "compile: the host has little dispatch to save"


def test_a_compiled_job_is_refused() -> None:
    """Its kernels are called triton_ already."""
    with pytest.raises(TransformError, match="runs compiled kernels already"):
        compile(compile(kernels(GEMM, RELU, RELU)))


def test_a_cpu_job_is_predicted_to_stay() -> None:
    """One measured model became faster, two slower: nothing is promised, and the reason given."""
    changed = check_transform(compile, cpu_job())

    assert changed.tasks.equals(cpu_job().tasks)
    assert changed.notes[0].startswith("compile: on a CPU no change is predicted")
