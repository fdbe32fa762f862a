"""The calibration file: what is read, and that a bad one is one clear error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.errors import TraceError
from foretrace.graph.literal import literal
from foretrace.tracer.trace import TraceMeta
from foretrace.transforms.batching.batch_size import batch_size
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.compute.fused_optimizer import fused_optimizer
from foretrace.transforms.measured.calibration import (
    Calibration,
    calibration_of,
    calibration_path,
    read_calibration,
)
from foretrace.transforms.measured.change import is_text_of, text_of
from foretrace.transforms.measured.job_identity import attach
from tests.support.recordings.calibrations import FP32, calibration, entries, file_of

if TYPE_CHECKING:
    from pathlib import Path

ROWS = entries(
    [("aten::mm", FP32, 100.0), ("aten::add", FP32, 10.0)],
    {'amp(dtype="bf16")': [("aten::mm", FP32, 50.0, 0)]},
    {("optimizer", ""): 900.0, ("optimizer", 'fused_optimizer(kind="foreach")'): 300.0},
)


def test_a_file_gives_its_lists(tmp_path: Path) -> None:
    """Operators before, after each change, and whole segments; asked for in any spelling."""
    path = tmp_path / "job.calibration.parquet"
    path.write_bytes(file_of(ROWS))

    found = read_calibration(path)

    assert found.before["operator"].tolist() == ["aten::mm", "aten::add"]
    assert found.after(amp)["ns"].tolist() == [50.0]
    assert found.after(partial(batch_size, n=8)).empty
    assert found.segment_ns("optimizer") == 900.0
    assert found.segment_ns("optimizer", partial(fused_optimizer, kind="foreach")) == 300.0
    assert found.segment_ns("optimizer", fused_optimizer) is None
    assert (found.threads, found.device, found.source) == (1, "cpu", path.name)


def test_a_file_may_stand_in_any_order() -> None:
    """Positions give the order, not the rows; a file held in memory reads as one on disk."""
    assert read_calibration(file_of(ROWS[::-1])).before["ns"].tolist() == [100.0, 10.0]


def changed(row: int, **values: Any) -> bytes:
    """Return the file with *values* in one of its rows."""
    return file_of([{**r, **values} if i == row else r for i, r in enumerate(ROWS)])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged calibration"),
        (b"PAR1 no more", "damaged calibration"),
        (file_of(ROWS)[:-9], "damaged calibration"),
        (file_of(ROWS, "text"), "no calibration of Foretrace"),
        (file_of(ROWS, {"format": 2}), "format 2, this Foretrace reads 1"),
        (file_of([{k: v for k, v in r.items() if k != "of"} for r in ROWS]), "column 'of'"),
        (file_of([{**r, "ns": "soon"} for r in ROWS]), "column 'ns' is string"),
        (file_of([{**r, "operator": 3} for r in ROWS]), "column 'operator' is int64"),
        (changed(0, ns=-1.0), "negative or endless"),
        (changed(2, ns=np.inf), "negative or endless"),
        (changed(1, position=7), "positions of its list 'before'"),
        (changed(2, of=2), "'of' points at no row"),
        (changed(2, list="later"), "list 'later' is none of"),
        (changed(2, of=2**40), "damaged calibration"),
        (changed(1, ns=0.0), "holds an operator that takes no time"),
        (changed(2, position=1), "positions of its list 'after' of amp"),
    ],
)
def test_a_bad_file_is_one_clear_error(content: bytes, reason: str) -> None:
    """The text is one line, and says what is wrong with it."""
    with pytest.raises(TraceError, match=reason) as error:
        read_calibration(content)

    assert "\n" not in str(error.value)


AFTER = [("aten::mm", FP32, 50.0, 0), ("aten::add", FP32, 5.0, 1), ("aten::relu", FP32, 5.0, 2)]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (AFTER[:1], "after amp.* lacks operators with 50% of the time before: it is cut short"),
        (AFTER[1:], "lacks operators with 50% of the time"),
        ([("aten::_to_copy", FP32, 5.0, -1)], "lacks operators with 100% of the time"),
        ([AFTER[1], AFTER[0], AFTER[2]], "after amp.* is not in the order of the list 'before'"),
    ],
)
def test_a_list_that_was_cut_is_not_believed(after: Any, reason: str) -> None:
    """What is not in it would be gone from the job."""
    before = [("aten::mm", FP32, 100.0), ("aten::add", FP32, 95.0), ("aten::relu", FP32, 5.0)]

    with pytest.raises(TraceError, match=reason):
        read_calibration(file_of(entries(before, {'amp(dtype="bf16")': after})))


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (amp, AFTER),
        (amp, AFTER[:2]),
        (partial(gradient_accumulation, k=2), [("aten::add_", FP32, 5.0, -1)]),
    ],
)
def test_a_list_may_lose_little(change: Any, after: Any) -> None:
    """A fused operator or two; a list of what is added replaces nothing at all."""
    before = [("aten::mm", FP32, 100.0), ("aten::add", FP32, 95.0), ("aten::relu", FP32, 5.0)]
    found = read_calibration(file_of(entries(before, {text_of(change): after})))

    assert len(found.after(change)) == len(after)


def test_a_list_without_times_is_counted() -> None:
    """One operator of two that were never timed is half of them."""
    before = [("aten::mm", FP32, np.nan), ("aten::add", FP32, np.nan)]

    with pytest.raises(TraceError, match="lacks operators with 50% of the time"):
        read_calibration(file_of(entries(before, {"amp": [("aten::mm", FP32, np.nan, 0)]})))


def test_a_file_says_whose_it_is() -> None:
    """Job and bytes of parameters; what is no such thing is refused."""
    described = {"format": 1, "job": "net", "parameter_bytes": {"model": 80}}

    found = read_calibration(file_of(ROWS, described))

    assert (found.job, found.parameter_bytes) == ("net", {"model": 80})
    wrong: dict[str, Any]
    for wrong in ({"parameter_bytes": 3}, {"threads": -1}, {"device": []}):
        with pytest.raises(TraceError, match="damaged calibration"):
            read_calibration(file_of(ROWS, {"format": 1, **wrong}))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """So is a folder that is given instead."""
    with pytest.raises(TraceError, match=r"none\.parquet: cannot be read"):
        read_calibration(tmp_path / "none.parquet")
    with pytest.raises(TraceError, match="calibration"):
        read_calibration(tmp_path)


@settings(deadline=None)
@given(st.integers(0, len(file_of(ROWS)) - 1), st.integers(1, 255))
def test_damage_never_escapes_as_another_error(place: int, flip: int) -> None:
    """One byte changed anywhere reads as before, or is a TraceError."""
    content = bytearray(file_of(ROWS))
    content[place] ^= flip
    try:
        found = read_calibration(bytes(content))
    except TraceError:
        return

    assert isinstance(found, Calibration)


@pytest.mark.parametrize(
    ("text", "change", "is_same"),
    [
        ("amp", amp, True),
        ('amp(dtype="bf16")', amp, True),
        ("amp(dtype='fp16', attention=None)", partial(amp, dtype="fp16"), True),
        ("amp", partial(amp, dtype="fp16"), False),
        ("batch_size(recorded=None, n=16)", partial(batch_size, n=16), True),
        ("batch_size(recorded=4, n=16)", partial(batch_size, n=16), False),
        ("mine:own(b=1, a='x')", amp, False),
        ("fused_optimizer", amp, False),
        ("not text(", amp, False),
        ("", amp, False),
    ],
)
def test_a_what_if_is_told_by_any_spelling(text: str, change: Any, *, is_same: bool) -> None:
    """Order of parameters, quotes and defaults make no difference."""
    assert is_text_of(text, change) == is_same


def test_the_file_lies_beside_its_trace() -> None:
    """A name without an ending gets one."""
    assert calibration_path("a/job").name == "job.calibration.parquet"
    assert calibration_path("a/job.sqlite.gz").name == "job.calibration.parquet"


def test_another_machine_is_said() -> None:
    """A calibration taken with other threads is attached, and noted."""
    found = replace(calibration([("aten::mm", FP32, 1.0)]), device="EPYC", threads=2)
    meta = TraceMeta(format="foretrace", source="x", machine={"cpu": "EPYC", "threads": 1})
    graph = literal([("mm", "host", 0, 5, "forward")], meta=meta)

    attached = attach(graph, found)

    assert calibration_of(graph) is None
    assert calibration_of(attached) is found
    assert attached.notes == ("the calibration is of another number of threads: 2, recorded on 1",)


def test_a_machine_that_was_not_quiet_is_said() -> None:
    """Long operators count for more: 900 ns that vary by 30 % and 100 by none make 27 %."""
    found = calibration([("aten::mm", FP32, 900.0), ("aten::add", FP32, 100.0)])
    found.entries["spread"] = [0.3, 0.0]

    attached = attach(literal([("mm", "host", 0, 5, "forward")]), found)

    assert found.unrest == pytest.approx(0.27)
    assert attached.notes[0].startswith("the calibrated operators vary by 27% from run to run")
