"""Snapshots of the allocator: levels reckoned backwards from the end."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.cli import app as cli
from foretrace.errors import TraceError
from foretrace.tracer.readers.memory_snapshot import is_snapshot, read_snapshot
from foretrace.util.limits import OBJECTS

if TYPE_CHECKING:
    from pathlib import Path

SNAPSHOT: dict[str, Any] = {
    "segments": [{"device": 0, "total_size": 100, "allocated_size": 30, "blocks": []}],
    "device_traces": [
        [
            {"action": "segment_alloc", "addr": 1, "size": 60, "stream": 0, "time_us": 1},
            {"action": "alloc", "addr": 1, "size": 60, "stream": 0, "time_us": 2},
            {"action": "free_requested", "addr": 1, "size": 60, "time_us": 3},
            {"action": "free_completed", "addr": 1, "size": 60, "time_us": 4},
            {"action": "segment_alloc", "addr": 9, "size": 40, "stream": 0, "time_us": 5},
            {"action": "alloc", "addr": 1, "size": 10, "time_us": 6},
        ],
        [],
    ],
    "allocator_settings": {"expandable_segments": False},
}


def written(folder: Path, value: object) -> Path:
    """Return a pickle of *value*."""
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value))
    return path


def test_levels_follow_from_the_end_backwards(tmp_path: Path) -> None:
    """20 bytes were there before the history began; 80 at the peak, of 60 reserved by then."""
    path = written(tmp_path, SNAPSHOT)
    (history,) = read_snapshot(path)

    assert is_snapshot(path)
    assert history.allocated.tolist() == [20, 20, 80, 80, 20, 20, 30]
    assert history.reserved.tolist() == [0, 60, 60, 60, 60, 100, 100]
    assert history.time_ns.tolist() == [1_000, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"segments": "none"}, "no snapshot of torch's allocator"),
        ({"segments": [{"total_size": -1, "allocated_size": 0}]}, "no snapshot"),
        ({"segments": [{"total_size": 2**60, "allocated_size": 0}]}, "no snapshot"),
        ({"device_traces": [[{"action": 3}]]}, "no snapshot"),
        ({"segments": [], "device_traces": []}, "holds no memory"),
    ],
)
def test_a_snapshot_is_not_believed(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    """Types and bounds are checked."""
    with pytest.raises(TraceError, match=why):
        read_snapshot(written(tmp_path, SNAPSHOT | change))


def test_a_history_that_stands_in_many_places_is_counted_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored once, it would take its square of time."""
    monkeypatch.setenv(OBJECTS.variable, "2000")
    history = [{"action": "alloc", "size": 1}] * 100

    with pytest.raises(TraceError, match=OBJECTS.variable):
        read_snapshot(written(tmp_path, SNAPSHOT | {"device_traces": [history] * 100}))


def test_the_command_reads_a_snapshot_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What-ifs need the trace of the job."""
    path = written(tmp_path, SNAPSHOT)

    assert cli.run(["memory", str(path), "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["changes"], device["device"]) == (6, 0)
    assert cli.run(["memory", str(path)]) == 0
    assert "not handed out" in capsys.readouterr().out
    assert cli.run(["memory", str(path), "amp"]) == 1
    assert "give the trace of the job" in capsys.readouterr().err
