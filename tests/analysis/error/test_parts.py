"""What a scenario is made of: it is no surer than that, and hands on its doubts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.analysis.error.parts import list_parts
from foretrace.analysis.prediction import predict
from foretrace.replaying.replay import replay
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.layers import cpu_layers

PIPELINE = "pipeline(stages=2, micro_batches=2, recorded=8, network='10Gbps', activation_mb=0.01)"


def test_a_pipeline_is_no_surer_than_its_micro_batches() -> None:
    """In proportion its interval reaches as far either way; by itself it would be narrower."""
    graph = cpu_layers()
    graph = scale(graph, np.ones(len(graph.tasks), bool), 1_000.0, cost="measured")
    graph = replace(graph, measured_step_ns=replay(graph).step_ns)
    whole, part = (
        predict(graph, parse_scenario([asked]))
        for asked in (PIPELINE, "batch_size(n=4, recorded=8)")
    )

    for end, reaches in ((0, -1), (1, 1)):
        of_whole, of_part = (each.interval_ns[end] / each.predicted_ns for each in (whole, part))
        assert reaches * of_whole >= reaches * of_part - 1e-9


def test_a_pipeline_hands_on_the_doubts_of_its_micro_batches() -> None:
    """Python between operators grows with the batch, in a pipeline as well."""
    graph = cpu_layers()
    lags = graph.edges["lag_ns"].where(graph.edges["kind"] != "thread", 5_000_000)
    graph = replace(graph, edges=graph.edges.assign(lag_ns=lags))
    doubts = predict(graph, parse_scenario([PIPELINE])).doubts

    assert "python-per-sample" in {doubt.code for doubt in doubts}


def test_only_a_batch_that_is_split_is_a_part() -> None:
    """One micro-batch is the batch; what-ifs side by side are parts, too."""
    graph = cpu_layers()
    alone = parse_scenario(["pipeline(stages=2, micro_batches=1, network='10Gbps')"])
    both = parse_scenario(["faster_host(speedup=2)", PIPELINE])

    assert list_parts(alone, graph) == []
    assert [each.name for each in list_parts(both, graph)] == [
        "faster_host",
        "pipeline",
        "batch_size",
    ]
