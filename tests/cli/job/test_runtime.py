"""``foretrace job runtime``: a log, a recording, a recording after a change."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.cli import app as cli
from foretrace.graph.literal import literal
from foretrace.job.runtime.recorded_steps import is_trace, read_recorded_steps
from foretrace.tracer.readers.load import load, save
from tests.support.recordings.kineto import write_small_trace

STEADY = [5.0, *np.tile([0.10, 0.12, 0.11, 0.13], 15)]


def answer(capsys: pytest.CaptureFixture[str], *given: str) -> dict[str, Any]:
    """Run the command and return its JSON."""
    assert cli.run(["job", "runtime", *given, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture
def array(tmp_path: Path) -> str:
    """Write what 61 steps took: 5 s, then 0.115 s on average."""
    np.save(tmp_path / "steps.npy", STEADY)
    return str(tmp_path / "steps.npy")


def test_a_log_says_how_long_its_job_takes(array: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its parts and other readings stand beside the answer."""
    found = answer(capsys, array, "--steps", "1000")

    assert found["answers"]["job"]["value"] == pytest.approx(5 + 999 * 0.115)
    assert found["answers"]["step"]["unit"] == "s"
    assert [row["steps"] for row in found["tables"][0]["rows"]] == [1, 999, 60]
    assert [row["reading"] for row in found["tables"][1]["rows"]] == [
        "start-up and the mean of the rest",
        "steps x mean of the sample",
        "difference of two lengths",
    ]
    assert found["warnings"][0].startswith("the middle half of the steps spreads by 13%")
    assert "more than 10 times as long as its sample" in found["warnings"][1]


def test_the_text_says_the_same(array: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Title, answers, tables."""
    assert cli.run(["job", "runtime", array, "--steps", "1000"]) == 0

    text = capsys.readouterr().out
    assert text.startswith("1,000 steps, from the array\n  job ")
    assert "Parts of the job\n" in text


def test_what_is_held_out_checks_the_answer(array: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty steps predict all 61; each reading shows how far it is off."""
    found = answer(capsys, array, "--steps", "1000", "--skip", "1", "--sample", "20")

    table = found["tables"][1]
    assert table["title"] == "Readings; all 61 samples together took 11.9 s"
    assert table["rows"][0]["error, %"] == pytest.approx(0, abs=1e-9)
    assert table["rows"][1]["error, %"] == pytest.approx(100 * (61 * 0.115 / 11.9 - 1))


def test_samples_of_several_steps_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line every ten steps is a mean of ten: 300 steps of 0.5 s take 150 s."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {10 * at} 2 it/s\n" for at in range(1, 21)))

    found = answer(capsys, str(log), "--steps", "300")

    assert found["answers"]["job"]["value"] == pytest.approx(150)
    assert found["answers"]["step"]["value"] == pytest.approx(0.5)
    assert found["tables"][0]["rows"][0]["steps"] == 10


def test_more_samples_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps that scatter are not within 1 % of anything, and one that wanders never is."""
    np.save(tmp_path / "a.npy", [9.0, *np.tile([0.05, 0.15, 0.1, 0.2, 0.05, 0.1, 0.2], 8)])
    given = (str(tmp_path / "a.npy"), "--steps", "500", "--within")

    assert "to be within 1.0%, take" in answer(capsys, *given, "1")["warnings"][0]
    assert "no number of samples" in answer(capsys, *given, "0.1")["warnings"][0]


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """Write a recording of four steps of 1 ms that took 1 or 1.02 ms without the profiler."""
    trace = load(write_small_trace(tmp_path))
    meta = replace(trace.meta, unprofiled_step_ns=(1_000_000, 1_020_000) * 10, batch_size=8)
    save(replace(trace, meta=meta), tmp_path / "small.parquet")
    return str(tmp_path / "small.parquet")


def test_a_recording_says_how_long_its_job_takes(
    recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps without the profiler are the samples; its start was not recorded."""
    found = answer(capsys, recorded, "--steps", "10000")

    assert found["title"] == "10,000 steps, from steps recorded without the profiler"
    assert found["answers"]["job"]["value"] == pytest.approx(10.1)
    assert found["warnings"][0].startswith("the start of the job was not recorded")
    assert found["warnings"][1].startswith("the recorded steps last 0.02 s")


def test_what_ifs_change_the_job(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The time after is that before times the ratio of the steps, with both uncertainties."""
    found = answer(
        capsys, recorded, "batch_size(n=16)", "faster_kernels(speedup=2)", "--steps", "9"
    )
    assert (
        cli.run(["whatif", recorded, "batch_size(n=16)", "faster_kernels(speedup=2)", "--json"])
        == 0
    )
    predicted = json.loads(capsys.readouterr().out)

    answers = found["answers"]
    ratio = predicted["predicted_step_ms"] / predicted["baseline_step_ms"]
    assert answers["step after"]["value"] == pytest.approx(
        ratio * answers["step"]["value"], rel=1e-5
    )
    assert answers["job after"]["value"] == pytest.approx(9 * answers["step after"]["value"])
    assert answers["job after"]["interval"][0] < answers["job after"]["value"]
    assert answers["job after"]["status"] == "unvalidated"
    assert set(predicted["assumptions"]) <= set(found["assumptions"])
    assert any("2 times as many samples" in warning for warning in found["warnings"])


def test_a_log_and_a_recording_together(
    array: str, recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log says how long the job takes, the recording how much less after the change."""
    given = (array, "faster_kernels(speedup=2)", "--trace", recorded, "--steps", "600")

    answers = answer(capsys, *given)["answers"]

    ratio = answers["step after"]["value"] / answers["step"]["value"]
    assert ratio < 1
    assert answers["job after"]["value"] == pytest.approx(5 + 599 * answers["step after"]["value"])


def test_steps_under_the_profiler_are_named_so() -> None:
    """A recording without others has nothing better."""
    graph = literal([("aten::mm", "host", 0, 5_000, "forward")], wrap=True, measured_step_ns=5_000)

    found = read_recorded_steps(graph)

    assert found.samples.source == "steps recorded under the profiler"
    assert found.warnings[-1].startswith("the steps were measured under the profiler")


def test_a_recording_that_lasts_long_enough_is_not_doubted() -> None:
    """Twenty steps of 0.2 s last 4 s."""
    graph = literal([("aten::mm", "host", 0, 5_000, "forward")], wrap=True, measured_step_ns=5_000)
    meta = replace(graph.meta, unprofiled_step_ns=(200_000_000,) * 20)

    found = read_recorded_steps(replace(graph, meta=meta))

    assert found.warnings == ("the start of the job was not recorded: its start-up is not counted",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "steps.npy: no recording that a what-if could change; give --trace"),
        (("--trace", "missing.json"), "missing.json: there is no such file"),
    ],
)
def test_what_if_of_a_log_alone(
    array: str, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], words: str
) -> None:
    """One sentence, and exit code 1."""
    assert cli.run(["job", "runtime", array, "amp", "--steps", "9", *given]) == 1
    assert words in capsys.readouterr().err


def test_a_missing_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a recording nor a log."""
    assert not is_trace(Path("missing.csv"))
    assert cli.run(["job", "runtime", "missing.csv", "--steps", "9"]) == 1
    assert capsys.readouterr().err == (
        "foretrace: missing.csv: cannot be read (No such file or directory)\n"
    )


def test_what_is_read_of_a_pipe_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it counts: nothing is taken off its front to see what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "seconds\n" + "1\n" * 50_000
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()

    found = answer(capsys, str(pipe), "--steps", "50000")

    writer.join()
    assert found["answers"]["job"]["value"] == 50_000


def test_a_number_of_steps_that_no_job_has_is_wrong_usage() -> None:
    """It is larger than any float, too."""
    assert cli.run(["job", "runtime", "steps.csv", "--steps", "9" * 400]) == 2


def test_a_recording_has_no_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that says nothing is refused, not passed over."""
    trace = str(write_small_trace(tmp_path))

    assert cli.run(["job", "runtime", trace, "--steps", "9", "--column", "x"]) == 1
    assert "column: of a table only, and SAMPLES is a recording" in capsys.readouterr().err
