"""Recording real jobs: a few steps of a tiny network on this machine's CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError, TraceError
from foretrace.tracer.job import Job
from foretrace.tracer.readers.load import load
from foretrace.tracer.recording.record import record, recording
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")

SHORT: dict[str, Any] = {"steps": 2, "warmup": 1, "windows": 1}


def tiny_job(loader: Any = None, **optimizer: Any) -> Job:
    """Return a two-layer network with Adam."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    adam = torch.optim.Adam(model.parameters(), **optimizer)

    def step(batch: Any = None) -> None:
        adam.zero_grad()
        model(torch.ones(4, 8) if batch is None else batch[0]).sum().backward()
        adam.step()

    return Job(step, model, adam, 4, loader, name="tiny")


def test_a_recording_knows_its_job() -> None:
    """Events, both kinds of step times and everything that is not an event are there."""
    trace = record(tiny_job(foreach=False), **SHORT)
    meta = trace.meta
    assert meta.framework == f"torch {torch.__version__}"
    assert meta.batch_size == 4
    assert meta.source == "tiny"
    assert meta.optimizer == {
        "name": "Adam",
        "kind": "loop",
        "parameters": 72,
        "tensors": 2,
        "bytes": 288,
        "state_passes": 7,
    }
    assert len(meta.unprofiled_step_ns) == 15
    assert len(meta.profiled_step_ns) == 2
    assert meta.extra["blocks"] == [
        ["warm-up", 1],
        ["plain", 5],
        ["rehearsal", 1],
        ["plain", 5],
        ["profiled", 2],
        ["plain", 5],
        ["shapes", 1],
    ]
    assert meta.extra["quality"]["steps"] == 15
    assert meta.machine is not None
    assert meta.machine["fp32_gflops"] > 0


def test_steps_and_modules_are_annotations() -> None:
    """Each step is a range, one more begins where the last ends, and so is each module's call."""
    events = record(tiny_job(), **SHORT).events
    names = events.loc[events["kind"] == "annotation", "name"].astype(str).tolist()
    assert [name for name in names if name.startswith("ProfilerStep#")] == [
        "ProfilerStep#0",
        "ProfilerStep#1",
        "ProfilerStep#2",
    ]
    assert [name for name in names if name.startswith("##")] == ["##Sequential", "##0", "##1"] * 2


def test_flops_are_those_that_torch_counts() -> None:
    """A product of 4x8 with 8x8 is 4 * 8 * 8 multiply-adds, in each of two steps."""
    events = record(tiny_job(), **SHORT).events
    flops = events.loc[events["name"] == "aten::addmm", "flops"]
    assert flops.tolist() == [512.0, 512.0]
    assert events.loc[events["name"] == "aten::t", "flops"].isna().all()


def test_hooks_are_gone_afterwards() -> None:
    """The user's model is left as it was."""
    job = tiny_job()
    record(job, **SHORT)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in job.model.modules())


def test_fetching_is_part_of_the_step() -> None:
    """The loader is iterated inside the step, and its cost alone is measured."""
    data = torch.utils.data.TensorDataset(torch.ones(64, 8))
    trace = record(tiny_job(torch.utils.data.DataLoader(data, batch_size=4)), **SHORT)
    steps = trace.events[trace.events["name"] == "ProfilerStep#0"]
    fetches = trace.events[trace.events["name"].str.contains("DataLoader.*__next__")]
    assert len(fetches) == 2
    assert fetches["start_ns"].iloc[0] >= steps["start_ns"].iloc[0]
    loader = trace.meta.loader
    assert loader is not None
    assert (loader["workers"], loader["prefetch"], loader["batch_bytes"]) == (0, 2, 128)
    assert loader["load_ns"] > 0


def test_a_loop_of_the_users_own() -> None:
    """The context manager records a loop; more steps than needed do no harm."""
    job = tiny_job()
    with recording(model=job.model, optimizer=job.optimizer, batch_size=4, **SHORT) as session:
        for _ in range(40):
            job.step()
            session.step()
        assert session.done
    assert len(session.trace.meta.profiled_step_ns) == 2


def test_a_loop_that_ends_early_says_how_many_steps_it_needs() -> None:
    """Nothing recorded is an error, not an empty trace."""
    with pytest.raises(RecordError, match="run at least 20 steps, or ask for fewer"):  # noqa: SIM117
        with recording(**SHORT) as session:
            session.step()


def test_the_trace_is_there_after_the_block_only() -> None:
    """Inside the block there is none yet."""
    with recording(warmup=1, steps=1, windows=1) as session:
        with pytest.raises(RecordError, match="the recording is not over"):
            _ = session.trace
        while not session.done:
            session.step()
    assert session.trace.meta.format == "kineto"


def test_an_error_in_the_users_loop_passes_through() -> None:
    """The recorder hides nothing and leaves no profiler running."""
    with pytest.raises(ZeroDivisionError), recording(**SHORT):
        _ = 1 / 0
    record(tiny_job(), **SHORT)


@pytest.mark.parametrize("name", ["steps", "warmup", "windows"])
def test_numbers_below_one_are_refused(name: str) -> None:
    """Nothing can be recorded in no step."""
    with pytest.raises(RecordError, match=f"{name} is 0, expected at least 1"):
        record(tiny_job(), **{**SHORT, name: 0})


def test_a_failing_step_is_one_clear_line() -> None:
    """The text says which step failed, and why."""
    calls = []

    def step() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of data\nmore")

    with pytest.raises(RecordError, match=r"^step 2 of 'job' failed: RuntimeError: out of data$"):
        record(Job(step), **SHORT)


def test_a_profiler_of_the_job_is_in_the_way() -> None:
    """Two profilers cannot run at once; the text says what to do."""
    job = tiny_job()
    with (
        torch.profiler.profile(),
        pytest.raises(RecordError, match="profiler is running"),
    ):
        record(job, **SHORT)


def test_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """Kineto's own lines are kept away, below Python too."""
    record(tiny_job(), **SHORT)
    assert capfd.readouterr().err == ""


def test_the_trace_is_written_where_asked(tmp_path: Path) -> None:
    """The file reads back as the same recording."""
    trace = record(tiny_job(), out=tmp_path / "tiny.parquet", **SHORT)
    again = load(tmp_path / "tiny.parquet")
    assert again.meta.unprofiled_step_ns == trace.meta.unprofiled_step_ns
    assert len(again.events) == len(trace.events)


def test_a_place_that_cannot_be_written_to_is_known_before_any_step(tmp_path: Path) -> None:
    """A recording takes minutes; its file's folder is looked at first."""

    def step() -> None:
        raise AssertionError("nothing may run")

    for out in (tmp_path, tmp_path / "gone" / "a.parquet"):
        with pytest.raises(TraceError, match="cannot write there"):
            record(Job(step), out=out, **SHORT)


def test_the_demo_job_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is a job of its own kind and size."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    from foretrace.tracer.job import load_job

    threads = torch.get_num_threads()
    script = ROOT / "examples" / "small_cnn.py"
    try:
        job = load_job(f"{script}:fused")
        job.step()
        loading = load_job(f"{script}:loading")
        images, labels = next(iter(loading.loader))
    finally:
        torch.set_num_threads(threads)
    assert job.batch_size == 16
    assert sum(p.numel() for p in job.model.parameters()) == 4_532_004
    assert (tuple(images.shape), tuple(labels.shape)) == ((16, 3, 32, 32), (16,))
