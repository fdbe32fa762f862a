"""Calibration files and the table of operator times: written, read, merged; the command itself."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.cli.app import run
from foretrace.errors import RecordError
from foretrace.tracer.calibration import cache as timing_cache
from foretrace.tracer.calibration.file import (
    CalibrationRow,
    Timing,
    Where,
    merge,
    pack_table,
    read,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

HERE = Where("a CPU", 1, "2.13", "job")
MM, ADD = (
    CalibrationRow("", "before", 0, f"aten::{name}", "[]", "forward", ns=5.0)
    for name in ("mm", "add")
)
AMP = replace(MM, change="amp()", list="after", of=0, ns=7.0)
BATCH = replace(AMP, change="batch_size(n=8)", ns=9.0)
JOB = """
import torch
from foretrace.tracer.job import Job

def job(batch_size=2):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(batch_size, 4)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return Job(step, model, optimizer, batch_size, name="small")

def rigid():
    return job()
"""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Rows and machine come back; unknown times stay unknown."""
    path = tmp_path / "x.calibration.parquet"
    write([MM, replace(AMP, ns=math.nan)], HERE, path)
    (before, after), where = read(path)
    assert where == HERE
    assert before.ns == 5
    assert math.isnan(before.device_ns)
    assert (after.change, after.of) == ("amp()", 0)
    assert math.isnan(after.ns)


def test_whose_it_is_comes_back(tmp_path: Path) -> None:
    """The bytes of its parameters; files of before do not say them."""
    path = tmp_path / "x.calibration.parquet"
    write([MM], replace(HERE, parameter_bytes={"model": 80}), path)
    assert read(path)[1].parameter_bytes == {"model": 80}
    content = pa.table({name: [value] for name, value in vars(MM).items()})
    described = {"device": "a CPU", "threads": 1, "torch": "2.13", "job": "job"}
    path.write_bytes(pack_table(content, described))
    assert read(path)[1] == HERE


def test_changes_of_one_job_merge(tmp_path: Path) -> None:
    """A change that both files have is the later one's."""
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    write([MM, AMP], HERE, one)
    write([MM, replace(AMP, ns=8.0), BATCH], HERE, two)
    assert merge([one, two], out) == 2
    assert {row.change: row.ns for row in read(out)[0]} == {
        "": 5.0,
        "amp()": 8.0,
        "batch_size(n=8)": 9.0,
    }


@pytest.mark.parametrize(
    ("rows", "where", "text"),
    [
        ([MM, AMP], replace(HERE, threads=2), "differ: threads 1, threads 2"),
        ([ADD, AMP], HERE, "are of jobs with other operators"),
        ([MM, AMP], replace(HERE, parameter_bytes={"model": 8}), "differ: parameter_bytes"),
    ],
)
def test_what_does_not_go_together_is_refused(
    rows: list[CalibrationRow], where: Where, text: str, tmp_path: Path
) -> None:
    """Times of other machines and other jobs are never mixed."""
    write([MM, AMP], HERE, tmp_path / "one")
    write(rows, where, tmp_path / "two")
    with pytest.raises(RecordError, match=text):
        merge([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _without(column: str) -> bytes:
    content = pa.table({"change": [""], "list": ["before"], "device": ["x"]})
    return pack_table(content.drop_columns([column]), {})


def _other() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "cannot be read as a calibration"),
        (b"PAR1 and then nothing", "cannot be read as a calibration"),
        (_other(), "no calibration of format 1"),
        (_without("list"), "the column 'list' is missing"),
    ],
    ids=["empty", "broken", "other", "short"],
)
def test_bad_files_are_one_clear_error(content: bytes, text: str, tmp_path: Path) -> None:
    """The text names the file and says what to do."""
    path = tmp_path / "bad.parquet"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=text) as error:
        read(path)
    assert "bad.parquet" in str(error.value)


def test_the_table_knows_machines_apart(tmp_path: Path) -> None:
    """What was timed with other threads, device or torch is not known here."""
    table = tmp_path / "cache" / "operators.parquet"
    key = ("aten::mm", "[]")
    assert timing_cache.load(table, HERE) == {}
    timing_cache.add(table, HERE, {key: Timing(1.0, 2.0, 0.5)})
    timing_cache.add(table, replace(HERE, threads=2), {key: Timing(3.0, 4.0, 0.5)})
    assert timing_cache.load(table, HERE) == {key: Timing(1.0, 2.0, 0.5)}
    assert timing_cache.load(table, replace(HERE, torch="2.14")) == {}
    assert timing_cache.load(table, replace(HERE, job="another")) != {}
    assert timing_cache.is_table(table)


def test_tables_merge_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables of two machines become one that can be shipped."""
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    timing_cache.add(one, HERE, {("aten::mm", "[]"): Timing(1.0)})
    timing_cache.add(two, replace(HERE, device="another"), {("aten::mm", "[]"): Timing(2.0)})
    assert run(["calibrate", "--merge", str(one), str(two), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: 2 operator time(s)\n"
    assert len(timing_cache.load(out, HERE)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["calibrate"], 2, "give TRACE TARGET TRANSFORM"),
        (["calibrate", "--merge", "x"], 1, "--merge needs files and --out FILE"),
        (["calibrate", "t", "m:f", "remove_sync(pattern='x')"], 1, "remove_sync needs no calib"),
        (["calibrate", "t", "m:f", "amp"], 1, "t: there is no such file"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text says what to give instead."""
    pytest.importorskip("torch")
    assert run(arguments) == code
    told = capsys.readouterr().err
    assert text in told
    assert told.count("\n") == 1


def test_a_recorded_job_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file lies beside the trace; a later what-if joins it; one without any image does not."""
    pytest.importorskip("torch")
    script = tmp_path / "calibrated_job.py"
    script.write_text(JOB)
    trace, table = tmp_path / "t.parquet", tmp_path / "table.parquet"
    target = f"{script}:job"
    assert run(["record", target, "--out", str(trace), "--steps", "1"]) == 0
    cached = ["--cache", str(table), "--seconds", "3"]
    first = ["amp", "channels_last", "fused_optimizer(kind='foreach')"]
    assert run(["calibrate", str(trace), target, *first, *cached]) == 0
    assert run(["calibrate", str(trace), target, "batch_size(n=4)", *cached]) == 0
    rows, where = read(tmp_path / "t.calibration.parquet")
    assert where.job == "small"
    assert {row.change for row in rows} == {
        "",
        "amp()",
        'fused_optimizer(kind="foreach")',
        "batch_size(n=4)",
    }
    assert len(timing_cache.load(table, where)) > 3
    capsys.readouterr()
    write([MM], replace(where, job="another"), tmp_path / "t.calibration.parquet")
    assert run(["calibrate", str(trace), target, "fused_optimizer(kind='foreach')", *cached]) == 0
    assert "was of another job or machine" in capsys.readouterr().err
    refused = ["calibrate", str(trace), f"{script}:rigid", "batch_size(n=4)", "--no-cache"]
    assert run(refused) == 1
    assert "takes no keyword batch_size" in capsys.readouterr().err
