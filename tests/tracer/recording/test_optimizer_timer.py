"""The optimizer's own hooks tell how long an update takes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from foretrace.tracer.recording.optimizer_timer import Updates  # noqa: E402


class Slow(torch.optim.SGD):  # type: ignore[name-defined]
    """Sleeps 2 ms in every update."""

    def step(self, _closure: None = None) -> None:
        """Do nothing useful."""
        time.sleep(0.002)


def optimizer() -> Slow:
    """Return one of two weights."""
    return Slow([torch.nn.Parameter(torch.ones(2))])


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_step_has_the_time_of_its_updates(*, wrapped: bool) -> None:
    """Two updates in the first step, one in the second; afterwards nothing is known any more."""
    inner, updates = optimizer(), Updates()
    stamps = [time.perf_counter_ns()]
    with updates.watch(SimpleNamespace(optimizer=inner) if wrapped else inner):
        for count in (2, 1):
            for _ in range(count):
                inner.step()
            stamps.append(time.perf_counter_ns())

    first, second = updates.per_step(stamps)
    assert first >= 4_000_000
    assert 2_000_000 <= second <= stamps[2] - stamps[1]
    assert updates.per_step(stamps) == []


def test_hooks_are_gone_afterwards() -> None:
    """An update outside is not noted."""
    inner, updates = optimizer(), Updates()
    with updates.watch(inner):
        pass
    begin = time.perf_counter_ns()
    inner.step()

    assert updates.per_step([begin, time.perf_counter_ns()]) == []


def test_what_has_no_hooks_is_left_alone() -> None:
    """Such as no optimizer at all."""
    updates = Updates()
    with updates.watch(None):
        pass

    assert updates.per_step([0, 1]) == []
