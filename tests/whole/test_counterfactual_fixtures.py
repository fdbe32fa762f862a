"""Recordings of a forward simulator that was run again with the change: its answer is the truth.

They lie in ../shared/fixtures/counterfactual; its README says what each shows.
"""

from __future__ import annotations

import pytest

import foretrace
from tests.support.paths import SHARED

FIXTURES = SHARED / "fixtures" / "counterfactual"
TOLERANCE = 0.03
NCCL = "nccl_pattern_two_ranks_rank{}.json.gz"
ANSWERS = (
    ("queue_full_every_launch_blocked.json.gz", "faster_kernels(speedup=3)", 3_453),
    ("queue_full_short_window.json.gz", "faster_kernels(speedup=3)", 862),
    ("ddp_sync_launch_latency.json.gz", "faster_kernels(speedup=3)", 637),
    ("side_stream_launch_latency.json.gz", "faster_kernels(speedup=3)", 497),
    ("loader_handover_constant.json.gz", "dataloader(workers=8, recorded_workers=1)", 824),
    ("loader_fewer_workers_hidden.json.gz", "dataloader(workers=1, recorded_workers=4)", 9_000),
    ("graph_hidden_join.json.gz", 'faster_kernels(pattern="gemm", speedup=3)', 401),
    ("event_sync_throttle.json.gz", "faster_kernels(speedup=3)", 345),
)

pytestmark = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the recordings of others are not here: ../shared/fixtures"
)


@pytest.mark.parametrize(("file", "change", "true_us"), ANSWERS)
def test_answer_is_true(file: str, change: str, true_us: float) -> None:
    """Within 3 % of the program that was changed."""
    graph = foretrace.build(foretrace.load(FIXTURES / file))

    assert foretrace.predict(graph, change).predicted_ns / 1e3 == pytest.approx(
        true_us, rel=TOLERANCE
    )


def test_ranks_loaded_together() -> None:
    """Their collectives meet: the transfer gets faster, whatever its name on a link."""
    graph = foretrace.build(foretrace.load([FIXTURES / NCCL.format(rank) for rank in (0, 1)]))
    predicted = foretrace.predict(graph, 'faster_kernels(pattern="nccl", speedup=2)')

    assert predicted.predicted_ns / 1e3 == pytest.approx(1_693, rel=TOLERANCE)


def test_join_within_a_graph_is_doubted() -> None:
    """It was not recorded where the branches of the graph meet."""
    graph = foretrace.build(foretrace.load(FIXTURES / "graph_hidden_join.json.gz"))

    assert "graph-dependencies" in {doubt.code for doubt in graph.state.doubts}


def test_lost_device_events_are_doubted() -> None:
    """Kernels of calls before the window, and none of the calls in it."""
    graph = foretrace.build(foretrace.load(FIXTURES / "device_events_lost_silent.json.gz"))

    assert "device-work-missing" in {doubt.code for doubt in graph.state.doubts}


def test_loader_that_may_become_the_limit_is_doubted() -> None:
    """A batch takes its worker 2,150 µs, which no call shows: the interval reaches there."""
    graph = foretrace.build(foretrace.load(FIXTURES / "loader_hidden_limit_silent.json.gz"))
    predicted = foretrace.predict(graph, "faster_kernels(speedup=3)")

    assert predicted.status == "unvalidated"
    assert predicted.interval_ns[1] / 1e3 >= 2_150
    assert "loader-cost-hidden" in {doubt.code for doubt in predicted.doubts}
