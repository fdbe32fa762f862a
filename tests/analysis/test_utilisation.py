"""MFU and achieved rates, checked by hand: every expected figure is written out here."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foretrace.analysis.utilisation import Utilisation, covered_ns, utilise
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.tracer.readers.load import load
from foretrace.tracer.trace import Device, TraceMeta
from tests.support.paths import PUBLIC

A100 = TraceMeta(format="kineto", devices=(Device(0, "NVIDIA A100-SXM4-80GB", sm_count=108),))
PRODUCT = {
    "name": ["aten::linear", "aten::addmm", "aten::add"],
    "parent": [-1, 0, -1],
    "phase": ["forward"] * 3,
    "shapes": [
        "[[100,200],[300,200],[300]]",
        "[[300],[100,200],[200,300]]",
        "[[100,300],[100,300]]",
    ],
    "dtypes": ['["float","float","float"]'] * 2 + ['["float","float"]'],
}


def test_a_step_by_hand() -> None:
    """One product of 12 MFLOP in 2 us of a step of 10: 0.6 % of 19.5 TFLOP/s x 10 us x 10."""
    graph = literal(
        [
            ("ampere_sgemm_128x64_nn", "kernel", 0, 2_000, "forward"),
            (
                "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
                "kernel",
                0,
                1_000,
                "forward",
            ),
        ],
        columns={"operator": [1, 2], "blocks": [54, 216], "fill": [0.5, 1.0]},
        operators=PRODUCT,
        meta=A100,
        measured_step_ns=10_000,
    )
    used = utilise(graph, 10_000)

    assert used is not None
    assert used.busy == pytest.approx(0.3)
    assert used.model_flops == 2 * 100 * 200 * 300
    assert used.precision == "fp32"
    assert used.mfu == pytest.approx(12e6 / 10e-6 / 19.5e12)
    assert used.hfu == used.mfu
    gemm, pointwise = used.rates
    assert (gemm.name, pointwise.name) == ("gemm", "pointwise")
    assert gemm.tflops == pytest.approx(12e6 / 2e-6 / 1e12)
    assert gemm.gbps == pytest.approx(4 * (100 * 200 + 300 * 200 + 300 + 100 * 300) / 2_000)
    assert pointwise.gbps == pytest.approx(4 * 3 * 100 * 300 / 1_000)
    # 54 blocks leave half of 108 multiprocessors without one for 2 of 3 us; 216 fill all
    assert used.sm_idle == pytest.approx(0.5 * 2 / 3)
    assert used.missing == ()


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"operators": None}, "no operator shapes; record with record_shapes=True"),
        (
            {"meta": replace(A100, devices=(Device(0, "unheard of"),))},
            "no peak is known of unheard of",
        ),
    ],
)
def test_what_is_missing_is_said_and_nothing_guessed(changes: dict[str, Any], missing: str) -> None:
    """No shapes, or a device that is not in the table."""
    given: dict[str, Any] = {
        "operators": PRODUCT,
        "meta": A100,
        "columns": {"operator": [1]},
        **changes,
    }
    if given["operators"] is None:
        del given["columns"], given["operators"]
    used = utilise(literal([("sgemm", "kernel", 0, 2_000, "forward")], **given), 10_000)

    assert used is not None
    assert used.mfu is None
    assert missing in used.missing[0]


def test_exposed_communication_is_what_nothing_runs_beside() -> None:
    """8 us of a transfer, 3 of them beside a kernel."""
    graph = literal(
        [
            ("sgemm", "kernel", 0, 5_000, "forward"),
            ("ncclKernel_AllReduce", "collective", 1, 8_000, None),
        ],
        meta=A100,
        measured_step_ns=10_000,
    )
    graph.tasks["start_ns"] = [0, 2_000]
    used = utilise(graph, 10_000)

    assert used is not None
    assert (used.communication_ns, used.exposed_ns) == (8_000, 5_000)
    assert covered_ns(np.array([], np.int64), np.array([], np.int64)) == 0


def test_a_host_job_has_no_device_to_use() -> None:
    """And is given none of these figures."""
    assert utilise(literal([("aten::mm", "host", 0, 9, "forward")]), 9) is None


def public(name: str) -> Utilisation:
    """Return what is said of a public trace, in its measured step."""
    path = PUBLIC / name
    if not path.exists():
        pytest.skip("the public traces are not here")
    graph = build(load(path))
    used = utilise(graph, graph.measured_step_ns)
    assert used is not None
    return used


def kernel_seconds(name: str, *words: str) -> float:
    """Return the time of the kernels whose name has one of *words*, read from the file's text.

    Those launched before the recording began are of another pass, and left out.
    """
    events = json.loads(gzip.decompress((PUBLIC / name).read_bytes()))["traceEvents"]
    calls = {e["args"].get("correlation") for e in events if "runtime" in str(e.get("cat"))}
    kernels = (e for e in events if e.get("cat") == "kernel" and e["args"]["correlation"] in calls)
    return 1e-6 * sum(e["dur"] for e in kernels if any(w in e["name"].lower() for w in words))


def conv(size: int, inputs: int, outputs: int, edge: int) -> float:
    """Return the operations of a convolution with *size* x *size* outputs: 2 per multiplication."""
    return 2.0 * size**2 * inputs * outputs * edge**2


def resnet50() -> tuple[float, float]:
    """Return the forward operations of one image of 224 x 224, and those of the first layer.

    He and others (2016), with the stride in the 3 x 3 convolution as torchvision has it.
    """
    first = total = conv(112, 3, 64, 7)
    inputs, before = 64, 56
    for width, count, size in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(count):
            at = before if block == 0 else size
            total += conv(at, inputs, width, 1) + conv(size, width, width, 3)
            total += conv(size, width, 4 * width, 1)
            total += conv(size, inputs, 4 * width, 1) if block == 0 else 0
            inputs = 4 * width
        before = size
    return total + 2.0 * 2048 * 1000, first


def test_resnet50_on_a_v100() -> None:
    """Batch 32 in fp32: 777.6 GFLOP a step of 177.2 ms are 4.39 of 15.7 TFLOP/s, 27.9 %.

    One image forward takes 4.09 billion multiplications (torchvision's table of models). Backward
    takes twice that, less the gradient of the images, which nobody needs.
    """
    used = public("kineto-tb-plugin/resnet50_v100_nw0_2021-06_runA.json.gz")
    forward, first = resnet50()
    operations = 32 * (3 * forward - first)

    assert forward / 2 == pytest.approx(4.09e9, rel=0.002)
    assert used.model_flops == pytest.approx(operations, rel=1e-9)
    assert used.step_ns == pytest.approx(177.2e6, rel=0.001)
    assert used.mfu == pytest.approx(operations / 177.2e-3 / 15.7e12, rel=0.001)
    assert used.again_flops == 0


def test_vgg13_on_an_h100() -> None:
    """Batch 512 in TF32: 34.6 TFLOP a step of 348 ms are 99.5 of 494.5 TFLOP/s, 20.1 %.

    One image forward takes 11.31 billion multiplications (torchvision's table). The convolutions
    reach 233 TFLOP/s in the 147 ms of their own kernels, layout changes apart.
    """
    name = "triosim/vgg13_h100_bs512_adam_iter41.json.gz"
    used = public(name)
    sizes = (224, 224, 112, 112, 56, 56, 28, 28, 14, 14)
    widths = (3, 64, 64, 128, 128, 256, 256, 512, 512, 512, 512)
    channels = zip(sizes, widths[:-1], widths[1:], strict=True)
    convolutions = sum(conv(size, inputs, outputs, 3) for size, inputs, outputs in channels)
    products = 2.0 * (25_088 * 4_096 + 4_096 * 4_096 + 4_096 * 1_000)
    first = conv(224, 3, 64, 3)
    of_convolutions = 512 * (3 * convolutions - first)
    operations = of_convolutions + 512 * 3 * products

    assert (convolutions + products) / 2 == pytest.approx(11.31e9, rel=0.002)
    assert used.model_flops == pytest.approx(operations, rel=1e-9)
    assert used.mfu == pytest.approx(operations / 348.08e-3 / 494.5e12, rel=0.001)
    seconds = kernel_seconds(name, "gemm_f32f32_tf32f32", "wgrad", "dgrad", "fprop", "convolve")
    reached = next(rate for rate in used.rates if rate.name == "conv")
    assert reached.ns == pytest.approx(1e9 * seconds, rel=0.02)
    assert reached.tflops == pytest.approx(of_convolutions / seconds / 1e12, rel=0.02)


def test_qwen_on_an_h100() -> None:
    """16 sequences of 559 tokens in bf16: 6.01 TFLOP in 47 ms, 12.9 % of 989 TFLOP/s.

    By PaLM, appendix B, forward alone: 2 N for each token, and 4 L S d for attention
    in full. N counts what is multiplied with: 24 layers of 1,024 with 2,816 between, no embedding.
    """
    name = "tracelens/infer_qwen1.5-0.5b_h100.json.gz"
    used = public(name)
    layers, width, inner, length, tokens = 24, 1024, 2816, 559, 16 * 559
    parameters = layers * (4 * width**2 + 3 * width * inner)
    products = 2.0 * parameters * tokens
    operations = products + 4.0 * layers * length * width * tokens

    assert used.model_flops == pytest.approx(operations, rel=1e-4)
    assert used.mfu == pytest.approx(operations / 47.15e-3 / 989e12, rel=0.002)
    seconds = kernel_seconds(name, "gemm")
    gemm = next(rate for rate in used.rates if rate.name == "gemm")
    assert gemm.tflops == pytest.approx(products / seconds / 1e12, rel=0.02)


def test_what_is_computed_again_is_no_work_of_the_model() -> None:
    """ResNet-18 with checkpoints, batch 10: 19 of 20 convolutions run forward twice."""
    used = public("tracelens/resnet18_ddp8_mi300x_actckpt_rank0.json.gz")

    assert used.model_flops is not None
    assert used.model_flops == pytest.approx(
        10 * (3 * 2 * 1.814e9 - conv(112, 3, 64, 7)), rel=0.002
    )
    assert used.again_flops == pytest.approx(10 * (2 * 1.814e9 - conv(112, 3, 64, 7)), rel=0.005)
    assert used.hfu is not None
    assert used.mfu is not None
    assert used.hfu > used.mfu
