"""Constants without a published source: their range is part of every answer that uses them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.constants import list_constants
from benchmarks.accuracy.study import read_list
from foretrace.analysis.prediction import predict_from
from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.graph.literal import literal
from foretrace.tracer.trace import Device
from foretrace.transforms.compute.cuda_graphs import GAP_SHARE, LAUNCH
from foretrace.transforms.costs.assumed import Assumed, noting_use, read_as
from foretrace.transforms.costs.devices import find_device
from foretrace.transforms.costs.roofline import LAYOUT
from tests.support.jobs.gradients import gpu_job
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

SHARE = Assumed("share", 0.5, 0.4, 0.8, "an example")


def on(device: str, kernel: str) -> Graph:
    """Return a job of one kernel of 1 ms on *device*."""
    graph = literal([(kernel, "kernel", 0, 1_000_000, "forward")], wrap=True)
    meta = replace(graph.meta, devices=(Device(0, device),))
    return replace(graph, meta=meta, measured_step_ns=1_000_000)


def test_a_value_outside_its_range_is_refused() -> None:
    """The range is what the answer spans; it has to hold the value."""
    with pytest.raises(ValueError, match=r"0\.9 is not in"):
        replace(SHARE, value=0.9)


def test_use_is_noted_in_the_inner_and_the_outer_part() -> None:
    """A what-if that applies another one rests on the constants of both."""
    with noting_use() as outer:
        with noting_use() as inner:
            assert SHARE.now() == 0.5
        with read_as(SHARE, 0.4):
            assert SHARE.now() == 0.4

    assert list(inner) == list(outer) == [SHARE]
    assert SHARE.now() == 0.5


def test_only_what_a_scenario_used_is_asked_otherwise() -> None:
    """A CUDA graph rests on its launch and its gaps, a faster host on nothing."""
    captured = run_experiment(gpu_job(), "cuda_graphs")

    assert captured.changed.state.assumed == (GAP_SHARE, LAUNCH)
    assert run_experiment(gpu_job(), "faster_host(speedup=2)").assumed_ratios == ()


def test_an_interval_spans_both_ends_of_a_constant() -> None:
    """fp32 attention of 1 ms: the shorter it is today, the less the fused 16-bit kernel gains."""
    graph = on("NVIDIA A100-SXM4-40GB", "fmha_cutlassF_f32_aligned_64x64_rf_sm80")
    experiment = run_experiment(graph, 'amp(attention="flash2")')
    found = predict_from(experiment)
    (constant,) = experiment.changed.state.assumed
    ends = [ratio / experiment.ratio for ratio in experiment.assumed_ratios]

    assert constant.tuned_on == ("P13",)
    assert min(ends) == pytest.approx(0.31 / 0.46, rel=0.02)
    assert max(ends) == pytest.approx(0.6 / 0.46, rel=0.02)
    assert found.interval_ns[0] <= found.predicted_ns * min(ends)
    assert found.interval_ns[1] >= found.predicted_ns * max(ends)


def test_constants_that_all_lengthen_a_step_are_asked_together() -> None:
    """Launch and gaps of a CUDA graph at their least give the shortest step, at most the longest.

    Two replays in place of four, and no narrower than either alone.
    """
    job = gpu_job(kernel=1_000)
    captured = run_experiment(job, "cuda_graphs")
    shortest, longest = captured.assumed_ratios
    alone = []
    for constant in (GAP_SHARE, LAUNCH):
        for end in constant.ends:
            with read_as(constant, end):
                alone.append(run_experiment(job, "cuda_graphs").ratio)

    assert shortest <= min(alone) < captured.ratio < max(alone) <= longest


def test_a_figure_of_the_table_is_read_at_the_ends_of_its_range() -> None:
    """What products reach on MI300X was tuned on one pair; A100's share is published."""
    amd, nvidia = find_device("MI300X"), find_device("A100")

    assert amd is not None
    assert nvidia is not None
    assert (amd.assumed["matrix_share"].least, "matrix_share" in nvidia.assumed) == (0.37, False)
    with read_as(amd.assumed["matrix_share"], 0.6):
        assert amd.figure("matrix_share") == 0.6
    assert amd.figure("matrix_share") == amd.figures["matrix_share"]


@pytest.mark.parametrize(
    ("kernel", "is_used"), [("volta_sgemm_nn", False), ("volta_scudnn_128x64_relu", True)]
)
def test_layout_changes_concern_convolutions_only(kernel: str, *, is_used: bool) -> None:
    """A product needs none on the way to TF32."""
    changed = run_experiment(on("Tesla V100-SXM2-32GB", kernel), 'device(name="A100")').changed

    assert (LAYOUT in changed.state.assumed) == is_used


def test_pairs_that_a_constant_was_tuned_on_say_so() -> None:
    """No pair that chose a constant may count as evidence."""
    listed = {entry["id"]: entry for entry in read_list(ROOT / "traces" / "study.toml")["pair"]}
    named = {name for constant in list_constants() for name in constant.tuned_on}

    assert {"P13", "P7", "P8"} <= named & set(listed)
    assert all(listed[name].get("tuned_on") for name in named & set(listed))
    assert len(list_constants()) == len({constant.name for constant in list_constants()})
