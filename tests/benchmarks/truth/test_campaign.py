"""The campaign: processes that measure, what is kept, and what is made again."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.truth import __main__ as command
from benchmarks.truth import campaign
from benchmarks.truth.campaign import Visit, cores_of, forget, measure, plain_environment
from benchmarks.truth.looks import count_looks, note_look
from benchmarks.truth.recorded import script_of
from benchmarks.truth.spec import DrawnJob, Sizes, read_jobs, to_json
from foretrace.tracer.job import load_job

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

JOB = DrawnJob(
    "small",
    "loop",
    "two_optimizers",
    held_out=False,
    threads=1,
    batch_size=4,
    sizes=Sizes(8, 1, 8, {"seconds": 0.05}),
    changes=("batch_size", "cpu_cores"),
)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a side computes on two cores")
def test_plain_processes_know_nothing_of_the_package() -> None:
    """Base and changes are timed in turns by processes that never import foretrace."""
    code = (
        "import sys\nfrom benchmarks.truth import plain\nplain.main()\n"
        "sys.stderr.write(repr([m for m in sys.modules if m.startswith('foretrace')]))"
    )
    plan = {"job": to_json(JOB), "blocks": 2, "cores": sorted(os.sched_getaffinity(0))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(plan),
        env=plain_environment(1),
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout.splitlines()[-1])
    assert done.stderr.splitlines()[-1] == "[]"
    assert measured["errors"] == {}
    sides = [block["side"] for block in measured["blocks"]]
    forwards = ["base", "batch_size", "cpu_cores", "base"]
    assert sides == [*forwards, *reversed(forwards)]
    assert all(ns > 0 for block in measured["blocks"] for ns in block["step_ns"])


@pytest.mark.slow
def test_a_side_that_fails_costs_only_itself() -> None:
    """The error of a side is kept in its own words; the others are measured."""
    broken = DrawnJob(**{**JOB.__dict__, "removed": "nowhere.0", "changes": ("remove_modules",)})
    plan = {"job": to_json(broken), "blocks": 1, "cores": [0]}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.truth.plain"],
        input=json.dumps(plan),
        env=plain_environment(1),
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["errors"]["remove_modules"].startswith("AttributeError")
    assert {block["side"] for block in measured["blocks"]} == {"base"}


def test_scripts_are_jobs_of_the_package(tmp_path: Path) -> None:
    """A script's function takes the batch size, and gives what can be recorded."""
    script = tmp_path / "job.py"
    script.write_text(script_of(JOB))
    job = load_job(f"{script}:job", batch_size=6)
    assert (job.batch_size, job.name) == (6, "small")
    job.step()


def test_what_is_there_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign that was ended goes on with the first result that is missing."""
    made: list[str] = []

    def process(_visit: Visit, module: str, arguments: Any, _given: str = "") -> dict[str, Any]:
        made.append(arguments[0] if arguments else module.rpartition(".")[2])
        out = json.dumps({"blocks": [], "errors": {}})
        return {"code": 0, "out": out, "why": "", "errors": ""}

    monkeypatch.setattr(Visit, "_process", process)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / campaign.RECORDING).touch()
    said: list[str] = []
    far = time.time() + 60
    assert not measure([JOB], tmp_path, deadline=0, say=said.append)
    assert measure([JOB], tmp_path, deadline=far, say=said.append)
    assert made == ["plain", "record", "plain", "calibrate", "plain"]
    assert measure([JOB], tmp_path, deadline=far, say=said.append)
    assert len(made) == 5
    forget([JOB], tmp_path, "record")
    assert Visit(JOB, tmp_path / "small").missing() == ["record", "calibrate"]
    assert said[0] == "out of time: the same command goes on from here"


def test_rounds_go_on_until_ratios_settle() -> None:
    """Two quiet rounds are enough; noisy ones end with the time that they have."""
    from benchmarks.truth.plain import conduct

    class Side:
        """Takes 100 ns, and in turns as much more as it is noisy."""

        error, pause, steps, process = "", 0.0, 0, 0

        def __init__(self, noise: int) -> None:
            self.times = itertools.cycle([100, 100 + noise])

        def ask(self, _steps: int) -> dict[str, list[int]]:
            return {"step_ns": [next(self.times)]}

    quiet, noisy = (
        conduct({"base": Side(0), "amp": Side(noise)}, 2, seconds)  # type: ignore[dict-item]
        for noise, seconds in ((1, 60.0), (50, 0.05))
    )

    assert {block["block"] for block in quiet["blocks"]} == {0, 1}
    assert max(block["block"] for block in noisy["blocks"]) > 2


def test_one_thread_gets_one_core() -> None:
    """Workers of a loader need another core; two threads, too."""
    assert len(cores_of(JOB)) == 1
    assert cores_of(DrawnJob(**{**JOB.__dict__, "workers": 1})) == campaign.all_cores()


def test_looks_are_written_down(tmp_path: Path) -> None:
    """Every look at held-out predictions leaves a line with the date and the reason."""
    log = tmp_path / "looks.tsv"
    note_look(log, tmp_path / "quiet", "the end")
    note_look(log, tmp_path / "quiet", "a new third")
    assert count_looks(log) == 2
    assert count_looks(tmp_path / "none.tsv") == 0
    head, first, second = log.read_text().splitlines()
    assert head == "date\tcommit\tfolder\twhy"
    assert first.endswith("\tquiet\tthe end")
    assert second.endswith("a new third")


def test_families_are_measured_in_turns() -> None:
    """An early end leaves some jobs of every family."""
    jobs = read_jobs()
    first = command.chosen(jobs, [])[: len(jobs) // 4]
    assert {job.family for job in first} == {"transformers", "vision", "loop"}
    with pytest.raises(SystemExit, match="no job is called nothing"):
        command.chosen(jobs, ["nothing"])
