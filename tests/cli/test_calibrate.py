"""``foretrace calibrate``: what it times, what it leaves out and why, and what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.cli import app as cli
from foretrace.cli.calibrate import keep_readable
from foretrace.tracer.calibration.file import CalibrationRow, Where
from foretrace.transforms.measured.calibration import read_calibration

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")

JOBS = """
import torch
from foretrace.tracer.job import Job


def build(size, dtype):
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 4)
    update = torch.optim.Adam(layer.parameters())
    x = torch.ones(size, 16)

    def step():
        update.zero_grad()
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = layer(x).square().mean()
        loss.backward()
        update.step()

    return Job(step, layer, update, size)


def decides():
    return build(8, None)


def asks(amp=None, batch_size=8):
    return build(batch_size, amp and torch.bfloat16)


def ignores(batch_size=8):
    return build(8, None)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: Any) -> Path:
    """Return a folder with the jobs and a recording of them: they are alike."""
    folder: Path = tmp_path_factory.mktemp("jobs")
    (folder / "jobs.py").write_text(JOBS, "utf-8")
    target, out = f"{folder}/jobs.py:decides", f"{folder}/t.parquet"
    assert cli.run(["record", target, "--steps", "1", "--out", out]) == 0
    return folder


def calibrate(folder: Path, job: str, *what_ifs: str) -> int:
    """Run the command; return its exit code."""
    target = f"{folder}/jobs.py:{job}"
    options = ["--seconds", "1", "--no-cache"]
    return cli.run(["calibrate", f"{folder}/t.parquet", target, *what_ifs, *options])


def test_what_cannot_be_timed_does_not_stop_the_rest(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One what-if needs no calibration, the function lacks what another one needs: both said."""
    assert calibrate(recorded, "decides", "faster_host(speedup=2)", "batch_size(n=16)") == 1
    said = capsys.readouterr().err
    assert "faster_host needs no calibration" in said

    given = "fused_optimizer", "faster_host(speedup=2)", "batch_size(n=16)"
    assert calibrate(recorded, "decides", *given) == 0
    said = capsys.readouterr().err
    assert "not timed: faster_host needs no calibration" in said
    assert "takes no keyword batch_size: let the function have batch_size=" in said
    kept = read_calibration(recorded / "t.calibration.parquet").entries
    assert [text for text in kept["change"].unique() if text] == ["fused_optimizer()"]


def test_a_change_that_changes_nothing_is_refused(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Autocast that the job switches off itself, and a batch size that it does not use."""
    assert calibrate(recorded, "decides", "amp") == 1
    assert "let the function have amp=" in capsys.readouterr().err

    assert calibrate(recorded, "ignores", "batch_size(n=16)") == 1
    assert "it changes no operator" in capsys.readouterr().err


def test_a_job_may_say_itself_what_runs_under_autocast(recorded: Path) -> None:
    """Asked for 16 bits it multiplies in them, and casts its weight."""
    assert calibrate(recorded, "asks", "amp", "batch_size(n=16)") == 0
    entries = read_calibration(recorded / "t.calibration.parquet").entries
    after = entries.query("list == 'after' and change == 'amp()'")
    products = after[after["operator"] == "aten::addmm"]["arguments"].astype(str)

    assert products.str.contains("bfloat16").all()
    assert after["operator"].isin(["aten::_to_copy"]).any()


def test_nothing_is_written_that_a_reader_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    """A list after a change that lost half of the work is left out, with the reason."""
    before = [
        CalibrationRow("", "before", place, name, "[]", "forward", ns=ns)
        for place, (name, ns) in enumerate([("aten::mm", 100.0), ("aten::relu", 100.0)])
    ]
    cut = CalibrationRow("amp()", "after", 0, "aten::mm", "[]", "forward", of=0, ns=50.0)
    whole = [
        CalibrationRow("channels_last()", "after", place, name, "[]", "forward", of=place, ns=50.0)
        for place, name in enumerate(["aten::mm", "aten::relu"])
    ]

    kept = keep_readable([*before, cut, *whole], Where("cpu", 1, "2", "job"))

    assert kept == [*before, *whole]
    assert "not timed: amp(): the list after amp() lacks operators" in capsys.readouterr().err
