"""What a page says of a prediction is what the command line says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.baseline import replay_baseline, replay_scenario, run_experiment
from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.page import data as page_data
from foretrace.page.data import outlook, view
from foretrace.report.forms import as_keys
from foretrace.transforms.scenario import parse_scenario

GRAPH = literal(
    [
        ("aten::mm", "host", 0, 5_000, "forward"),
        ("cudaLaunchKernel", "launch", 0, 2_000, "forward"),
        ("ampere_sgemm_128x64_nn", "kernel", 1, 30_000, "forward"),
        ("relu_elementwise_kernel", "kernel", 1, 10_000, "backward"),
    ],
    [(1, 2, "launch", 4_000)],
    wrap=True,
    measured_step_ns=40_000,
)
FASTER = parse_scenario(["faster_kernels(speedup=2)"])


def test_a_view_holds_the_prediction_and_its_reasons() -> None:
    """Its numbers are those of `predict`; kernels at double speed make 20 µs of 40."""
    found = view(run_experiment(GRAPH, FASTER))

    prediction = as_keys(predict(GRAPH, FASTER))
    assert {key: found[key] for key in prediction} == prediction
    assert (found["baseline_step_ms"], found["predicted_step_ms"]) == (0.04, 0.02)
    assert found["limiting_lanes"] == {"before": "device", "after": "device"}
    assert found["limits"]["before"] == {"gemm": 0.03, "pointwise": 0.01}
    assert [each["label"] for each in found["timelines"]] == ["before", "after"]
    assert found["path"]["after"][0] == {
        "name": "ampere_sgemm_128x64_nn",
        "lane": "rank 0 stream 8 (compute)",
        "why": "work",
        "ms": 0.015,
        "count": 1,
    }


def test_parts_are_ordered_by_what_they_take() -> None:
    """The longest of work and path, before or after, decides."""
    parts = view(run_experiment(GRAPH, FASTER))["parts"]

    assert [part["part"] for part in parts["cause"]] == ["gemm", "pointwise", "host"]
    assert parts["phase"][0] == {
        "part": "forward",
        "work_ms": [0.037, 0.022],
        "path_ms": [0.03, 0.015],
    }


def test_many_parts_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out: the rest is one row."""
    monkeypatch.setattr(page_data, "MOST_PARTS", 1)
    parts = view(run_experiment(GRAPH, FASTER))["parts"]["cause"]

    assert parts[1] == {"part": "2 more", "work_ms": [0.017, 0.012], "path_ms": [0.01, 0.005]}


def test_without_a_scenario_the_recording_is_shown() -> None:
    """One timeline, no evidence needed, no change."""
    found = view(run_experiment(GRAPH, ()))

    assert found["scenario"] == []
    assert found["speedup"] == 1
    assert [each["label"] for each in found["timelines"]] == ["as recorded"]
    assert found["errors_of_pairs"] == found["evidence"] == []


def test_evidence_counts_the_pairs_that_tested_a_what_if(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the operators were not timed on the machine, what rules showed stands."""
    row = {"pairs": 7, "median": 0.021, "p90": 0.05}
    monkeypatch.setattr(page_data, "load_table", lambda: {"gpu": {"rule": {"faster_host": row}}})
    scenario = parse_scenario(["faster_host(speedup=2)", "faster_kernels(speedup=2)"])

    tested, untested = view(run_experiment(GRAPH, scenario))["errors_of_pairs"]
    assert tested == {
        "transform": "faster_host",
        "hardware": "gpu",
        "source": "rule",
        "pairs": 7,
        "median_pct": 2.1,
        "p90_pct": 5.0,
    }
    assert (untested["pairs"], untested["median_pct"]) == (0, None)


def test_what_does_not_apply_is_an_error() -> None:
    """The page never shows a what-if that did nothing."""
    with pytest.raises(TransformError, match="tensor"):
        view(
            replay_scenario(
                replay_baseline(GRAPH),
                parse_scenario(['faster_kernels(pattern="tensor", speedup=2)']),
            )
        )


def test_an_outlook_ranks_and_draws() -> None:
    """Advice and sensitivity of the job as it is."""
    found = outlook(replay_baseline(GRAPH))

    assert {part["of"] for part in found["sensitivity"]["parts"]} >= {"lane", "kernels"}
    assert found["advice"]["measured_step_ms"] == 0.04


def test_everything_is_json() -> None:
    """No number that JSON lacks, no type of numpy's."""
    unnamed = replace(GRAPH, tasks=GRAPH.tasks.assign(module=GRAPH.tasks["name"]))

    assert json.dumps(view(run_experiment(unnamed, FASTER)), allow_nan=False)


def test_a_job_without_a_device_is_told_by_its_processor() -> None:
    """Where the recorder noted one."""
    meta = replace(GRAPH.meta, machine={"cpu": "AMD EPYC"})

    assert view(run_experiment(replace(GRAPH, meta=meta), ()))["job"]["processor"] == "AMD EPYC"
    assert view(run_experiment(GRAPH, ()))["job"]["processor"] is None
