"""What `job resources` takes from a recording, and the replay's answers beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.cli import app as cli
from foretrace.errors import RefusedError
from foretrace.graph.literal import literal
from foretrace.job.resources.file import GivenGrid, GivenJob, GivenMachine, Resources
from foretrace.job.resources.recorded_loader import compare_loaders, job_of, machine_of
from foretrace.tracer.readers.load import load, save
from foretrace.tracer.trace import TraceMeta
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph

RECORDED = ROOT / "traces/job/batch-schedules/mlp-16.parquet"
META = TraceMeta(format="foretrace", source="literal")


def recorded(**loader: object) -> Graph:
    """Return a job that trains for 20 ms and loads for 30 ms, half of it waiting."""
    meta = replace(
        META,
        batch_size=10,
        loader={"workers": 0, "prefetch": 2, "load_ns": 30_000_000, "cpu_share": 0.5, **loader},
        machine={"cores": 2, "threads": 1},
        unprofiled_step_ns=(49_000_000, 50_000_000, 51_000_000),
    )
    tasks = [
        ("next", "host", 0, 30_000_000, "load"),
        ("aten::mm", "host", 0, 20_000_000, "forward"),
    ]
    return literal(tasks, meta=meta, measured_step_ns=50_000_000, wrap=True)


def given(machine: GivenMachine | None = None, **job: object) -> Resources:
    """Return a file that says as little as it may."""
    return Resources(
        job=GivenJob(samples=100, dataset_gb=0.1, **job),  # type: ignore[arg-type]
        machine=machine or GivenMachine(disk_mbps=50),
        grid=GivenGrid(cores=[1, 2], cache=[1.0]),
    )


def test_a_recording_says_what_a_step_costs() -> None:
    """Training is the step without loading, preparing is the part that computes."""
    job = job_of(given(), recorded())

    assert sum(job.compute) / 3 == pytest.approx(0.02)
    assert job.prepare == (0.015,)
    assert job.hand_over == pytest.approx(0.0025)
    assert (job.batch_size, job.threads) == (10, 1)


def test_the_file_goes_before_the_recording() -> None:
    """Each value on its own."""
    job = job_of(given(compute_ms=7.0, hand_over_ms=0.0, threads=2.0), recorded(cpu_share=None))

    assert job.compute == (0.007,)
    assert job.prepare == (0.03,)
    assert (job.hand_over, job.threads) == (0.0, 2.0)


def test_workers_that_keep_up_leave_the_whole_step_to_training() -> None:
    """What they load is hidden."""
    assert sum(job_of(given(), recorded(workers=2)).compute) / 3 == pytest.approx(0.05)


def test_without_a_loader_nothing_is_known_of_loading() -> None:
    """The sentence says what to give."""
    graph = recorded(load_ns=None)

    with pytest.raises(RefusedError, match=r"\[job\] compute_ms is not known"):
        job_of(given(), graph)


def test_the_machine_is_the_recorded_one() -> None:
    """Where the file names no cores; the grid's largest number where nobody does."""
    assert machine_of(given(), recorded(), probe=False).cores == 2
    assert machine_of(given(), None, probe=False).effective_cores == 2.0
    storage = machine_of(
        given(GivenMachine(disk_mbps=50, stream_mbps=5)), None, probe=False
    ).storage
    assert (storage.disk, storage.reader) == (50e6, 5e6)
    with pytest.raises(RefusedError, match="effective_cores = 3 of 2 cores"):
        machine_of(given(GivenMachine(disk_mbps=50, effective_cores=3.0)), None, probe=False)


def test_effective_cores_are_measured_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, for as many cores as the machine has."""
    monkeypatch.setattr(
        "foretrace.job.resources.recorded_loader.effective_cores", lambda cores: cores / 2
    )

    assert machine_of(given(), recorded(), probe=True).effective_cores == 1.0


def test_the_replay_stands_beside_the_closed_form() -> None:
    """Both load as recorded; only the form lets the worker pay for handing over, too."""
    graph = recorded()
    alone, one = compare_loaders(replay_baseline(graph), job_of(given(), graph), {1, 0})

    assert alone.form_ms == pytest.approx(50)
    assert alone.replay_ms == pytest.approx(50)
    assert one.form_ms == pytest.approx(32.5)
    assert one.replay_ms == pytest.approx(30)


def test_a_replay_that_does_not_apply_is_left_out() -> None:
    """A recording that does not say how its batches are made."""
    graph = recorded(workers=2, load_ns=None)
    job = job_of(given(compute_ms=20.0, prepare_ms=1.0), graph)

    assert compare_loaders(replay_baseline(graph), job, {1})[0].replay_ms is None


def test_the_command_takes_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a loader it says one sentence; with one the replay stands beside the closed form."""
    file = tmp_path / "r.toml"
    file.write_text(
        "[job]\nsamples = 100\ndataset_gb = 1\n[machine]\ndisk_mbps = 50\n"
        "[grid]\ncores = [1]\ncache = [1.0]\n",
        "utf-8",
    )
    loading = tmp_path / "loading.parquet"
    trace = load(RECORDED)
    facts = {"workers": 0, "prefetch": 2, "load_ns": 1_000_000, "cpu_share": 1.0}
    save(replace(trace, meta=replace(trace.meta, loader=facts)), loading)

    assert cli.run(["job", "resources", str(file), "--trace", str(RECORDED)]) == 1
    assert "[job] compute_ms is not known" in capsys.readouterr().err
    assert cli.run(["job", "resources", str(file), "--trace", str(loading)]) == 0
    assert "Loading as recorded, ms per step" in capsys.readouterr().out


def test_a_recording_that_drifts_is_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second half of its steps is a fifth slower."""
    file = tmp_path / "r.toml"
    file.write_text(
        "[job]\nsamples = 100\ndataset_gb = 1\n[machine]\ndisk_mbps = 50\n"
        "[grid]\ncores = [1]\ncache = [1.0]\n",
        "utf-8",
    )
    trace = load(RECORDED)
    facts = {"workers": 0, "prefetch": 2, "load_ns": 1_000_000, "cpu_share": 1.0}
    steps_ns = (20_000_000,) * 10 + (24_000_000,) * 10
    drifting = replace(trace.meta, loader=facts, unprofiled_step_ns=steps_ns)
    save(replace(trace, meta=drifting), tmp_path / "loading.parquet")

    assert cli.run(["job", "resources", str(file), f"--trace={tmp_path / 'loading.parquet'}"]) == 0
    assert "the steps measured without the profiler drift by 20.0%" in capsys.readouterr().out
