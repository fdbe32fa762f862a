"""Which library runs attention after a change is asked from the recording before a default."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.graph.literal import literal
from foretrace.tracer.trace import Device
from foretrace.transforms.costs.attention_library import find_library

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

FUSED = "fmha_cutlassF_f32_aligned_64x64_rf_sm80"


def job(*kernels: str, device: str = "NVIDIA A100-SXM4-80GB", torch: str | None = None) -> Graph:
    """Return a job of *kernels*, 1 ms each, recorded on *device* with a version of torch."""
    graph = literal([(name, "kernel", 0, 1_000_000, "forward") for name in kernels], wrap=True)
    meta = replace(graph.meta, devices=(Device(0, device),), framework=torch)
    return replace(graph, meta=meta)


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        (job(FUSED, torch="torch 2.1.2+cu118"), ("flash1", "torch 2.1")),
        (job(FUSED, torch="torch 2.2.0"), ("flash2", "torch 2.2")),
        (job(FUSED, torch="torch 2.13.0"), ("flash2", "torch 2.13")),
        (job(FUSED, "pytorch_fmha::fmha_fwd_loop_kernel<bf16>", torch="torch 2.4.0"),
         ("flash1", "a kernel of the recording")),
        (job(FUSED, device="Tesla V100-SXM2-32GB"),
         ("mem_efficient", "V100-SXM2, which has no flash-attention")),
        (job(FUSED), ("flash2", "")),
    ],
)  # fmt: skip
def test_kernels_then_device_then_version_tell(graph: Graph, found: tuple[str, str]) -> None:
    """Only where none of them does is today's library a default."""
    assert tuple(find_library(graph)) == found


def test_a_default_that_nothing_tells_has_the_earlier_library_in_its_range() -> None:
    """flash1 reaches 0.33 of the peak, flash2 0.53; what is known has no such range."""
    guessed = run_experiment(job(FUSED), "amp")
    told = run_experiment(job(FUSED, torch="torch 2.13.0"), "amp")
    asked = run_experiment(job(FUSED), 'amp(attention="flash2")')

    assert max(guessed.assumed_ratios) / guessed.ratio == pytest.approx(0.53 / 0.33, rel=0.02)
    assert len(told.changed.state.assumed) == len(asked.changed.state.assumed) == 1
    assert any("the recording does not tell" in note for note in guessed.changed.notes)
    assert any("(torch 2.13)" in note for note in told.changed.notes)


def test_an_older_stack_gains_less() -> None:
    """The same job with torch 2.1 gets the first flash-attention."""
    old, new = (run_experiment(job(FUSED, torch=t), "amp") for t in ("torch 2.1.0", "torch 2.5.1"))

    assert old.ratio == pytest.approx(new.ratio * 0.53 / 0.33, rel=0.02)
    assert old.changed.state.autocast is not None
    assert old.changed.state.autocast.attention == "flash1"
