"""Collectives alone and in company, on ranks that are threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.measured.rank_threads import together

torch = pytest.importorskip("torch")

from foretrace.tracer.lab.network import sweeps  # noqa: E402 - needs torch

if TYPE_CHECKING:
    from foretrace.tracer.lab.network.training import Party


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.mark.parametrize("kind", sweeps.OPERATIONS)
def test_every_operation_ends_as_often_on_all_ranks(kind: str) -> None:
    """Ends rise, and there are as many on each rank, on those that only look on as well."""
    ends = together(lambda p: sweeps.sweep(p, kind=kind, size=4096, seconds=0.001), ranks=3)

    assert len({len(each) for each in ends}) == 1
    assert sweeps.FEWEST <= len(ends[0]) <= sweeps.MOST
    assert all(each == sorted(each) for each in ends)


def test_a_ping_pong_waits_for_the_answer() -> None:
    """Rank 0 is done only after rank 1 has taken the tensor and sent it back."""
    told: list[str] = []

    def run(party: Party) -> None:
        play = sweeps.OPERATIONS["ping_pong"](party, 4096)
        if party.rank == 1:
            told.append("rank 1 begins")
        play()
        if party.rank == 0:
            told.append("rank 0 is done")

    together(run, ranks=2)

    assert told == ["rank 1 begins", "rank 0 is done"]


@pytest.mark.parametrize("compute", ["products", "sums"])
def test_computing_goes_on_while_collectives_run(compute: str) -> None:
    """Quanta are timed in quiet, before and after, and in company."""
    found = together(
        lambda p: sweeps.contend(p, compute=compute, size=1 << 16, seconds=0.02), ranks=2
    )

    for each in found:
        assert len(each["ends_ns"]) == len(each["alone_ends_ns"]) >= sweeps.FEWEST
        assert min(*each["quiet_ns"], each["busy_ns"]) > 0
        assert len(each["quiet_ns"]) == 2
