"""Mixed precision: factors by class, inserted casts and scaler, and a CPU that gets slower."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.tracer.trace import Device
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.costs.devices import find_device
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.rules import attention_speedup, best, matrix_speedup, streaming_ns
from tests.support.jobs.simple import META, cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

A100 = find_device("A100")
V100 = find_device("V100")


def kernel(name: str, phase: str = "forward", device: str = "A100") -> Graph:
    """Build one long kernel beside a TF32 product, on *device*."""
    graph = literal(
        [("s1688gemm", "kernel", 0, 1_000_000, "forward"), (name, "kernel", 0, 1_000_000, phase)]
    )
    return replace(graph, meta=replace(META, devices=(Device(0, device),)))


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("ampere_sgemm_128x64_tn", 500_000),
        ("relu elementwise<float>", 750_000),
        ("reduce_kernel<float>", 750_000),
        ("cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", 600_000),
        ("vectorized_layer_norm_kernel<float>", 1_000_000),
        ("nchwToNhwcKernel<float>", 1_000_000),
        ("softmax_warp_forward<float>", 1_000_000),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", 144_654),
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::Half>>", 1_000_000),
    ],
)
def test_each_class_has_its_factor(name: str, work: int) -> None:
    """On an A100 whose job uses TF32 already."""
    changed = amp(kernel(name)).tasks

    assert changed["work_ns"].tolist()[:2] == [500_000, work]


def test_the_update_and_other_streams_stay() -> None:
    """Optimizer kernels and those of streams without products keep their time."""
    graph = kernel("mul elementwise<float>", "optimizer")
    tasks = [(*row, "forward") for row in (("s1688gemm", "kernel", 0, 9_000),)]
    apart = literal([*tasks, ("relu elementwise<float>", "kernel", 1, 9_000, None)])

    assert amp(graph).tasks["work_ns"].tolist()[1] == 1_000_000
    assert amp(apart).tasks["work_ns"].tolist()[1] == 9_000


def test_tensor_cores_gain_more_where_there_is_no_tf32() -> None:
    """V100: 125 against 15.7 TFLOP/s, of which tensor cores reach half; Winograd already saves."""
    assert matrix_speedup("fp32", "fp16", V100, uses_tf32=False).factor == pytest.approx(3.98, 0.01)
    assert matrix_speedup("fp32", "fp16", V100, uses_tf32=True).factor == 2
    name = "cudnn::winograd_nonfused::winograd<float>"
    graph = literal([(name, "kernel", 0, 1_000_000, "forward")])
    graph = replace(graph, meta=replace(META, devices=(Device(0, "Tesla V100-SXM2"),)))

    with pytest.raises(TransformError, match="V100-SXM2 has no bf16 units; use dtype='fp16'"):
        amp(graph)


def test_the_attention_generation_is_a_parameter() -> None:
    """The stack of P13 had the first flash attention: 1.6 times slower than the second."""
    first, second = (attention_speedup(kind, "bf16", A100).factor for kind in ("flash1", "flash2"))

    assert first == pytest.approx(4.30, abs=0.01)
    assert second / first == pytest.approx(1.6, abs=0.01)
    assert attention_speedup("flash2", "fp16", V100) == attention_speedup(
        "mem_efficient", "fp16", V100
    )
    assert attention_speedup("flash2", "bf16", None).source == "prior"


def test_casts_come_with_launches() -> None:
    """One weight and one bias cast per product each way, three around the layer norm."""
    graph = gpu_job(steps=1)
    changed = check(amp(graph))
    casts = changed.tasks["name"] == "autocast copy (predicted)"

    assert casts.sum() == 2 + 2 + 3
    assert (changed.tasks["kind"] == "launch").sum() == (graph.tasks["kind"] == "launch").sum() + 7
    assert set(classes(changed.tasks["name"])[casts]) == {"copy"}


def test_fp16_waits_for_the_scaler_once_per_step() -> None:
    """A blocking 4-byte download before the update, after the gradients are unscaled."""
    changed = check(amp(gpu_job(steps=2), dtype="fp16"))
    blocking = changed.tasks[changed.tasks["wait"] == "own"]
    copies = changed.tasks[changed.tasks["kind"] == "memcpy"]

    assert len(blocking) == len(copies) == 2
    assert copies["bytes"].tolist() == [4.0, 4.0]
    assert changed.tasks["name"].str.contains("unscale").sum() == 2
    assert replay(changed).step_ns > 0
    assert "amp: the gradient scaler waits for the device once per step" in changed.notes


def test_without_an_optimizer_phase_there_is_no_scaler() -> None:
    """A note says so; inference needs none."""
    changed = amp(kernel("relu<float>"), dtype="fp16")

    assert not changed.tasks["name"].str.contains("unscale").any()
    assert "the gradient scaler is left out" in " ".join(changed.notes)


def test_a_job_in_16_bits_is_refused() -> None:
    """One small fp32 product left behind is no reason to predict a gain."""
    names = [("ampere_bf16_s16816gemm", 990_000), ("s1688gemm", 10_000)]
    graph = literal([(name, "kernel", 0, work, "forward") for name, work in names], meta=META)

    with pytest.raises(TransformError, match=r"no more than 1\.0% of the time of matrix products"):
        amp(graph)


OPERATORS = ("aten::mm", "aten::bmm", "aten::exp", "aten::relu", "aten::sum", "aten::sum")


def test_the_operator_decides_what_sees_16_bits() -> None:
    """Autocast keeps exponentials and forward sums in fp32; batched products cast no weight."""
    names = (
        "s1688gemm",
        "s1688gemm",
        "exp<float>",
        "relu<float>",
        "reduce<float>",
        "reduce<float>",
    )
    phases = ["forward"] * 5 + ["backward"]
    graph = literal(
        [(n, "kernel", 0, 1_000_000, p) for n, p in zip(names, phases, strict=True)],
        columns={"operator": range(6)},
        operators={"name": OPERATORS, "parent": [-1] * 6},
        meta=replace(META, devices=(Device(0, "A100"),)),
    )
    changed = amp(graph).tasks

    halved, three_quarters = 500_000, 750_000
    assert changed["work_ns"].tolist()[:6] == [
        halved,
        halved,
        1_000_000,
        three_quarters,
        1_000_000,
        three_quarters,
    ]
    assert len(changed) == 6 + 2  # weight and, as a reduction runs in backward, bias


def test_kernels_of_one_convolution_cast_its_weight_once() -> None:
    """Three kernels of one operator, no reduction in backward, so no bias."""
    names = ("winogradForwardData<float>", "volta_sgemm", "winogradForwardOutput<float>")
    graph = literal(
        [(n, "kernel", 0, 1_000_000, "forward") for n in names],
        columns={"operator": [0, 0, 0]},
        operators={"name": ["aten::cudnn_convolution"], "parent": [-1]},
        meta=META,
    )

    assert len(amp(graph).tasks) == 4


def test_a_job_in_16_bits_has_nothing_to_gain() -> None:
    """The error says what was looked for."""
    with pytest.raises(TransformError, match="no fp32 or TF32 matrix product"):
        amp(literal([("ampere_bf16_s16816gemm_bf16", "kernel", 0, 10, "forward")]))


def test_amp_is_applied_once() -> None:
    """Kernels keep their names, yet a second amp finds nothing to change."""
    graph = amp(literal([("cutlass_80_tensorop_s1688gemm", "kernel", 0, 400_000, "forward")]))

    with pytest.raises(TransformError, match="applied to this job already"):
        amp(graph)


def test_a_cpu_without_fast_bf16_gets_slower() -> None:
    """Products take 140/84 times as long, casts come on top, element-wise work gains a quarter."""
    graph = cpu_job(steps=1)
    changed = check(amp(graph))
    work = dict(zip(changed.tasks["name"], changed.tasks["work_ns"], strict=False))

    assert work["aten::addmm"] == 166_667
    assert work["aten::relu"] == 75_000
    assert work["aten::addcdiv_"] == 100_000
    assert work["autocast copy (predicted)"] == 2_458
    assert replay(changed).step_ns > replay(graph).step_ns


def test_a_cpu_needs_its_probe() -> None:
    """Without rates there is no prediction, and fp16 is not for CPUs."""
    graph = cpu_job()
    with pytest.raises(TransformError, match="needs the machine's fp32, bf16 and copy rates"):
        amp(replace(graph, meta=META))
    with pytest.raises(TransformError, match="dtype='fp16' is not supported on a CPU"):
        amp(graph, dtype="fp16")


def test_a_cpu_job_without_shapes_or_operators_still_scales() -> None:
    """Names alone tell products; weights are unknown, so no cast is counted."""
    graph = literal([("aten::mm", "host", 0, 100_000, "forward")], meta=cpu_job().meta)
    backward = replace(cpu_job(steps=1), edges=cpu_job(steps=1).edges)
    forward_only = backward.tasks.assign(phase=["forward"] * 6)
    only = amp(replace(backward, tasks=forward_only.astype({"phase": "category"})))

    assert amp(graph).tasks["work_ns"].tolist() == [166_667]
    assert (only.tasks["name"] == "autocast copy (predicted)").sum() == 2


def test_the_best_known_source_wins() -> None:
    """Measured before table before roofline before prior; none at all is our own bug."""
    assert best(prior=1.0, table=3.0, measured=4.0) == (4.0, "measured")
    assert streaming_ns(1e9, A100, 2_000) == pytest.approx(1e9 / (1555 * 0.85))
    assert streaming_ns(np.nan, A100, 2_000) is None
    with pytest.raises(AssertionError):
        best()


def test_the_scaler_never_holds_the_lock_against_its_own_stream() -> None:
    """Where no fork or join was found, its download still comes after the backward launches."""
    tasks = [
        ("cudaLaunchKernel", "launch", 0, 5_000, "optimizer"),
        ("cudaLaunchKernel", "launch", 1, 5_000, "forward"),
        ("aten::convolution_backward", "host", 1, 900_000, "backward"),
        ("cudaLaunchKernel", "launch", 1, 5_000, "backward"),
        ("s1688gemm", "kernel", 2, 100_000, "forward"),
        ("s1688gemm", "kernel", 2, 100_000, "backward"),
        ("addcdiv elementwise_kernel<Array<char*, 4>>", "kernel", 2, 50_000, "optimizer"),
    ]
    start = [900_000, 0, 5_000, 905_000, 6_000, 911_000, 1_011_000]
    edges = [(0, 6, "launch"), (1, 4, "launch"), (3, 5, "launch")]
    graph = literal(tasks, edges, columns={"start_ns": start}, meta=META, wrap=True)

    changed = check(amp(graph, dtype="fp16"))

    joins = changed.edges[changed.edges["kind"] == "join"]
    assert changed.tasks["lane"][joins["src"]].tolist() == [1]
    assert changed.tasks["wait"][joins["dst"]].tolist() == ["own"]
    assert replay(changed).step_ns > 905_000
