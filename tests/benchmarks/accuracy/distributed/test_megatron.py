"""Megatron's step times under other plans, and the closed form beside the replayed graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.distributed.megatron import (
    CHANGES,
    LEFT_OUT,
    SINGLE,
    MegatronPlan,
    MegatronRow,
    mean_errors,
    pipeline_length,
    pipeline_rows,
    plan_rows,
    read_plans,
)
from foretrace.errors import TraceError
from foretrace.graph.build import build
from foretrace.graph.model import Rules
from foretrace.replaying.replay import replay
from tests.support.paths import SHARED
from tests.support.recordings.operation_timeline import job, read

if TYPE_CHECKING:
    from pathlib import Path

FIXTURES = SHARED / "fixtures" / "vtrain-iterations"


@pytest.fixture
def iterations() -> Path:
    """Return the folder of vTrain's iterations, or skip the test."""
    if not FIXTURES.is_dir():
        pytest.skip(f"the public Megatron iterations are not at {FIXTURES}")
    return FIXTURES


@pytest.mark.parametrize(("change", "most"), [("tp <-> dp", 0.03), ("tp <-> pp", 0.05)])
def test_plans_over_several_nodes(iterations: Path, change: str, most: float) -> None:
    """On average closer than asked, and than either null model."""
    rows = [row for row in plan_rows(iterations) if row.change == change]
    predicted, same, bubble = mean_errors(rows)

    assert len(rows) == 11
    assert predicted < most
    assert predicted < same
    assert predicted < bubble


@pytest.mark.parametrize("change", ["pp 1 -> 2", "pp 1 -> 4", "pp 2 -> 4"])
def test_more_stages_on_one_node(iterations: Path, change: str) -> None:
    """Within 7 % on average; an ideal split is off by more than 25."""
    rows = [row for row in pipeline_rows(iterations) if row.change == change]
    predicted, same, ideal = mean_errors(rows)

    assert len(rows) >= 160
    assert predicted < 0.07
    assert same > 0.25
    assert ideal > 0.25


def test_what_proves_nothing_is_left_out_with_its_reason() -> None:
    """Data parallelism and micro-batches on one node were composed, not measured."""
    assert {"one node, other dp", "one node, other micro-batch"} <= set(LEFT_OUT)
    assert set(CHANGES) == {"tp <-> dp", "tp <-> pp"}


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 1), (2, 4), (4, 6)])
def test_the_closed_form_is_what_the_graph_replays(stages: int, micro_batches: int) -> None:
    """Even stages of 30 µs, and the last one with 12 µs more forward."""
    kinds = {"forward-compute": 10, "backward-compute": 20}
    if stages > 1:
        kinds |= {f"{d}-{w}": 0 for d in ("forward", "backward") for w in ("send", "recv")}
    graph = build(
        read(job(kinds, stages=stages, micro_batches=micro_batches)), rules=Rules(kernel_gap=False)
    )
    slow_last = build(
        read(
            job(
                kinds,
                stages=stages,
                micro_batches=micro_batches,
                changed={("forward-compute", 0, stages - 1): 22},
            )
        ),
        rules=Rules(kernel_gap=False),
    )
    even = [30_000.0] * stages

    assert replay(graph).step_ns == pipeline_length(even, micro_batches)
    assert replay(slow_last).step_ns == pipeline_length([*even[:-1], 42_000.0], micro_batches)


def test_errors_are_signed_and_averaged_without_sign() -> None:
    """110 and 90 against 100."""
    plan = MegatronPlan(1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100.0)
    rows = [MegatronRow("", plan, plan, ns, 100.0, 50.0) for ns in (110.0, 90.0)]

    assert rows[1].errors == pytest.approx((-0.1, 0.0, -0.5))
    assert mean_errors(rows) == pytest.approx((0.1, 0.0, 0.5))


def test_a_plan_measured_twice_counts_once(tmp_path: Path) -> None:
    """Its time is the mean; a table of something else is refused."""
    header = (
        "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
        "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)"
    )
    plan = "2,16,8,1024,16,24,1024,1,1,2"
    (tmp_path / SINGLE).write_text(f"{header}\n{plan},10\n{plan},12\n")
    (tmp_path / "other.csv").write_text("a,b\n1,x\n")

    assert [plan.ns for plan in read_plans(tmp_path / SINGLE)] == [11e6]
    with pytest.raises(TraceError, match="no table of Megatron iterations"):
        read_plans(tmp_path / "missing.csv")
    with pytest.raises(TraceError, match="no table of Megatron iterations"):
        read_plans(tmp_path / "other.csv")
