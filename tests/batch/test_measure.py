"""Models of a study: really recorded and measured here, with few steps of the smallest ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.batch import measure as batch_measure
from foretrace.batch.config import ModelEntry
from foretrace.batch.measure import PAIRS, measure_items
from foretrace.batch.worker import evaluate
from foretrace.errors import TransformError
from tests.support.measured.studies import FASTER

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

QUICK = {"rounds": 2, "calibration_seconds": 0.0}


def entry(*names: str, **settings: object) -> ModelEntry:
    """Return an entry that is measured quickly."""
    return ModelEntry([*names], **{**QUICK, **settings})  # type: ignore[arg-type]


def test_changes_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair per change that applies; a second run measures nothing, a torn pair is torn out."""
    asked = entry("dlrm", changes=["fused", "channels_last"])
    (item,) = measure_items([asked], [], tmp_path, tmp_path)
    (row,) = evaluate([item])

    assert (row.recording, row.model) == ("cpu/dlrm/fused", "dlrm")
    assert row.error is None
    assert row.after_ns is not None
    assert row.noise is not None

    monkeypatch.setattr(batch_measure, "run_one", lambda task: f"measured again: {task.changes}")
    assert measure_items([asked], [], tmp_path, tmp_path) == [item]

    (tmp_path / PAIRS / "dlrm" / "fused" / "fused.after.json.xz").unlink()
    (again,) = measure_items([asked], [], tmp_path, tmp_path)
    assert again.recording.problem == "measured again: ['fused']"


def test_a_job_is_recorded_once_and_asked_every_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own function, in a file beside the study."""
    (tmp_path / "jobs.py").write_text(
        "from foretrace.tracer.job import Job\n"
        "def job():\n"
        "    return Job(lambda: sum(range(1000)), name='sums')\n",
        "utf-8",
    )
    wanted = entry("jobs.py:job")
    first = measure_items([wanted], [(FASTER,), ("amp",)], tmp_path, tmp_path / "out")

    assert [item.scenario for item in first] == [(FASTER,), ("amp",)]
    assert {item.recording.problem for item in first} == {None}
    assert {item.recording.model for item in first} == {"jobs.py:job"}

    monkeypatch.setattr(batch_measure, "_record", None)
    assert measure_items([wanted], [(FASTER,)], tmp_path, tmp_path / "out") == first[:1]


def test_what_cannot_be_measured_is_an_item_with_the_reason(
    tmp_path: Path,
) -> None:
    """Unknown models, jobs that fail, no time, no room: the rest goes on."""
    (tmp_path / "file").write_text("no folder", "utf-8")
    place = (tmp_path, tmp_path / "file")
    unknown = measure_items([entry("gnm", changes=["fused"])], [], tmp_path, tmp_path)
    absent = measure_items([entry("jobs.py:job")], [(FASTER,)], tmp_path, tmp_path)
    late = measure_items([entry("jobs.py:job", minutes=0.0)], [(FASTER,)], tmp_path, tmp_path)
    roomless = measure_items([entry("gnn")], [(FASTER,)], *place)
    unmeasured = measure_items([entry("gnn", changes=["fused"])], [], *place)

    assert str(unknown[0].recording.problem).startswith("no model is called 'gnm'")
    assert "jobs.py is no file" in str(absent[0].recording.problem)
    assert str(late[0].recording.problem).startswith("recording took more than 0 min")
    for (item,) in (roomless, unmeasured):
        assert str(item.recording.problem).endswith("Not a directory")


def test_an_unknown_change_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    """It is a mistake in the study file."""
    with pytest.raises(TransformError, match="no change is called 'fusd': fused, amp_bf16"):
        measure_items([entry("gnn", changes=["fusd"])], [], tmp_path, tmp_path)
