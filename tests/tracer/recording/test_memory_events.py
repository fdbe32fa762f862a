"""Memory events move to the step that was timed; what a job holds is counted."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks.memory.plain import measure_peak
from foretrace.graph.build import build
from foretrace.tracer.job import Job
from foretrace.tracer.recording.live_bytes import count_live_bytes
from foretrace.tracer.recording.memory_events import move_memory_events
from foretrace.tracer.recording.record import record
from foretrace.transforms.costs.peak_memory import peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")


def test_times_are_interpolated_between_operators() -> None:
    """A step twice as slow: an event half way through an operator stays there."""
    there = {"ph": "X", "name": "aten::mm", "tid": 1, "ts": 100.0, "dur": 20.0}
    here = {**there, "ts": 1_000.0, "dur": 10.0}
    events = [
        {"name": "[memory]", "tid": 1, "ts": 110.0, "args": {"Bytes": 4}},
        {"name": "[memory]", "tid": 1, "ts": 99.0},
        {"name": "[memory]", "tid": 2, "ts": 110.0},
        {"name": "aten::mm", "tid": 1, "ts": 110.0},
    ]
    (moved,) = move_memory_events(events, [(here, there), (here, None)])

    assert moved == {"name": "[memory]", "tid": 1, "ts": 1_005.0, "args": {"Bytes": 4}}
    assert events[0]["ts"] == 110.0


ZEROED = ("before forward", "before backward", "behind the update")


def job_of_two_layers(zeroed: str) -> Job:
    """Return two layers without bias, batch 256, Adam; gradients are set to zero as said."""
    model = torch.nn.Sequential(
        torch.nn.Linear(500, 400, bias=False), torch.nn.ReLU(), torch.nn.Linear(400, 10, bias=False)
    )
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(256, 500)

    def step() -> None:
        if zeroed == ZEROED[0]:
            optimizer.zero_grad()
        loss = model(batch).square().mean()
        if zeroed == ZEROED[1]:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if zeroed == ZEROED[2]:
            optimizer.zero_grad()

    return Job(step, model=model, optimizer=optimizer, batch_size=256, name="two", device="cpu")


@pytest.mark.parametrize("zeroed", ZEROED)
def test_a_recorded_job_knows_its_peak(zeroed: str) -> None:
    """What one step of events shows, against all events since the job was built."""
    measured = measure_peak(lambda: cast("Callable[[], None]", job_of_two_layers(zeroed).step))
    gc.collect()  # of the measured job nothing may go while the other is recorded
    job = job_of_two_layers(zeroed)
    trace = record(job, steps=1, warmup=1, windows=1)
    weights = 4 * (500 * 400 + 400 * 10)
    live = trace.meta.extra["live_bytes"]
    found = peak_memory(build(trace))

    assert live["parameters"] == weights
    assert live["gradients"] == (0 if zeroed == ZEROED[2] else weights)
    assert live["optimizer_state"] == 2 * weights + 2 * 4  # and the number of steps, twice
    assert live["inputs"] >= 4 * 256 * 500
    assert found is not None
    assert found.source == "recorded"
    assert found.parameters == weights
    # other tests' tensors, if any are left, lie in the process as well
    others = found.other + found.inputs - 4 * 256 * 500
    assert found.bytes - others == pytest.approx(measured, rel=0.001)
    assert count_live_bytes(job)["total"] >= live["parameters"] + live["inputs"]
