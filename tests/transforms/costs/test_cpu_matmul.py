"""What products cost a CPU in another precision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from foretrace.graph.literal import literal
from foretrace.tracer.recording.matmul_probe import product_rates
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.costs.cpu_matmul import interpolate, matmul_ns
from tests.support.jobs.simple import META

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

RATES = {
    "linear": {"fp32": [[1, 100.0]], "bf16": [[1, 10.0]]},
    "input_gradient": {"fp32": [[1, 100.0]], "bf16": [[1, 1.0]]},
    "weight_gradient": {"fp32": [[1, 100.0]], "bf16": [[1, 20.0]]},
    "conv": {"fp32": [[1, 100.0]], "bf16": [[1, 2.0]]},
    "conv_backward": {"fp32": [[1, 100.0]], "bf16": [[1, 4.0]]},
    "pointwise_conv": {"fp32": [[1, 100.0]], "bf16": [[1, 8.0]]},
    "pointwise_conv_backward": {"fp32": [[1, 100.0]], "bf16": [[1, 16.0]]},
    "depthwise_conv": {"fp32": [[1, 100.0]], "bf16": [[1, 0.5]]},
    "depthwise_conv_backward": {"fp32": [[1, 100.0]], "bf16": [[1, 0.25]]},
    "attention": {"fp32": [[1, 30.0]], "bf16": [[1, 10.0]]},
}
MACHINE = {
    "fp32_gflops": 100.0,
    "bf16_gflops": 5.0,
    "copy_gbps": 10.0,
    "has_bf16": False,
    "products": RATES,
}


def job(*operators: tuple[str, str, str, int], machine: dict[str, object] | None = None) -> Graph:
    """One host task of 1 ms per operator: (name, shapes, phase, parent)."""
    names, shapes, phases, parents = (list(column) for column in zip(*operators, strict=True))
    rows = len(operators)
    graph = literal(
        [(name, "host", 0, 1_000_000, phase) for name, phase in zip(names, phases, strict=True)],
        columns={"operator": np.arange(rows)},
        operators={"name": names, "shapes": shapes, "phase": phases, "parent": parents},
    )
    return replace(graph, meta=replace(META, machine=MACHINE if machine is None else machine))


LINEAR = ("aten::addmm", "[[8],[4,16],[16,8]]", "forward", -1)


def test_a_forward_product_takes_its_flops_over_its_rate() -> None:
    """2 * 4 * 16 * 8 flops at 10 GFLOP/s are 102.4 ns."""
    found = matmul_ns(job(LINEAR), RATES, "bf16")

    assert found.tolist() == [pytest.approx(102.4)]


def test_backward_products_are_told_apart_by_their_result() -> None:
    """A product shaped like a weight is the weight's gradient, another one the input's."""
    graph = job(
        LINEAR,
        ("aten::mm", "[[4,8],[8,16]]", "backward", -1),
        ("aten::mm", "[[8,4],[4,16]]", "backward", -1),
    )

    found = matmul_ns(graph, RATES, "bf16")

    assert found.tolist() == pytest.approx([102.4, 1024.0, 51.2])


def test_convolutions_count_both_gradients() -> None:
    """Forward 2 * 2*9 pixels * 36 elements; backward twice as much, each at its rate."""
    graph = job(
        ("aten::mkldnn_convolution", "[[2,2,3,3],[2,2,3,3]]", "forward", -1),
        ("aten::convolution_backward", "[[2,2,3,3],[2,2,3,3],[2,2,3,3]]", "backward", -1),
    )

    found = matmul_ns(graph, RATES, "bf16")

    assert found.tolist() == pytest.approx([648.0, 648.0])


@pytest.mark.parametrize(
    ("weight", "times"),
    [("[2,2,1,1]", (18.0, 18.0)), ("[2,1,3,3]", (1_296.0, 5_184.0))],
)
def test_each_kind_of_convolution_has_its_own_rate(weight: str, times: tuple[float, float]) -> None:
    """1x1: 144 flops at 8, twice as many at 16; depthwise: 648 at 0.5, 1,296 at 0.25."""
    image = "[2,2,3,3]"
    graph = job(
        ("aten::mkldnn_convolution", f"[{image},{weight}]", "forward", -1),
        ("aten::convolution_backward", f"[{image},{image},{weight}]", "backward", -1),
    )
    old = {kind: rate for kind, rate in RATES.items() if "wise" not in kind}

    assert matmul_ns(graph, RATES, "bf16").tolist() == pytest.approx(times)
    assert np.isfinite(matmul_ns(graph, old, "bf16")).all()


def test_counted_flops_know_a_stride() -> None:
    """The flops of the operator around a convolution go before its shapes."""
    graph = job(
        ("aten::conv2d", "[[2,2,3,3],[2,2,3,3]]", "forward", -1),
        ("aten::mkldnn_convolution", "[[2,2,3,3],[2,2,3,3]]", "forward", 0),
    )
    graph = replace(graph, operators=graph.operators.assign(flops=[200.0, np.nan]))

    found = matmul_ns(graph, RATES, "bf16")

    assert np.isnan(found[0])
    assert found[1] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::relu", "[[4,4]]"),
        ("aten::mm", "[[4,4]]"),
        ("aten::mm", "no shapes"),
        ("aten::convolution_overrideable", "[[4,4],[4,4]]"),
    ],
)
def test_what_is_no_known_product_stays_unknown(name: str, shapes: str) -> None:
    """Other operators, and products whose shapes do not tell."""
    found = matmul_ns(job((name, shapes, "forward", -1)), RATES, "bf16")

    assert np.isnan(found).all()


def test_an_emulated_product_takes_its_own_time() -> None:
    """1 ms of fp32 becomes flops over the emulated rate, whatever fp32 took; callers stay."""
    graph = job(
        ("aten::linear", "[[4,16],[8,16]]", "forward", -1),
        ("aten::addmm", "[[8],[4000,16],[16,8]]", "forward", 0),
    )

    changed = amp(graph).tasks

    assert changed["work_ns"].tolist()[:2] == [1_000_000, 102_400]


def test_a_cpu_with_units_keeps_its_efficiency() -> None:
    """With bf16 units only the ratio of the rates is applied to the recorded time."""
    machine = {**MACHINE, "has_bf16": True, "bf16_gflops": 200.0}
    rates = {**RATES, "linear": {"fp32": [[1, 100.0]], "bf16": [[1, 200.0]]}}
    graph = job(LINEAR, machine={**machine, "products": rates})

    assert amp(graph).tasks["work_ns"].tolist()[0] == 500_000


def test_rates_are_interpolated_on_a_log_line() -> None:
    """Flat outside the probed sizes."""
    points = [[100, 1.0], [10_000, 4.0]]

    assert [interpolate(points, s) for s in (1, 1_000, 1e9)] == pytest.approx([1, 2, 4])


def test_the_probe_times_every_kind_in_both_precisions() -> None:
    """Two sizes each, in ascending order, and positive rates."""
    torch.set_num_threads(1)

    rates = product_rates()

    assert set(rates) == set(RATES)
    for by_precision in rates.values():
        for points in by_precision.values():
            sizes = [size for size, _ in points]
            assert sizes == sorted(sizes)
            assert all(rate > 0 for _, rate in points)
