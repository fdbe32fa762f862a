"""What is written down about a change: repeated, without effect, more samples, warnings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.analysis.prediction import predict
from foretrace.graph.literal import literal
from foretrace.graph.shared_links import Network
from foretrace.graph.state import Applied, Doubt
from foretrace.tracer.trace import TraceMeta
from foretrace.transforms.edit.provenance import (
    add_doubt,
    add_warning,
    applied,
    grow_samples,
    samples,
    warnings,
)
from foretrace.transforms.scenario import apply, parse_scenario
from tests.support.jobs.kernels import device_bound
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def told_of(*texts: str) -> tuple[str, ...]:
    """Return what applying *texts* to a GPU job warns of."""
    return warnings(apply(gpu_job(), parse_scenario(texts)))


def test_every_what_if_is_written_down() -> None:
    """With its text and where its costs come from, over several calls too."""
    graph = apply(gpu_job(), parse_scenario(["faster_host(speedup=2)"]))
    graph = apply(graph, [*parse_scenario(["batch_size(n=32)"]), lambda graph: graph])

    assert applied(graph) == (
        Applied("faster_host", "faster_host(speedup=2)", "rule"),
        Applied("batch_size", "batch_size(n=32)", "nothing"),
        Applied("custom", "custom", "nothing"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "gradient_accumulation(k=1)",
        "batch_size(n=32)",
        "faster_kernels(speedup=1)",
        "faster_host(speedup=1.0)",
        "device(name='A100-80GB')",
    ],
)
def test_what_changes_nothing_is_said(text: str) -> None:
    """Instead of a silent "no gain"."""
    (change,) = parse_scenario([text])

    assert told_of(text) == (f"{change} changes nothing in this job",)


def test_what_changes_a_shared_link_alone_changes_something() -> None:
    """Tables are not all there is to a graph."""

    def linked(graph: Graph) -> Graph:
        return graph.with_state(network=Network(("uplink",)))

    assert warnings(apply(gpu_job(), [linked])) == ()


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["remove_sync", "compile"], ()),
        (["faster_host(speedup=2)", "faster_host(speedup=2)"], ()),
        (["replace_kernel(pattern='gemm', duration_us=3)"] * 2, ()),
        (
            ["activation_checkpoint"] * 2,
            ("applied-twice",),
        ),
    ],
)
def test_the_same_what_if_twice_is_said(texts: list[str], told: tuple[str, ...]) -> None:
    """Unless it says how things are, or multiplies as may be meant: that is an assumption."""
    graph = apply(gpu_job(), parse_scenario(texts))

    assert tuple(doubt.code for doubt in graph.state.doubts) == told
    assert warnings(graph) == ()


def test_what_multiplies_is_an_assumption() -> None:
    """Said once, however often."""
    graph = apply(gpu_job(), parse_scenario(["faster_kernels(speedup=2)"] * 3))

    assert [n for n in graph.notes if "multiply" in n] == [
        "faster_kernels is applied more than once: its effects multiply"
    ]
    assert np.isin([12_500], graph.tasks["work_ns"]).all()


def test_warnings_reach_the_prediction() -> None:
    """Those of the what-ifs, not those that the graph had before."""
    graph = add_warning(device_bound(), "of old")
    found = predict(graph, parse_scenario(["faster_kernels(speedup=1)"]))

    assert "faster_kernels(speedup=1) changes nothing in this job" in found.warnings
    assert "of old" not in found.warnings


def test_doubts_reach_the_prediction() -> None:
    """Those of the recording, and those that what-ifs add, each once."""
    of_old, new = Doubt("steps-guessed", "a guess"), Doubt("recorded-batch", "does not fit")
    graph = add_doubt(device_bound(), of_old)

    found = predict(graph, [lambda job: add_doubt(job, new, of_old)])

    assert [doubt for doubt in found.doubts if doubt in {of_old, new}] == [of_old, new]
    assert found.status == "unvalidated"


def test_samples_count_where_the_batch_is_unknown() -> None:
    """A 32nd of the samples in a 32nd of the time is no gain; four times as many in a step are."""
    meta = TraceMeta(format="foretrace", source="literal")
    graph = literal([("relu", "kernel", 0, 3_200_000, "forward")], wrap=True, meta=meta)
    found = predict(graph, parse_scenario(["batch_size(n=1, recorded=32)"]))

    assert found.samples == 1 / 32
    assert found.speedup == pytest.approx(1, rel=0.1)
    assert found.samples_before is None
    assert samples(grow_samples(grow_samples(graph, 2), 3)) == 6


def test_accumulated_batches_are_samples() -> None:
    """Known or not, k batches make k times as many."""
    unknown = replace(cpu_job(), meta=replace(cpu_job().meta, batch_size=None))

    for graph in (cpu_job(), unknown):
        assert predict(graph, parse_scenario(["gradient_accumulation(k=3)"])).samples == 3
