"""Today's what-ifs on public recordings: answers that are known, measured or bounded."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.prediction import predict
from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.scenario import parse_scenario
from tests.support.paths import PUBLIC

if TYPE_CHECKING:
    from foretrace.analysis.prediction import Prediction
    from foretrace.graph.model import Graph

SHARED = PUBLIC
VIT_AMP = "nersc-sc23-vit/dali_amp-bf16.sqlite.gz"
VIT_COMPILED = "nersc-sc23-vit/dali_amp-bf16_fused-adam_jit.sqlite.gz"
VIT_UPLOADS = "nersc-sc23-vit/native_nw4.sqlite.gz"
RESNET_BUSY_GPU = "hta/resnet50_ddp_v100_ws1_rank0.json.gz"
RESNET_BUSY_HOST = "kineto-tb-plugin/resnet50_v100_nw4_2021-06_runA.json.gz"
UNET_READS_LOSS = "nersc-sc21-unet/dali.sqlite.gz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHARED.exists(), reason=f"the public recordings are not here: {SHARED}"),
]


@cache
def recording(name: str) -> Graph:
    """Return the graph of a public recording."""
    return build(load(SHARED / name))


def after(name: str, *what_ifs: str) -> Prediction:
    """Return the prediction for a public recording."""
    return predict(recording(name), parse_scenario(what_ifs))


def test_compilation_meets_the_measured_vit() -> None:
    """P14, fused Adam and torch.compile: 367.8 become 364.8 ms, three quarters of it attention."""
    measured = recording(VIT_COMPILED).measured_step_ns

    prediction = after(VIT_AMP, "fused_optimizer", "compile")

    assert prediction.predicted_ns == pytest.approx(measured, rel=0.04)
    low_ns, high_ns = prediction.interval_ns
    assert low_ns < measured < high_ns
    with pytest.raises(TransformError, match="runs compiled kernels already"):
        after(VIT_COMPILED, "compile")


def test_a_captured_step_gains_what_the_host_held_up() -> None:
    """A step that the device fills gains under 1 %, one that the host holds up far more."""
    assert 1.0 <= after(RESNET_BUSY_GPU, "cuda_graphs").speedup < 1.01
    assert after(RESNET_BUSY_HOST, "cuda_graphs").predicted_ns == pytest.approx(104e6, rel=0.02)


def test_a_step_that_reads_its_loss_cannot_be_captured() -> None:
    """Its ``.item()`` is named; without it the capture goes through."""
    with pytest.raises(TransformError, match=r"cannot capture cudaMemcpyAsync \(1 per step\)"):
        after(UNET_READS_LOSS, "cuda_graphs")

    assert after(UNET_READS_LOSS, "remove_sync", "cuda_graphs").speedup >= 1.0


def test_uploads_leave_the_compute_stream() -> None:
    """Two pinned copies of 12.4 ms per step are hidden behind 1,211 ms of kernels."""
    saved = recording(VIT_UPLOADS).measured_step_ns - after(VIT_UPLOADS, "overlap_h2d").predicted_ns

    assert saved == pytest.approx(24.8e6, rel=0.05)


@pytest.mark.parametrize("name", [RESNET_BUSY_GPU, VIT_AMP])
def test_a_second_forward_costs_about_a_third(name: str) -> None:
    """Backward takes twice as long as forward, so one more forward adds some 30 %."""
    prediction = after(name, "activation_checkpoint")

    assert prediction.predicted_ns / prediction.measured.step_ns == pytest.approx(1.31, abs=0.03)
