"""Collectives alone, on ranks that are threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.tracer.lab.network import collective_timer as timer
from tests.support.measured.rank_threads import together

pytest.importorskip("torch")

if TYPE_CHECKING:
    from foretrace.tracer.lab.network.party import Party


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.mark.parametrize("kind", timer.OPERATIONS)
def test_every_operation_ends_as_often_on_all_ranks(kind: str) -> None:
    """Ends rise, and there are as many on each rank, on those that only look on as well."""
    ends = together(
        lambda p: timer.time_collective(p, kind=kind, size=4096, seconds=0.001), ranks=3
    )

    assert len({len(each) for each in ends}) == 1
    assert timer.FEWEST <= len(ends[0]) <= timer.MOST
    assert all(each == sorted(each) for each in ends)


def test_a_ping_pong_waits_for_the_answer() -> None:
    """Rank 0 is done only after rank 1 has taken the tensor and sent it back."""
    events: list[str] = []

    def run(party: Party) -> None:
        play = timer.OPERATIONS["ping_pong"](party, 4096)
        if party.rank == 1:
            events.append("rank 1 begins")
        play()
        if party.rank == 0:
            events.append("rank 0 is done")

    together(run, ranks=2)

    assert events == ["rank 1 begins", "rank 0 is done"]
