"""Computing in the company of collectives, on ranks that are threads."""

from __future__ import annotations

import pytest

from foretrace.tracer.lab.network.collective_timer import FEWEST
from tests.support.measured.rank_threads import together

pytest.importorskip("torch")

from benchmarks.shaped_network.contention import contend


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.mark.parametrize("compute", ["products", "sums"])
def test_computing_goes_on_while_collectives_run(compute: str) -> None:
    """Quanta are timed in quiet, before and after, and in company."""
    answers = together(lambda p: contend(p, compute=compute, size=1 << 16, seconds=0.02), ranks=2)

    for each in answers:
        assert len(each["ends_ns"]) == len(each["alone_ends_ns"]) >= FEWEST
        assert min(*each["quiet_ns"], each["busy_ns"]) > 0
        assert len(each["quiet_ns"]) == 2
