"""What is in a trace, for every trace there is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.summary import summarise
from foretrace.cli import app as cli
from foretrace.tracer.readers.load import load
from tests.support.paths import PUBLIC
from tests.support.recordings.kineto import small_trace, write_small_trace

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.analysis.summary import Summary

SHARED = PUBLIC
RECORDINGS = sorted(
    str(path.relative_to(SHARED)) for path in SHARED.glob("*/**/*.gz") if "csv" not in path.name
)
NO_TRACES = (
    "execution-trace",
    "execution-graph",
    "straggler-analysis/result",
)
"""Parts of names of files that are no profiler recordings and are refused with a sentence."""


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Summarise the small recording."""
    return summarise(load(write_small_trace(tmp_path)))


def test_kernels_are_counted_and_classed(summary: Summary) -> None:
    """Four steps of three kernels: 2, 0.8 and 0.6 ms."""
    assert summary.events["kernel"] == 12
    assert summary.classes_ns == {"gemm": 2_000_000, "pointwise": 800_000, "optimizer": 600_000}
    assert summary.kernels_ns["ampere_sgemm_128x64_nn"] == (2_000_000, 4)
    assert summary.busy_ns == 3_400_000


def test_work_is_told_by_phase(summary: Summary) -> None:
    """Device time per step: forward 0.7 ms, optimizer 0.15."""
    assert summary.steps is not None

    assert summary.steps.phases_ns["forward"][1] == 700_000
    assert summary.steps.phases_ns["optimizer"][1] == 150_000


def test_edges_are_counted_with_their_rule(summary: Summary) -> None:
    """Every kernel of the window has a launch edge."""
    assert summary.steps is not None
    launches = sum(n for (kind, _), n in summary.steps.edges.items() if kind == "launch")

    assert launches == 3 * summary.steps.count


def test_a_pattern_names_the_steps(tmp_path: Path) -> None:
    """What the user calls a step is one."""
    trace = load(write_small_trace(tmp_path))

    assert summarise(trace, step_pattern="Optimizer.step").steps is not None


def without_work(folder: Path) -> Path:
    """Write a recording of nothing but the profiler's own doings."""
    trace = small_trace()
    trace["traceEvents"] = [{**event, "cat": "overhead"} for event in trace["traceEvents"]]
    path = folder / "overhead.json"
    path.write_text(json.dumps(trace), "utf-8")
    return path


def test_a_recording_without_steps_has_a_summary(tmp_path: Path) -> None:
    """What needs steps is absent, with the reason."""
    found = summarise(load(without_work(tmp_path)))

    assert found.steps is None
    assert "neither host nor device work" in str(found.steps_problem)
    assert found.events == {"overhead": 48}


def test_a_summary_without_steps_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text and JSON both say why there are none."""
    path = without_work(tmp_path)

    assert cli.run(["summary", str(path)]) == 0
    assert re.search(r"steps +none  .*neither host nor device work", capsys.readouterr().out)
    assert cli.run(["summary", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured_step_ms"] is None


@pytest.mark.parametrize("pattern", ["no such range", "["])
def test_a_pattern_that_finds_no_steps_is_an_error(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who names the steps wants to see them."""
    assert cli.run(["summary", str(write_small_trace(tmp_path)), "--step", pattern]) == 1

    shown = capsys.readouterr()
    assert shown.err.startswith(f"foretrace: step pattern {pattern!r} ")
    assert not shown.out


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS or ["absent"])
def test_every_public_recording_opens_or_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording has a summary; anything else is refused in one sentence."""
    if not SHARED.exists():
        pytest.skip(f"the public recordings are not here: {SHARED}")
    is_trace = not any(part in name for part in NO_TRACES)
    code = cli.run(["summary", str(SHARED / name), "--json"])
    shown = capsys.readouterr()

    assert code == (0 if is_trace else 1), shown.err
    if is_trace:
        assert json.loads(shown.out)["events"]
    else:
        assert shown.err.count("\n") == 1
