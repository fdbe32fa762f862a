"""Sizes of parameters from the grids of an optimizer's kernels."""

from __future__ import annotations

import pytest

from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.tracer.readers.load import load
from foretrace.transforms.costs.update_sizes import UpdateSizes, read_update_sizes
from tests.support.paths import public_trace

MULTIPLY = "vectorized_elementwise_kernel<4, MulFunctor>"
ADD = "vectorized_elementwise_kernel<4, AddFunctor>"
FOREACH = "multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2>>"


def sizes(kernels: list[tuple[str, int]], tensors: int | None = None) -> UpdateSizes | None:
    """Return the sizes of an update by kernels of so many blocks of 128 threads."""
    rows = [(name, "kernel", 0, 100, "optimizer") for name, _ in kernels]
    columns = {"blocks": [n for _, n in kernels], "block_threads": [128] * len(kernels)}
    return read_update_sizes(literal(rows, columns=columns), tensors)


def test_each_elementwise_kernel_tells_a_parameter() -> None:
    """Four elements a thread; a kernel that runs twice per parameter does not count twice."""
    kernels = [(MULTIPLY, 10), (ADD, 10), (ADD, 10), (MULTIPLY, 3), (ADD, 3), (ADD, 3)]

    assert sizes(kernels) == UpdateSizes((5_120, 1_536), 4, is_sum=False)


def test_chunks_of_a_multi_tensor_kernel_tell_the_sum() -> None:
    """Every parameter leaves three quarters of a chunk empty."""
    assert sizes([(FOREACH, 300)], tensors=40) == UpdateSizes((270 * 65_536,), 4, is_sum=True)


def test_gradients_set_to_zero_are_no_update() -> None:
    """Filling touches every gradient, and is there without an update too."""
    assert sizes([("vectorized_elementwise_kernel<4, FillFunctor<float>>", 10)]) is None


@pytest.mark.parametrize(
    ("name", "tensors", "mb", "within"),
    [
        ("nersc-sc21-unet/dali.sqlite.gz", None, 467.91, 1e-4),
        ("nersc-sc21-unet/4gpu_ddp_bucket100.sqlite.gz", None, 467.91, 0.01),
        ("hta/resnet50_ddp_v100_ws1_rank0.json.gz", 161, 102.23, 0.01),
        ("triosim/vgg13_h100_bs512_adam_iter41.json.gz", 26, 532.19, 0.01),
    ],
)
def test_public_recordings(name: str, tensors: int | None, mb: float, within: float) -> None:
    """As the copies of the same job's DDP run, or the shapes of the model, say."""
    found = read_update_sizes(build(load(public_trace(name))), tensors)

    assert found is not None
    assert sum(found.elements) * found.width / 1e6 == pytest.approx(mb, rel=within)
