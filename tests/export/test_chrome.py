"""Timelines for Perfetto: what the viewer needs to show them in full."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.export.chrome import export_timeline, write_events
from foretrace.graph.literal import literal
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = literal(
    [
        ("aten::mm", "host", 0, 5_000, "forward"),
        ("cudaLaunchKernel", "launch", 0, 2_000, "forward"),
        ("gemm", "kernel", 1, 30_000, "forward"),
        ("relu", "kernel", 1, 10_000, None),
    ],
    [(1, 2, "launch", 4_000)],
    wrap=True,
    measured_step_ns=40_000,
)
SCENARIO = parse_scenario(["faster_kernels(speedup=2)"])


@pytest.fixture
def events(tmp_path: Path) -> list[dict[str, Any]]:
    """Export before and after and read the file back."""
    path = tmp_path / "timeline.json"
    export_timeline(GRAPH, SCENARIO, path)
    loaded = json.loads(path.read_text("utf-8"))

    assert loaded["displayTimeUnit"] == "ms"
    return list(loaded["traceEvents"])


def test_before_and_after_are_two_processes(events: list[dict[str, Any]]) -> None:
    """Each variant has its own process id and name."""
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}

    assert names == {1: "before, rank 0", 2: "after, rank 0"}


def test_every_task_is_one_slice(events: list[dict[str, Any]]) -> None:
    """A slice has the task's length in microseconds."""
    slices = [e for e in events if e["ph"] == "X" and e["cat"] != "critical path"]
    lengths = {(e["pid"], e["name"]): e["dur"] for e in slices}

    assert len(slices) == 8
    assert (lengths[1, "gemm"], lengths[2, "gemm"]) == (30.0, 15.0)


def test_slices_of_a_track_do_not_cross(events: list[dict[str, Any]]) -> None:
    """The viewer drops slices that begin inside one another and end outside."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in events:
        if e["ph"] == "X":
            tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in tracks.values():
        ends = sorted(spans)

        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(ends))


def test_arrows_pair_up_and_lie_within_slices(events: list[dict[str, Any]]) -> None:
    """Every arrow has one beginning and one end, each within a slice of its track."""
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    slices = [e for e in events if e["ph"] == "X"]

    assert [e["name"] for e in begins.values()] == ["launch", "critical path"] * 2
    assert begins.keys() == ends.keys()
    assert all(e["bp"] == "e" for e in ends.values())
    for end in (*begins.values(), *ends.values()):
        where = (end["pid"], end["tid"])
        assert any(
            (e["pid"], e["tid"]) == where and e["ts"] <= end["ts"] < e["ts"] + e["dur"]
            for e in slices
        )


def test_outstanding_launches_are_a_counter(events: list[dict[str, Any]]) -> None:
    """A launch is outstanding from its call until its kernel starts."""
    counted = [(e["ts"], e["args"]["launches"]) for e in events if e["ph"] == "C"]

    assert len(counted) == 4
    assert [value for _, value in counted[:2]] == [1, 0]


def test_every_track_has_a_name(events: list[dict[str, Any]]) -> None:
    """No track shows as a bare number."""
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xsf"}

    assert used == named


def test_unknown_facts_are_left_out(events: list[dict[str, Any]]) -> None:
    """A missing phase is no argument of the slice, never a placeholder."""
    facts = {e["name"]: e["args"] for e in events if e["ph"] == "X" and e["pid"] == 1}

    assert facts["relu"].get("phase") is None
    assert facts["aten::mm"]["phase"] == "forward"


def test_without_a_scenario_there_is_one_variant(tmp_path: Path) -> None:
    """A plain export shows the replay of the recording."""
    path = tmp_path / "timeline.json"
    export_timeline(GRAPH, (), path)

    assert {e["pid"] for e in json.loads(path.read_text("utf-8"))["traceEvents"]} == {1}


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    """The old file stays, and no temporary file is left."""
    path = tmp_path / "timeline.json"
    path.write_text("old", "utf-8")

    with pytest.raises(TypeError):
        write_events(iter([{"ph": object()}]), path)
    assert [p.name for p in tmp_path.iterdir()] == ["timeline.json"]
    assert path.read_text("utf-8") == "old"
