"""What a worker makes of items: always a row, never an error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.batch.items import Recording, add_digest, list_pairs, make_failed, make_items
from foretrace.batch.worker import evaluate
from foretrace.tracer.readers.load import load, save
from tests.support.measured.studies import FASTER, write_pair
from tests.support.recordings.kineto import small_trace, write_small_trace

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pair_is_predicted_from_its_own_measurement(tmp_path: Path) -> None:
    """2 ms before, 1 ms after, as measured beside each other."""
    write_pair(tmp_path)
    (row,) = evaluate(list_pairs(tmp_path))

    assert (row.before_ns, row.after_ns, row.noise) == (2e6, 1e6, 0.01)
    assert row.hardware == "gpu"
    assert row.predicted_ns == pytest.approx(1.87e6)  # 65 of 1000 us less host work per step


@pytest.mark.parametrize(("after_ns", "noise"), [((10**6, 10**6), 0.0), ((10**6, 1_500_000), 0.5)])
def test_recordings_made_apart_are_as_noisy_as_they_drift(
    after_ns: tuple[int, int], noise: float, tmp_path: Path
) -> None:
    """The one that drifts most counts; steps under the profiler say nothing."""
    trace = load(write_small_trace(tmp_path))
    files = []
    for name, steps in (("before", (10**6, 10**6)), ("after", after_ns)):
        meta = replace(trace.meta, unprofiled_step_ns=steps)
        files.append(str(save(replace(trace, meta=meta), tmp_path / f"{name}.parquet")))
    recording = add_digest(Recording("a", "a", (files[0],), after=files[1]))
    (row,) = evaluate(make_items(recording, [(FASTER,)]))

    assert row.noise == noise


def test_what_could_not_be_recorded_is_a_failed_row() -> None:
    """With the reason that is known."""
    (row,) = evaluate([make_failed("cpu/x", "x", (FASTER,), "no room")])

    assert (row.error, row.is_final, row.transforms) == ("no room", False, "faster_host")


def test_errors_that_are_no_input_s_fault_are_rows_too(tmp_path: Path) -> None:
    """A what-if may exhaust the memory; it is named, and tried again by the next run."""
    (tmp_path / "greedy.py").write_text(
        "def greedy(graph):\n    raise MemoryError('all of it')\n", "utf-8"
    )
    recording = add_digest(Recording("a", "a", (str(write_small_trace(tmp_path)),)))
    greedy, faster = evaluate(
        make_items(recording, [(f"{tmp_path / 'greedy.py'}:greedy",), (FASTER,)])
    )

    assert "MemoryError" in str(greedy.error)
    assert faster.error is None


def test_a_worker_of_another_version_does_no_work() -> None:
    """Its rows would not be what their key says."""
    (row,) = evaluate([replace(make_failed("cpu/x", "x", (FASTER,), "no room"), version="0.0.1")])

    assert str(row.error).endswith("the batch is of 0.0.1")
    assert row.version == "0.0.1"
    assert not row.is_final


def test_a_file_that_breaks_its_reader_is_a_failed_row(tmp_path: Path) -> None:
    """Nothing of a recording without steps can be predicted, and nothing is final."""
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": []}', "utf-8")
    (row,) = evaluate(make_items(add_digest(Recording("a", "a", (str(path),))), [(FASTER,)]))

    assert row.error
    assert not row.is_final
    assert small_trace()["traceEvents"]
