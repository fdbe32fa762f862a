"""Who takes part."""

from __future__ import annotations

from foretrace.tracer.lab.network.party import Party


def test_servers_are_the_last_ranks() -> None:
    """Two compute, one serves."""
    assert [Party(rank, 2, 1, None).is_server for rank in range(3)] == [False, False, True]
