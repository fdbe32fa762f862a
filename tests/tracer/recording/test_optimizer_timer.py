"""The optimizer's own hooks tell how long an update takes."""

from __future__ import annotations

import time

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


class Around(torch.optim.SGD):  # type: ignore[name-defined]
    """Updates by another optimizer."""

    def __init__(self, inner: Slow) -> None:
        super().__init__(inner.param_groups)
        self.inner = inner

    def step(self, _closure: None = None) -> None:
        """Let the other one do it."""
        self.inner.step()


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_step_has_the_time_of_its_updates(*, wrapped: bool) -> None:
    """Two updates in the first step, one in the second; one inside another counts once."""
    inner, updates = optimizer(), Updates()
    outer = Around(inner) if wrapped else inner
    stamps = [time.perf_counter_ns()]
    with updates.watch():
        for count in (2, 1):
            for _ in range(count):
                outer.step()
            stamps.append(time.perf_counter_ns())

    first, second = updates.per_step(stamps)
    assert first >= 4_000_000
    assert 2_000_000 <= second <= stamps[2] - stamps[1]
    assert updates.per_step(stamps) == []


def test_updates_of_all_optimizers_are_noted() -> None:
    """A job may have more of them than it names: 2 ms each."""
    updates = Updates()
    begin = time.perf_counter_ns()
    with updates.watch():
        for each in (optimizer(), optimizer()):
            each.step()

    assert updates.per_step([begin, time.perf_counter_ns()])[0] >= 4_000_000


def test_hooks_are_gone_afterwards() -> None:
    """An update outside is not noted."""
    inner, updates = optimizer(), Updates()
    with updates.watch():
        pass
    begin = time.perf_counter_ns()
    inner.step()

    assert updates.per_step([begin, time.perf_counter_ns()]) == []
