"""Effective cores: what processes get done together, beside one alone."""

from __future__ import annotations

import queue
import time

import pytest

from foretrace.tracer.recording import effective_cores as module
from foretrace.tracer.recording.effective_cores import effective_cores


def test_one_process_is_one_core() -> None:
    """Nothing needs to be measured."""
    assert effective_cores(1) == 1.0


def test_waiting_needs_no_core() -> None:
    """Three processes that sleep get three times as much done, on any machine."""
    found = effective_cores(3, seconds=0.2, work=lambda: time.sleep(0.02))

    assert found == pytest.approx(3, rel=0.5)


def test_arithmetic_is_the_default_work() -> None:
    """Each process counts its own calls from the common start on."""

    class Together:
        def wait(self, timeout: float) -> None:
            assert timeout > 0

    results: queue.Queue[float] = queue.Queue()
    module._spin(Together(), results, 0.01, module._arithmetic)

    assert results.get() > 0
    assert effective_cores(seconds=0.01) > 0
