"""Small recordings after reports of others: a replay, or an answer after a change, that is known.

They lie in ../shared/fixtures/reports; its README says what each shows.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

import foretrace
from foretrace.replaying.replay import replay
from tests.support.paths import SHARED

REPORTS = SHARED / "fixtures" / "reports"
TOLERANCE = 0.02

pytestmark = pytest.mark.skipif(
    not REPORTS.is_dir(), reason="the recordings of others are not here: ../shared/fixtures"
)


class Answer(NamedTuple):
    """What is right, in ms of a step; *what_if* "" is the replay without a change.

    *file* may be a pattern: the files of several ranks.
    """

    file: str
    what_if: str
    right_ms: float
    doubts: tuple[str, ...] = ()


ANSWERS = (
    Answer("queue_full_at_start.json.gz", "", 7.65),
    Answer("queue_full_at_start.json.gz", "faster_kernels(speedup=2)", 3.97),
    Answer("queue_full_uniform.json.gz", "", 6.30, ("launch-cost-unknown",)),
    Answer("queue_full_uniform.json.gz", "faster_kernels(speedup=2)", 3.30),
    Answer("p2p_rank*.json", "", 1.00),
    Answer("p2p_rank*.json", "faster_kernels(pattern='k_stage1', speedup=2)", 0.75),
    Answer("diff_steps_rank*.json", "", 2.00),
    Answer("merged_tp.json.gz", "", 2.10),
    Answer("steps_two_threads.json", "", 1.05),
    Answer("steps_two_threads.json", "faster_kernels(speedup=2)", 0.55),
    Answer("last_step_late.json", "", 1.05),
    Answer("last_step_late.json", "faster_kernels(speedup=2)", 0.55),
    Answer("compile_then_eval.json", "faster_kernels(speedup=2)", 0.55),
    Answer("one_huge_launch.json", "", 1.85, ("outlier-step",)),
    Answer("emit_nvtx_ops.sqlite.gz", "", 5.70, ("no-steps",)),
    Answer("event_gated_10.json", "", 1.16),
    Answer("event_gated_10.json", "faster_kernels(speedup=2)", 0.635),
    Answer("graph_late_branch.json", "", 1.10, ("graph-dependencies",)),
    Answer("graph_late_branch.json", "faster_kernels(speedup=2)", 0.605),
    Answer("begin_end.json", "faster_kernels(speedup=2)", 0.55),
    Answer("inf_bandwidth.json", "", 1.05),
    Answer("overflow_31ms.json", "", 1.05),
    Answer("overflow_31ms.json", "faster_kernels(speedup=2)", 0.55),
    Answer("musa.json", "faster_kernels(speedup=2)", 0.55),
    Answer("xpu.json", "faster_kernels(speedup=2)", 0.55),
    Answer("nsys_graph_level.sqlite.gz", "", 1.10, ("whole-graphs",)),
    Answer("nsys_graph_level.sqlite.gz", "faster_kernels(speedup=2)", 0.625),
    Answer("idle_copy.json", "", 100.0, ("untraced-wait",)),
    Answer("idle_copy.json", "faster_kernels(speedup=2)", 85.0, ("untraced-wait",)),
    Answer("blocking_copy_late.json", "", 0.80, ("untraced-wait",)),
    Answer("sync_overlaps_launch.json", "", 1.05),
    Answer("sync_overlaps_launch.json", "faster_kernels(speedup=2)", 0.55),
    Answer("two_devices_one_process.json", "", 0.70),
    Answer("two_devices_one_process.json", "faster_kernels(pattern='k_dev1', speedup=2)", 0.54),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: f"{a.file} {a.what_if}".strip())
def test_answer_is_right(answer: Answer) -> None:
    """It is right, and doubted where the table says so."""
    graph = foretrace.build(foretrace.load(sorted(REPORTS.glob(answer.file))))
    if answer.what_if:
        step_ms = foretrace.predict(graph, answer.what_if).predicted_ns / 1e6
    else:
        step_ms = replay(graph).step_ns / 1e6

    assert step_ms == pytest.approx(answer.right_ms, rel=TOLERANCE)
    assert {doubt.code for doubt in graph.state.doubts} >= set(answer.doubts)


REFUSED = (
    ("legacy_nocat.json", "an export of the older torch.autograd.profiler"),
    ("ts_in_ns.json", "timestamps look like nanoseconds"),
    ("launches_no_kernels.json", "the device part is missing"),
    ("hpu_ops.json", "category hpu_op are work of a device that is not understood"),
    ("nsys_no_cuda.sqlite.gz", "-t cuda,nvtx"),
)


@pytest.mark.parametrize(("file", "cause"), REFUSED)
def test_refusal_names_its_cause(file: str, cause: str) -> None:
    """Not another job's answer, and not another cause."""
    with pytest.raises(foretrace.ForetraceError, match=cause):
        foretrace.build(foretrace.load(REPORTS / file))


def test_infinite_bandwidth_costs_no_copy() -> None:
    """All six copies are there."""
    events = foretrace.load(REPORTS / "inf_bandwidth.json").events

    assert (events["kind"] == "memcpy").sum() == 6


def test_accelerator_is_the_device_that_ran_the_work() -> None:
    """Neither the integrated GPU nor the software renderer."""
    trace = foretrace.load(REPORTS / "nsys_igpu.sqlite.gz")

    assert [device.name for device in trace.meta.devices] == ["NVIDIA A100-SXM4-80GB"]
    assert foretrace.predict(foretrace.build(trace), "device(name='H100')").speedup > 1


def test_merged_processes_are_ranks() -> None:
    """Two of them, with all their events."""
    trace = foretrace.load(REPORTS / "merged_tp.json.gz")

    assert trace.meta.ranks == (0, 1)
    assert "duplicate_events" not in trace.meta.warnings


def test_workers_that_were_never_waited_for_tell_no_cost_of_a_batch() -> None:
    """None at all are refused; four of them change nothing, which no measurement has validated."""
    graph = foretrace.build(foretrace.load(REPORTS / "loader_workers_never_waited_for.json"))
    predicted = foretrace.predict(graph, "dataloader(workers=4)")

    assert predicted.predicted_ns / 1e6 == pytest.approx(1.5, rel=TOLERANCE)
    assert predicted.status == "unvalidated"
    with pytest.raises(foretrace.ForetraceError, match="never waited for"):
        foretrace.predict(graph, "dataloader(workers=0)")
