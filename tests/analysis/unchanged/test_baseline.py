"""One way through: a command replays the unchanged job once, and hands the result on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import foretrace.analysis.validation
import foretrace.page.data  # noqa: F401  # all that replays is loaded before it is counted
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.cli import app as cli
from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.tracer.readers.load import load
from foretrace.transforms.measured.calibration import calibration_of
from foretrace.transforms.scenario import apply
from tests.support.jobs.simple import cpu_job
from tests.support.recordings.calibrations import calibration
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

FASTER = "faster_kernels(pattern='gemm', speedup=3)"
COMMANDS = {
    "replay": ["replay", "TRACE"],
    "summary": ["summary", "TRACE"],
    "whatif": ["whatif", "TRACE", FASTER],
    "explain": ["explain", "TRACE", FASTER],
    "advise": ["advise", "TRACE"],
    "sensitivity": ["sensitivity", "TRACE"],
    "export": ["export", "TRACE", FASTER, "--out", "OUT"],
    "report": ["report", "TRACE", FASTER, "--out", "OUT"],
    "report of the job as it is": ["report", "TRACE", "--out", "OUT"],
    "validate": ["validate", "TRACE", "TRACE", FASTER],
}


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Graph, bool]]:
    """Return what is replayed during a test, and whether as an edit of another graph."""
    seen: list[tuple[Graph, bool]] = []

    def count(graph: Graph, *, like: Timeline | None = None) -> Timeline:
        seen.append((graph, like is not None))
        return replay(graph, like=like)

    for name, module in list(sys.modules.items()):
        if name.startswith("foretrace.") and getattr(module, "replay", None) is replay:
            monkeypatch.setattr(module, "replay", count)
    return seen


@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_is_replayed_once(
    command: str, tmp_path: Path, replayed: list[tuple[Graph, bool]]
) -> None:
    """All else that is replayed is an edit of it, and the change that is asked for is one."""
    trace = str(write_small_trace(tmp_path))
    places = {"TRACE": trace, "OUT": str(tmp_path / "out.html")}

    assert cli.run([places.get(word, word) for word in COMMANDS[command]]) == 0

    by_paper = command == "validate"  # whose constants for a user's own figure are that figure
    twin = command == "validate"  # the second recording is another job
    assert [is_edit for _, is_edit in replayed].count(False) == 1 + twin
    changed = apply(build(load(trace)), FASTER).tasks["work_ns"]
    times = sum(graph.tasks["work_ns"].equals(changed) for graph, _ in replayed)
    assert times == (FASTER in COMMANDS[command]) + by_paper


def test_a_calibration_changes_no_replay() -> None:
    """The same times, of a graph that has it; the baseline that it was attached to has none."""
    baseline = replay_baseline(cpu_job())
    operators = ("aten::addmm", "aten::relu", "aten::mm")
    calibrated = baseline.attach(calibration([(name, "[]", 100.0) for name in operators]))

    assert calibration_of(calibrated.graph)
    assert not calibration_of(baseline.graph)
    assert calibrated.timeline.start_ns is baseline.timeline.start_ns
    assert calibrated.timeline.step_ns == replay(calibrated.graph).step_ns


def test_a_job_without_work_has_a_replay_and_no_prediction() -> None:
    """There is no ratio to form."""
    baseline = replay_baseline(literal([("gemm", "kernel", 0, 0, None)], measured_step_ns=1))

    with pytest.raises(TransformError, match="no work"):
        baseline.require_work()
