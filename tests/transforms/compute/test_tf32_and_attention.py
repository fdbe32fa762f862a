"""TF32 and fused attention: what each edits in small graphs, what it refuses, and real chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.compute.device import device
from foretrace.transforms.compute.flash_attention import find_chains, flash_attention
from foretrace.transforms.compute.tf32 import tf32
from foretrace.transforms.costs.devices import device_named
from foretrace.transforms.costs.kernels import Kernels
from tests.support.jobs.kernels import (
    BACKWARD_CHAIN,
    BF16,
    CHAIN,
    CONV,
    GRADIENT,
    MASK,
    SGEMM,
    SOFTMAX,
    TENSOR,
    launching,
)
from tests.support.jobs.simple import cpu_job

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph

EXP, SUM = "vectorized_elementwise_kernel<4, exp_kernel_cuda>", "reduce_kernel<512, 1, sum_functor>"
DIV, NEG = "elementwise_kernel<128, 2, DivFunctor<float>>", "elementwise_kernel<4, neg_kernel_cuda>"
LOSS = "cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>"


def kernels(graph: Graph) -> list[tuple[str, int, str]]:
    """Return name, time and cost label of the kernels, in stream order."""
    rows = graph.tasks[graph.tasks["kind"] == "kernel"].sort_values("start_ns", kind="stable")
    return [(str(r.name_), int(r.work_ns), str(r.cost)) for r in _named(rows)]


def _named(rows: Any) -> Any:
    return rows.rename(columns={"name": "name_"}).itertuples(index=False)


def test_products_and_convolutions_gain_tf32() -> None:
    """Half of the share that products reach: 16.6 against 67.1 TFLOP/s above the floor.

    A convolution in NCHW takes 0.23 more, on a memory of 2039 GB/s.
    """
    changed = kernels(
        tf32(launching(("forward", [SGEMM, CONV, "splitKreduce_kernel<float>", MASK])))
    )

    assert changed[0][1] == pytest.approx(5_600 + 94_400 * 0.2471, abs=5)
    assert changed[1][1] == pytest.approx(5_600 + 94_400 * 0.2471 * 1.2288, abs=5)
    assert [c[1:] for c in changed[2:]] == [(100_000, "recorded")] * 2
    assert changed[0][2] == "table"


def test_what_the_library_left_in_fp32_stays() -> None:
    """Products in TF32 show that it is on for them; convolutions have a switch of their own."""
    changed = kernels(tf32(launching(("forward", [TENSOR, SGEMM, CONV]))))

    assert [c[1] for c in changed[:2]] == [100_000, 100_000]
    assert changed[2][1] < 50_000


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (
            launching(("forward", [TENSOR, SGEMM])),
            "nothing to change: no product or convolution in fp32",
        ),
        (
            launching(("forward", [SGEMM]), device="Tesla V100-SXM2-32GB"),
            "V100-SXM2 does not use TF32",
        ),
        (launching(("forward", [SGEMM]), device="AMD Instinct MI300X"), "MI300X does not use TF32"),
        (
            launching(("forward", [SGEMM]), device="Abacus"),
            "needs a job recorded on a GPU of the table",
        ),
        (cpu_job(), "needs a job recorded on a GPU of the table"),
    ],
)
def test_tf32_refuses(graph: Graph, text: str) -> None:
    """The text says what was looked for, or which devices have it."""
    with pytest.raises(TransformError, match=text):
        tf32(graph)


def test_a_chain_becomes_one_kernel() -> None:
    """Both passes: the products' work runs fused, the softmax, its launches and host time go."""
    graph = launching(("forward", [MASK, *CHAIN, MASK]), ("backward", BACKWARD_CHAIN))
    changed = flash_attention(graph)
    found = kernels(changed)

    assert [name for name, _, _ in found] == [
        MASK, "flash2 attention (predicted)", MASK, "flash2 attention (predicted)"
    ]  # fmt: skip
    forward, backward = found[1][1], found[3][1]
    assert 12_000 < forward < 200_000
    assert backward - 12_000 == pytest.approx(2 * 1.25 * (forward - 12_000), abs=2)
    assert (changed.tasks["kind"] == "launch").sum() == 4
    assert (changed.tasks["kind"] == "host").sum() == 4


def test_a_causal_mask_halves_the_work() -> None:
    """Only what is above the floor."""
    full, half = (
        kernels(flash_attention(launching(("forward", CHAIN)), causal=causal))[0][1]
        for causal in (False, True)
    )

    assert half - 12_000 == pytest.approx((full - 12_000) / 2, abs=1)


def test_a_softmax_of_ones_own_is_found() -> None:
    """An exponential and a sum in forward; a division, a negation and a sum in backward."""
    passes = ("forward", [BF16, EXP, SUM, DIV, BF16]), ("backward", [BF16, BF16, DIV, NEG, SUM])
    graph = launching(passes[0], ("backward", [*passes[1][1], BF16, BF16]))
    chains = find_chains(Kernels(graph))

    assert [(len(chain.matmuls), len(chain.kernels)) for chain in chains] == [(2, 5), (4, 7)]
    assert [chain.is_backward for chain in chains] == [False, True]


@pytest.mark.parametrize(
    "passes",
    [
        [("forward", [BF16, LOSS, BF16])],
        [("forward", [BF16, SOFTMAX]), ("backward", [BF16])],
        [("forward", [BF16, SOFTMAX, "topk_kernel<float>", BF16])],
        [("forward", [BF16, MASK, BF16])],
        [("forward", [BF16, *[MASK] * 30, SOFTMAX, BF16])],
        [("backward", [BF16, GRADIENT, BF16, BF16])],
    ],
)
def test_what_only_looks_like_attention_stays(passes: list[tuple[str, list[str]]]) -> None:
    """Losses, routers, activations, and half of a backward pass are no attention."""
    assert find_chains(Kernels(launching(*passes))) == []
    with pytest.raises(TransformError, match="nothing to change: no chain of product, softmax"):
        flash_attention(launching(*passes))


def test_an_older_fused_kernel_changes_by_the_shares() -> None:
    """On A100 FlashAttention reaches 33 %, FlashAttention-2 53 % of the peak."""
    graph = launching(("forward", ["pytorch_fmha::fmha_fwd_loop_kernel<__nv_bfloat16>"]))
    ((_, work, cost),) = kernels(flash_attention(graph))

    assert work == pytest.approx(100_000 * 0.33 / 0.53, abs=1)
    assert cost == "table"


@pytest.mark.parametrize(
    ("graph", "kind", "text"),
    [
        (launching(("forward", [SGEMM, SOFTMAX, SGEMM])), "flash2", "16-bit inputs"),
        (launching(("forward", CHAIN)), "flash4", "kind='flash4' is unknown"),
        (launching(("forward", CHAIN)), "flash3", "'flash3' does not run on A100-SXM4-80GB"),
        (launching(("forward", CHAIN), device="Tesla V100-SXM2"), "flash2", "try 'mem_efficient'"),
        (cpu_job(), "flash2", "needs a job recorded on a GPU of the table"),
    ],
)
def test_flash_attention_refuses(graph: Graph, kind: str, text: str) -> None:
    """fp32 inputs, an unknown library, and devices that it does not run on."""
    with pytest.raises(TransformError, match=text):
        flash_attention(graph, kind=kind)


ATTENTION = [SGEMM, "softmax_warp_forward<float>", SGEMM]
FUSED_FP32 = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)"


def test_after_amp_products_are_in_16_bits() -> None:
    """Kernels keep their fp32 names: attention can be fused, TF32 finds nothing to move."""
    graph = launching(("forward", ATTENTION), work=1_000_000)
    mixed = amp(graph)

    with pytest.raises(TransformError, match="put amp before it"):
        flash_attention(graph)
    assert "flash2 attention (predicted)" in [n for n, _, _ in kernels(flash_attention(mixed))]
    with pytest.raises(TransformError, match="nothing to change: no product or convolution"):
        tf32(mixed)


def test_amp_has_changed_fused_attention_already() -> None:
    """To the library that it names; another one changes it by the ratio of their shares."""
    mixed = amp(launching(("forward", [SGEMM, FUSED_FP32])), attention="flash1")
    before = next(work for name, work, _ in kernels(mixed) if name == FUSED_FP32)
    after = next(work for name, work, _ in kernels(flash_attention(mixed)) if name == FUSED_FP32)

    assert after == pytest.approx(before * 0.33 / 0.53, abs=1)
    with pytest.raises(TransformError, match="no fused attention slower than flash1"):
        flash_attention(mixed, kind="flash1")


def test_another_device_takes_products_as_amp_left_them() -> None:
    """Tensor cores of both: bf16 peaks and shares, not those of fp32."""
    mixed = amp(launching(("forward", [SGEMM]), work=100_000_000))
    old, new = (device_named(name).figures for name in ("A100-SXM4-80GB", "H100-SXM5"))
    peak = [each["bf16_tflops"] * each["matrix_share"] for each in (old, new)]
    before, after = (
        next(work for name, work, _ in kernels(each) if name == SGEMM)
        for each in (mixed, device(mixed, name="H100"))
    )

    assert after == pytest.approx(before * peak[0] / peak[1], rel=0.01)


@pytest.mark.slow
def test_every_layer_of_a_real_transformer_is_found(public_traces: Path) -> None:
    """Twelve layers, six recorded steps, forward and backward; its softmax is the model's own."""
    graph = build(load(public_traces / "cs336-transformer-lm/a100pcie_amp-bf16.sqlite.gz"))
    chains = find_chains(Kernels(graph))

    assert len(chains) == 2 * 12 * graph.steps
    assert sum(chain.is_backward for chain in chains) == 12 * graph.steps
